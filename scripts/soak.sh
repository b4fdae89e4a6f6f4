#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A million samples, 1% of them bad, under each policy in turn: counts exact, report complete, memory flat. Then ten minutes of
# random runs (saved, restored, other world sizes, faults). Figures go into docs/performance.md.
# usage: scripts/soak.sh [SAMPLES [SECONDS]]     default 1000000 600
set -euo pipefail
cd "$(dirname "$0")/.."
build=${FL_BUILD_DIR:-build}
[ -x "$build/tests/soak" ] || { cmake -S . -B "$build" -G Ninja && cmake --build "$build" --target soak unit_random_runs; }
"$build/tests/soak" "${1:-1000000}"
FL_TEST_SECONDS=${2:-600} "$build/tests/unit_random_runs"
