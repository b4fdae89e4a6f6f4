#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the environment for run.py (about 8 GB of Python packages, in build/peers) and runs it.
# usage: bench/peers/run.sh FOLDER_OF_JPEGS [OPTION OF run.py ...]
set -euo pipefail
photos=${1:?usage: bench/peers/run.sh FOLDER_OF_JPEGS [OPTION OF run.py ...]}
photos=$(cd "$photos" && pwd)
shift
cd "$(dirname "$0")/../.."
. scripts/setup.sh

work=${FL_PEERS_DIR:-build/peers}
mkdir -p "$work"
install_packages "${build_packages[@]}" python3 python3-venv python3-dev libturbojpeg0-dev libopencv-dev ffmpeg
install_python "$work/venv" torch==2.14.1 torchvision==0.29.1 pillow==13.0.0 numpy simplejpeg opencv-python-headless spdl-core \
    spdl-io matplotlib nvidia-dali-cuda130 numba
# FFCV is built from source against the system's OpenCV; without it the others are measured all the same.
[ -e "$work/venv/.ffcv" ] || "$work/venv/bin/pip" install --quiet --no-build-isolation ffcv==1.0.2 ||
    echo "FFCV could not be built here"
touch "$work/venv/.ffcv"

cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build --target feedline feedline_command
exec "$work/venv/bin/python" bench/peers/run.py --photos "$photos" --feedline build/tools/feedline --work "$work" "$@"
