#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decodes with a part of the experts in device memory and the rest in pinned memory, against what memory and link allow.

The bound of a token is the longer of two times: all bytes it reads over the rate of device memory, and the bytes that were
missing over the rate of the link. Both rates are given, as measured beside this (bench_expert_ffn and bench_tier print
them). Each fraction is run twice, once longer, and only the difference counts: loading and first touches fall out of it.
Writes one JSON object; the terminal gets one line per fraction.
"""

import argparse
import json
import pathlib
import subprocess
import sys


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runner", help="terrace-kimi or another runner built with CUDA")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--fractions", default="0.25,0.5,1", help="of all experts that device memory holds")
    parser.add_argument("--tokens", type=int, default=600, help="of the short run; the long one is twice that")
    parser.add_argument("--memory-gb-per-s", type=float, required=True)
    parser.add_argument("--link-gb-per-s", type=float, required=True)
    parser.add_argument("--device", default="", help="named in the result")
    parser.add_argument("--commit", default="")
    parser.add_argument("--json", type=pathlib.Path, help="where the result goes")
    return parser.parse_known_args()


def command_for(args, extra, fraction, tokens):
    experts = [] if fraction >= 1 else ["--experts", f"{100 * fraction:g}%"]
    return [args.runner, "-m", str(args.model), "--chain", "vram-pinned-nvme", "--vram", "all", "--pinned", "80%", *experts,
            "--prompt-ids", "1", "-n", str(tokens), "--ignore-eos", "--ctx", str(4 * args.tokens), "--json", "-", *extra]


def answer_of(command):
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(f"{' '.join(command)}: {made.stderr.strip()}")
    return json.loads(made.stdout)


def run(args, extra, fraction, tokens):
    answer = answer_of(command_for(args, extra, fraction, tokens))
    tiers = {tier["name"]: tier for tier in answer["tiers"]}
    return {"seconds": tokens / answer["tg_tokens_per_s"], "bytes_in": tiers["vram"]["bytes_in"]}


def bytes_of_a_token(args):
    return answer_of([args.runner, "-m", str(args.model), "--plan", "--json", "-"])["plan"]["token_bytes"]


def main():
    args, extra = arguments()
    read = bytes_of_a_token(args)
    rows = []
    for fraction in [float(text) for text in args.fractions.split(",")]:
        short = run(args, extra, fraction, args.tokens)
        long = run(args, extra, fraction, 2 * args.tokens)
        seconds = (long["seconds"] - short["seconds"]) / args.tokens
        missed = (long["bytes_in"] - short["bytes_in"]) / args.tokens
        bound = max(read / args.memory_gb_per_s, missed / args.link_gb_per_s) / 1e9
        rows.append({
            "file": args.model.name, "resident_fraction": fraction, "tg_tokens_per_s": round(1 / seconds, 2),
            "bound_tokens_per_s": round(1 / bound, 2), "ratio": round(bound / seconds, 4), "missed_bytes_per_token": round(missed),
            "read_bytes_per_token": round(read)
        })
        print(f"{fraction:.0%} resident: {1 / seconds:.1f} tokens/s of {1 / bound:.1f} that memory and link allow, "
              f"ratio {bound / seconds:.3f}")
    if args.json:
        shown = command_for(args, extra, 0.25, args.tokens)
        args.json.write_text(json.dumps({
            "what": "decode with a part of the experts resident, against max(bytes over memory, missed bytes over link)",
            "commit": args.commit, "device": args.device, "command": " ".join(shown),
            "memory_gb_per_s": args.memory_gb_per_s, "link_gb_per_s": args.link_gb_per_s, "rows": rows
        }, indent=1) + "\n")


main()
