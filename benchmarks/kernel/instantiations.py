#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the CUDA kernels that a build instantiates, and times the compiler on each of their sources.

Needs a build folder configured with nvcc and -DCMAKE_EXPORT_COMPILE_COMMANDS=ON. Every source is compiled again, one after
the other and without a compiler cache. Writes one JSON object; the terminal gets a line per source and one for all.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import tempfile
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, help="a build folder")
    parser.add_argument("--json", type=pathlib.Path, help="where the result goes")
    parser.add_argument("--commit", default="")
    return parser.parse_args()


def compile_again(entry, out):
    """Seconds that the compiler of a compile_commands.json entry takes to write `out`."""
    words = shlex.split(entry["command"])
    if pathlib.Path(words[0]).name == "ccache":
        words = words[1:]
    words[words.index("-o") + 1] = out
    start = time.monotonic()
    subprocess.run(words, cwd=entry["directory"], check=True, stderr=subprocess.DEVNULL, env=dict(os.environ, CCACHE_DISABLE="1"))
    return time.monotonic() - start


def kernels_in(path):
    """Kernels of an object file: nvcc keeps one handle on the host, in the stub that launches it, for each."""
    text = subprocess.run(["nm", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    return sum("__device_stub__" in line and line.endswith("__handle") for line in text.splitlines())


def main():
    args = arguments()
    commands = json.loads((args.build / "compile_commands.json").read_text())
    sources = sorted((c for c in commands if "/cuda_kernels/" in c["file"] and "emulated" not in c["command"]),
                     key=lambda c: c["file"])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        out = str(pathlib.Path(folder) / "kernels.o")
        for entry in sources:
            seconds = compile_again(entry, out)
            rows.append({
                "source": pathlib.Path(entry["file"]).name, "kernels": kernels_in(out), "compile_s": round(seconds, 1),
                "object_bytes": os.path.getsize(out)
            })
            print(f"{rows[-1]['source']:20} {rows[-1]['kernels']:5} kernels {seconds:7.1f} s")
    total = {"kernels": sum(r["kernels"] for r in rows), "compile_s": round(sum(r["compile_s"] for r in rows), 1)}
    print(f"{'all':20} {total['kernels']:5} kernels {total['compile_s']:7.1f} s")
    if args.json:
        args.json.write_text(json.dumps({
            "what": "CUDA kernels that the object library instantiates, and the compiler's time on each source, one at a time",
            "commit": args.commit, "command": f"benchmarks/kernel/instantiations.py {args.build}", **total, "rows": rows
        }, indent=1) + "\n")


main()
