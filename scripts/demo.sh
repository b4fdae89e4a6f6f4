#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From nothing to a measured dataset: installs what is missing, builds feedline, makes photo-like JPEGs or takes a folder of
# yours, shards it, and runs the benchmark.
# usage: scripts/demo.sh [FOLDER]     FOLDER: class folders with JPEGs, or tar shards; it is only read
set -euo pipefail
here=$(pwd)
cd "$(dirname "$0")/.."
. scripts/setup.sh

[ $# -le 1 ] || { echo "usage: scripts/demo.sh [FOLDER]" >&2; exit 2; }
source=${1:-}
if [ -n "$source" ]; then
    [ "${source#/}" != "$source" ] || source=$here/$source
    [ -d "$source" ] || die "there is no folder $source"
fi

build=${FL_BUILD_DIR:-build}
demo=${FL_DEMO_DIR:-$build/demo}
feedline=$build/tools/feedline

step "packages"
install_packages "${build_packages[@]}"

step "build (in $build)"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$build.log" 2>&1 || { cat "$build.log"; die "cmake failed"; }
cmake --build "$build" -j "$(nproc)" --target feedline feedline_command example_train_softmax >"$build.log" 2>&1 || { cat "$build.log"; die "the build failed"; }
rm -f "$build.log"
"$feedline" version

mkdir -p "$demo"
if [ -z "$source" ]; then
    source=$demo/photos
    if [ ! -e "$demo/photos.done" ]; then
        step "1,000 photo-like JPEGs (in $source)"
        rm -rf "$source"
        "$feedline" synth "$source" --count 1000
        touch "$demo/photos.done"
    fi
fi

# Shards of another folder go to another place.
shards=$demo/shards-$(printf '%s' "$source" | cksum | cut -d' ' -f1)
if [ ! -e "$shards/index.fli" ]; then
    step "shards (in $shards)"
    "$feedline" shard "$source" "$shards"
fi
"$feedline" inspect "$shards"

step "benchmark: 224 x 224 random crops, global shuffle, 5 seconds"
"$feedline" bench "$shards" --seconds 5

step "benchmark: the same with a training step of 100 ms for each batch"
"$feedline" bench "$shards" --seconds 5 --step-ms 100

step "done"
cat <<TEXT
dataset   $shards (plain tar files with an index beside them)
command   $feedline --help
trainer   $build/examples/train_softmax $shards
tests     scripts/test.sh
TEXT
