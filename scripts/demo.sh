#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three model families speak while most of their weights stay in the model file: at most a quarter of the experts (of
# the layers, for Llama) is in DRAM at any time. Arguments go to CMake. Ends in minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD_DIR:-build}
scripts/deps.sh
scripts/configure.sh "$build" "$@" >/dev/null
cmake --build "$build" -j "$(nproc)" --target terrace-llama terrace-minimax terrace-kimi

speak() {  # speak TITLE RUNNER MODEL ARGUMENTS...
  printf '\n--- %s\n' "$1"
  timeout 120s "$build/bin/$2" -m "examples/models/$3.gguf" -n 48 "${@:4}"
}

speak "Llama, one of its six layers kept in DRAM and the others read for each token" \
  terrace-llama llama-tiny --place 'blk\.[1-5]\.=nvme' -p "In the beginning"
speak "MiniMax-M2, a quarter of its experts in DRAM" terrace-minimax minimax-m2-tiny --experts 25% -p "And the LORD said"
speak "Kimi K2, a quarter of its experts in DRAM" terrace-kimi kimi-k2-tiny --experts 25% -p "And the LORD said"
printf '\ndemo: three families spoke\n'
