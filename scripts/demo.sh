#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three model families speak while most of their weights stay in the model file: main memory holds at most a quarter of
# the experts (of the layers, for Llama). Each run is repeated with everything in memory, and the logits must be the same
# bytes. Arguments go to CMake. Ends in minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD_DIR:-build}
scripts/deps.sh
scripts/configure.sh "$build" "$@" >/dev/null
cmake --build "$build" -j "$(nproc)" --target terrace-llama terrace-minimax terrace-kimi

logits=$(mktemp -d)
trap 'rm -rf "$logits"' EXIT

speak() {  # speak TITLE RUNNER MODEL PROMPT LIMITS...
  local title=$1 runner="$build/bin/$2" model=$3 prompt=$4
  shift 4
  printf '\n--- %s: %s\n%s' "$model" "$title" "$prompt"
  timeout 120s "$runner" -m "examples/models/$model.gguf" -p "$prompt" -n 48 --logits "$logits/few" "$@" 2>&1
  timeout 120s "$runner" -m "examples/models/$model.gguf" -p "$prompt" -n 0 --logits "$logits/all" >/dev/null 2>&1
  cmp "$logits/few" "$logits/all"
  echo "    the logits are those of a run with everything in memory, bit for bit"
}

# Layer 0 stays with the embedding and the head; layers 1 to 5 are read for each use and not kept, whatever is free.
speak "one of 6 layers kept in memory" terrace-llama llama-tiny "In the beginning" --place 'blk\.[1-5]\.=nvme'
speak "a quarter of the experts in memory" terrace-minimax minimax-m2-tiny "And the LORD said" --experts 25%
speak "a quarter of the experts in memory" terrace-kimi kimi-k2-tiny "And the LORD said" --experts 25%

printf '\ndemo: three families spoke\n'
