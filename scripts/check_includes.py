#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the source tree that no compiler checks; prints one line per offence and exits 1 if there is any.

Includes point one way through the folders of include/terrace/, and siblings never include each other; policies see core/
and concepts/ only; optional C APIs are named in shim/ only; no .hpp outside shim/ names a CUDA header; only tests and benchmarks reach
into another folder's detail/. Every source file starts with its SPDX line, and every header has #pragma once.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ["core", "concepts", "shim", "format quant tokenize placement dispatch tier evict admit prefetch observe",
          "copy kernel sim", "chain", "sequence", "model", "runtime"]  # fmt: skip
RANK = {folder: rank for rank, layer in enumerate(LAYERS) for folder in layer.split()}
POLICIES = {"evict", "admit", "prefetch", "placement", "dispatch"}
OPTIONAL_APIS = re.compile(r"(liburing|libpmem2|libpmem|numa|numaif|hwloc|cufile|nccl)\.h$")
CUDA = re.compile(r"^(cuda|cub|thrust|cooperative_groups|nv)[/_.]|\.cuh$")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def include_fault(path, included):
    """What is wrong with `path` including `included`, or None. Paths are relative to the root of the repository."""
    parts = pathlib.PurePath(path).parts
    folder = parts[2] if path.startswith("include/terrace/") and len(parts) > 3 else None
    target = pathlib.PurePath(included).parts
    if path.startswith("include/") and path.endswith(".hpp") and folder != "shim" and CUDA.search(included):
        return "a .hpp names no CUDA header; move it to a .cuh"
    if path.startswith("include/") and folder != "shim" and OPTIONAL_APIS.search(included):
        return "only shim/ names an optional C API"
    if target[0] != "terrace" or len(target) < 3:
        return None
    if "detail" in target[2:-1] and target[1] != folder and parts[0] not in ("tests", "benchmarks"):
        return f"detail/ is private to {target[1]}/"
    if folder is None or folder == target[1]:
        return None
    if target[1] not in RANK or folder not in RANK:
        return "the folder has no place in LAYERS of scripts/check_includes.py"
    if folder in POLICIES and target[1] not in ("core", "concepts"):
        return f"{folder}/ sees core/ and concepts/ only"
    if RANK[target[1]] >= RANK[folder]:
        return f"{folder}/ does not come after {target[1]}/"
    return None


def file_faults(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    suffix = pathlib.PurePath(path).suffix
    mark = "//" if suffix in (".hpp", ".cuh", ".cpp", ".cu") else "#"
    lines = text.splitlines() or [""]
    first = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
    if first != f"{mark} SPDX-License-Identifier: Apache-2.0":
        yield "does not start with its SPDX line"
    if suffix in (".hpp", ".cuh") and "\n#pragma once\n" not in text:
        yield "has no #pragma once"
    if mark == "//":
        for included in INCLUDE.findall(text):
            if fault := include_fault(path, included):
                yield f"includes {included}: {fault}"
            elif included.startswith("terrace/") and not (ROOT / "include" / included).exists():
                yield f"includes {included}, which does not exist"


def main():
    patterns = ["*.hpp", "*.cuh", "*.cpp", "*.cu", "*.py", "*.sh", "*.cmake", "CMakeLists.txt", "*/CMakeLists.txt", ".ci/run"]
    paths = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    faults = [f"{path}: {fault}" for path in sorted(set(paths.split())) for fault in file_faults(path)]
    print("\n".join(faults) if faults else "includes: every file keeps the rules")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
