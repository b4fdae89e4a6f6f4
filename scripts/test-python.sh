#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Python package's wheel as `pip install .` does, looks at what is in it, installs it into an
# environment of its own and runs its tests, types included. With TORCH=version in the environment PyTorch is
# installed too, with TORCHVISION=version torchvision, and their tests run.
# usage: scripts/test-python.sh [FOLDER]     FOLDER: for the environment and the build, default build/python
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/python}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
fail() { echo "$*"; exit 1; }

command -v python3 >/dev/null || { echo "skipped: no python3 here"; exit 77; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "skipped: Python 3.11 or newer is needed"; exit 77; }
[ -x "$folder/venv/bin/python" ] || python3 -m venv "$folder/venv" || { echo "skipped: python3-venv is missing"; exit 77; }
python=$folder/venv/bin/python
pip=("$folder/venv/bin/pip" --disable-pip-version-check -q)
"${pip[@]}" install 'scikit-build-core>=0.10' cmake ninja numpy pillow pytest mypy tqdm \
    ${TORCH:+"torch==$TORCH" tensorboard} ${TORCHVISION:+"torchvision==$TORCHVISION"}
rm -rf "$folder/dist"
"${pip[@]}" wheel --no-deps --no-build-isolation -w "$folder/dist" -C build-dir="$folder/build" \
    -C cmake.define.FL_CUDA="${FL_CUDA:-off}" .
wheel=$(echo "$folder"/dist/*.whl)

# The wheel: one for all of CPython from 3.11, typed, with the licences of what is linked in, nothing else.
case $wheel in *-cp311-abi3-*) ;; *) fail "$wheel is not for the stable ABI" ;; esac
names=$("$python" -m zipfile -l "$wheel" | awk 'NR > 1 {print $1}')
for name in feedline/_native.pyi feedline/py.typed libjpeg-turbo.txt zstd.txt xxHash.txt liburing.txt LICENSE; do
    grep -q "$name\$" <<<"$names" || fail "the wheel lacks $name"
done
stray=$(grep -vE '^feedline/[a-z_]+\.pyi?$|^feedline/_native\.abi3\.so$|^feedline/py\.typed$|\.dist-info/' <<<"$names" || true)
[ -z "$stray" ] || fail "the wheel has what does not belong there: $stray"

# The source distribution holds every file that the build reads.
"$python" -c 'import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])' "$folder/dist" >/dev/null
held=$(tar -tzf "$folder"/dist/*.tar.gz | cut -d/ -f2- | sort)
missing=$(git ls-files CMakeLists.txt cmake include lib decoders python/src python/feedline python/licenses python/CMakeLists.txt \
    python/native.map pyproject.toml README.md LICENSE 2>/dev/null | sort | comm -23 - <(echo "$held"))
[ -z "$missing" ] || fail "the source distribution lacks: $missing"

# The module: needs the C library alone, and nothing leaves it but what it is for, so that no codec of ours can
# be mistaken for another's.
"${pip[@]}" install --no-deps --force-reinstall "$wheel"
module=$("$python" -c 'import feedline._native as n; print(n.__file__)')
needed=$(readelf -d "$module" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
foreign=$(grep -vE '^(libc|libm|libpthread|libdl|librt)\.so|^ld-linux' <<<"$needed" || true)
[ -z "$foreign" ] || fail "$module needs $foreign: is a static library missing?"
symbols=$(nm -D --defined-only "$module" | awk '$2 != "A" {print $3}')
[ "$symbols" = PyInit__native ] || fail "$module exports more than PyInit__native: $symbols"
"$python" -c 'import sys, feedline; assert "numpy" not in sys.modules and "torch" not in sys.modules'
cd python/tests
"$python" -m pytest -q -p no:cacheprovider .
