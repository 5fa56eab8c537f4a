#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what terrace reads with fio: same file, engine, block size, depth and order, in alternating pairs.

RATE is nvme_rate (the home by itself) or expert_rate (sets of blocks through a store); --peer names a program of the
same command line that runs instead of fio, such as plain_rate.

Drives and neighbours vary from second to second, so the answer is the median of the ratios of neighbouring runs.
Writes one JSON object; the last line on the terminal is the verdict.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rate", type=pathlib.Path, help="the program that measures terrace")
    parser.add_argument("file", type=pathlib.Path, help="file to read; made, with random bytes, if it is missing")
    parser.add_argument("--size-mib", type=int, default=4096, help="of a file that is made")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--block", type=int, default=1 << 20, help="bytes")
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--order", choices=["read", "randread"], default="read", help="sequential or random blocks")
    parser.add_argument("--peer", type=pathlib.Path, help="program that runs instead of fio")
    parser.add_argument("--json", type=pathlib.Path, help="where the result goes")
    return parser.parse_args()


def make_file(path, mebibytes):
    with path.open("wb") as out:
        for _ in range(mebibytes):
            out.write(os.urandom(1 << 20))
        out.flush()
        os.fsync(out.fileno())


def rate_of(program, args):
    """Bytes per second, and how they were read."""
    command = [program, args.file, args.seconds, args.block, args.depth, args.order]
    text = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout
    count, seconds, mode = re.fullmatch(r"(\d+) bytes ([\d.]+) seconds (.*)\n", text).groups()
    return int(count) / float(seconds), mode


def fio_command(args):
    return [
        "fio", "--name=read", f"--filename={args.file}", f"--rw={args.order}", f"--bs={args.block}",
        f"--iodepth={args.depth}", "--ioengine=io_uring", "--direct=1", "--fixedbufs", "--registerfiles",
        "--time_based", f"--runtime={args.seconds:g}", "--readonly", "--output-format=json",
    ]


def fio_rate(args):
    text = subprocess.run(fio_command(args), check=True, capture_output=True, text=True).stdout
    return json.loads(text[text.index("{"):])["jobs"][0]["read"]["bw_bytes"]


def peer_facts(args):
    """The peer's short name, what runs it, and which version it is."""
    if args.peer:
        return args.peer.name, {args.peer.name: f"{args.peer.name} FILE {args.seconds:g} {args.block} {args.depth} {args.order}"}
    version = subprocess.run(["fio", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return "fio", {"fio": " ".join(fio_command(args)).replace(str(args.file), "FILE"), "fio_version": version}


def main():
    args = arguments()
    peer, facts = peer_facts(args)

    def peer_rate():
        return rate_of(args.peer, args)[0] if args.peer else fio_rate(args)

    if not args.file.exists():
        make_file(args.file, args.size_mib)
    pairs = []
    for number in range(args.pairs):
        # Whoever goes first changes from pair to pair.
        if number % 2 == 0:
            ours, mode = rate_of(args.rate, args)
            theirs = peer_rate()
        else:
            theirs = peer_rate()
            ours, mode = rate_of(args.rate, args)
        pairs.append({"terrace_bytes_per_s": round(ours), f"{peer}_bytes_per_s": round(theirs), "ratio": round(ours / theirs, 4)})
        print(f"pair {number + 1}: terrace {ours / 1e9:.3f} GB/s, {peer} {theirs / 1e9:.3f} GB/s, ratio {ours / theirs:.3f}")
    result = {
        "what": f"{args.rate.name} against {peer}, median ratio of alternating pairs",
        "block_bytes": args.block,
        "depth": args.depth,
        "order": args.order,
        "file_bytes": args.file.stat().st_size,
        "seconds_each": args.seconds,
        "terrace_mode": mode,
        **facts,
        "pairs": pairs,
        "median_ratio": round(statistics.median(pair["ratio"] for pair in pairs), 4),
    }
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"median ratio {result['median_ratio']:.3f} of {args.pairs} pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
