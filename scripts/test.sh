#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds everything in Release and runs every test. Arguments go to CMake:
#
#   scripts/test.sh -DTERRACE_GOLDEN_DIR=/path/to/models
#
# Tests that lack something here (golden models, a device, a peer program) skip and are named at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD_DIR:-build}
scripts/deps.sh
scripts/configure.sh "$build" "$@"
cmake --build "$build" -j "$(nproc)"
ctest --test-dir "$build" -j "$(nproc)" --timeout 300 --output-on-failure --no-tests=error --no-label-summary
