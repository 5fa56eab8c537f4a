#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/configure.sh BUILD_DIR [CMake arguments]: a Release build with ninja, through ccache where there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
shift
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
generator=()
if [ ! -e "$build/CMakeCache.txt" ]; then generator=(-G Ninja); fi  # a folder keeps the generator it was made with
cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release "${launcher[@]}" "$@"
