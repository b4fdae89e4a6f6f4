#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Python package as a person would (`pip install .`) into an environment of its own and runs its
# tests. With a TORCH=version in the environment PyTorch is installed too and its tests run.
# usage: scripts/test-python.sh [FOLDER]     FOLDER: for the environment and the build, default build/python
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/python}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

command -v python3 >/dev/null || { echo "skipped: no python3 here"; exit 77; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "skipped: Python 3.11 or newer is needed"; exit 77; }
[ -x "$folder/venv/bin/python" ] || python3 -m venv "$folder/venv" || { echo "skipped: python3-venv is missing"; exit 77; }
pip=("$folder/venv/bin/pip" --disable-pip-version-check -q)
"${pip[@]}" install 'scikit-build-core>=0.10' cmake ninja numpy pillow pytest ${TORCH:+"torch==$TORCH"}
"${pip[@]}" install --no-build-isolation -C build-dir="$folder/build" -C cmake.define.FL_CUDA="${FL_CUDA:-off}" .

# Only what the module is for leaves it: no codec of ours can be mistaken for another's.
module=$("$folder/venv/bin/python" -c 'import feedline._native as n; print(n.__file__)')
symbols=$(nm -D --defined-only "$module" | awk '$2 != "A" {print $3}')
[ "$symbols" = PyInit__native ] || { echo "$module exports more than PyInit__native: $symbols"; exit 1; }
"$folder/venv/bin/python" -c 'import sys, feedline; assert "numpy" not in sys.modules and "torch" not in sys.modules'
cd python/tests
"$folder/venv/bin/python" -m pytest -q -p no:cacheprovider .
