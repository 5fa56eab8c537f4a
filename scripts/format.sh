#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats the C++ sources in place; with --check only reports those that differ. clang-format is pinned to 16, because
# versions disagree.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v clang-format-16 >/dev/null || { echo "format: clang-format-16 is missing; run scripts/deps.sh --ci" >&2; exit 1; }
case "${1-}" in
  '') mode=(-i) ;;
  --check) mode=(--dry-run --Werror) ;;
  *) echo "usage: scripts/format.sh [--check]" >&2; exit 2 ;;
esac
git ls-files -z '*.hpp' '*.cuh' '*.cpp' '*.cu' | xargs -0 --no-run-if-empty clang-format-16 "${mode[@]}"
