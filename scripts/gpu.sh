#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU: the tests, the sanitizer, the benchmarks. Under 8 minutes on a machine with 16 cores.
# usage: scripts/gpu.sh [--build DIR] [--photos DIR] [--out DIR] [--device DEVICE] [--only PART[,PART...]]
#   --build DIR   a finished build (default: build-gpu, made here; machines without the libraries' headers get
#                 a build from elsewhere)
#   --photos DIR  folder with JPEGs for the end-to-end runs (default: photos made by `feedline synth`)
#   --out DIR     logs and results.json (default: gpu-results)
#   --device      of the benchmarks (default: cuda:0)
#   --only PART   of: tests sanitizer doctor stage jpeg loader cold raw
# DIR/results.json is a list of {step, status, seconds, result}; result is what the step's program measured.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build='' photos='' out=gpu-results only='' device=cuda:0
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift ;;
    --photos) photos=$2; shift ;;
    --out) out=$2; shift ;;
    --only) only=$2; shift ;;
    --device) device=$2; shift ;;
    *) sed -n '3,11s/^# //p' "$0" >&2; exit 2 ;;
    esac
    shift
done
wanted() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }

if [ -z "$build" ]; then
    build=$root/build-gpu
    cmake -S "$root" -B "$build" -DFL_CUDA=on >/dev/null && cmake --build "$build" -j "$(nproc)" >/dev/null ||
        { echo "gpu.sh: the build failed"; exit 1; }
fi
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd) build=$(cd "$build" && pwd)
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
feedline=$build/tools/feedline
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
began=$SECONDS
summary=() failed=0 rows=''
TOTAL=480 # seconds for everything; the sanitizer, which may take all there is, comes last

# A command or a function, ended after so many seconds.
limited() {
    local limit=$1
    shift
    if [ "$(type -t "$1")" = function ]; then "$@"; else timeout -k 5 "$limit" "$@"; fi
}

# step NAME LIMIT COMMAND...: run it, keep its output, note how it ended. A program that measures writes
# its figures to $out/NAME.json.
step() {
    local name=$1 limit=$2 code status t0=$EPOCHREALTIME seconds
    shift 2
    printf '\n== %s\n' "$name"
    local left=$((TOTAL - (SECONDS - began)))
    if [ "$left" -lt 10 ]; then
        summary+=("$(printf '%-28s %7s s  %s' "$name" 0 "not run: $TOTAL s are over")") failed=1
        return 1
    fi
    [ "$limit" -le "$left" ] || limit=$left
    limited "$limit" "$@" >"$out/$name.log" 2>&1
    code=$?
    seconds=$(awk -v a="$t0" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
    case $code in
    0) status=passed ;;
    77) status=skipped ;;
    124 | 137) status="stopped after $limit s" failed=1 ;;
    *) status="failed ($code)" failed=1 ;;
    esac
    tail -"${lines:-12}" "$out/$name.log"
    [ "$code" = 0 ] || echo "$name: $status"
    summary+=("$(printf '%-28s %7s s  %s' "$name" "$seconds" "$status")")
    local result=null
    [ "$code" = 0 ] && [ -s "$out/$name.json" ] && result=$(cat "$out/$name.json")
    rows+=$(printf '%s{"step": "%s", "status": "%s", "seconds": %s, "result": %s}' "${rows:+, }" "$name" "$status" \
        "$seconds" "$result")
    printf '[%s]\n' "$rows" >"$out/results.json"
    return "$code"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
"$feedline" version || exit 1

# The tests take real pictures from FL_TEST_SHARED/photos.
if [ -n "$photos" ]; then
    mkdir "$work/shared"
    ln -s "$(realpath "$photos")" "$work/shared/photos"
    export FL_TEST_SHARED=$work/shared
fi
if wanted tests; then
    for test in "$build"/tests/gpu_*; do
        [ -x "$test" ] && [ -f "$test" ] && step "$(basename "$test")" 120 "$test"
    done
fi

# A set of 24,000 pictures, so that an epoch is longer than the pipeline: copies of a shard of a few hundred.
photos_ready() {
    [ -z "$photos" ] || return 0
    photos=$work/photos
    "$feedline" synth "$photos" --count 400 --classes 1 --quiet
}
# make_shards TO SHARD_OPTION INDEX_OPTION: the options may be empty
make_shards() {
    local to=$1 pictures tar copy
    rm -rf "$work/one"
    "$feedline" shard "$photos" "$work/one" --quiet $2 || return
    pictures=$(tar tf "$work"/one/*.tar | grep -ci '\.jpe\?g$')
    mkdir "$to"
    for ((copy = 100; (copy - 100) * pictures < 24000; copy++)); do
        for tar in "$work"/one/*.tar; do cp "$tar" "$to/$copy-${tar##*/}"; done
    done
    "$feedline" index "$to" --quiet $3
    "$feedline" inspect "$to"
}
shards_ready() {
    [ -e "$work/shards/index.fli" ] || { photos_ready && lines=6 step shards 120 make_shards "$work/shards" '' ''; }
}

wanted stage && step kernels_and_copies 60 "$build/bench/stage_device" 256 224 "$out/kernels_and_copies.json"

if wanted jpeg && photos_ready; then
    jpeg=$build/bench/stage_gpu_jpeg
    mkdir "$work/flat"
    find -L "$(realpath "$photos")" -type f -exec ln -s -t "$work/flat" {} +
    "$jpeg" pack "$work/flat" "$work/photos.pack" 400 >/dev/null &&
        step jpeg_check 60 "$jpeg" check "$work/photos.pack" 8192 &&
        step jpeg_stage 60 "$jpeg" time "$work/photos.pack" save="$out/jpeg_stage.json" \
            threads=2 lanes=3 batch=256 -- threads=2 lanes=3 batch=1024 -- lanes=1 batch=256
fi

# bench NAME OPTION...: on the set in $set
bench() {
    local name=$1
    shift
    lines=14 step "$name" 60 "$feedline" bench "${set:-$work/shards}" --device "$device" --dtype bf16 --layout nhwc --warmup 20 \
        --save "$out/$name.json" "$@"
}
if { wanted loader || wanted cold || wanted doctor; } && ! shards_ready; then
    echo "gpu.sh: no shards"
    failed=1
fi
wanted doctor && lines=30 step doctor 60 "$feedline" doctor --data "$work/shards" --seconds 2
if wanted loader; then
    cat "$work"/shards/*.tar >/dev/null # into the page cache
    bench cpu --decode cpu --seconds 6
    bench cpu_resnet50_steps --decode cpu --seconds 6 --step-ms 38.5
    bench cpu_resnet18_steps --decode cpu --seconds 5 --step-ms 14.5
    bench gpu --decode gpu --seconds 5
    bench gpu_1024 --decode gpu --seconds 5 --batch-size 1024
    bench auto --decode auto --seconds 5
    bench gpu_resnet50_steps --decode gpu --seconds 5 --step-ms 38.5
    bench gpu_resnet18_steps --decode gpu --seconds 5 --step-ms 14.5
    # The same photos as they are, with entry points in the index.
    if lines=4 step unmodified 120 make_shards "$work/unmodified" --no-slice --entry-points; then
        cat "$work"/unmodified/*.tar >/dev/null
        set=$work/unmodified
        bench unmodified_cpu --decode cpu --seconds 4
        bench unmodified_gpu --decode gpu --seconds 4
        unset set
    fi
    rm -rf "$work/unmodified"
fi
# The drive's rate drifts, so each run is followed by plain reads of the same size.
if wanted cold; then
    for turn in 1 2 3; do
        bench "cold_$turn" --decode gpu --seconds 4 --cold --direct on --drive
    done
fi

# Records as volumetric training has them, read from the drive into pinned memory and from there to the GPU.
if wanted raw; then
    rm -rf "$work/shards"
    mkdir "$work/records" "$work/raw"
    head -c 16777216 /dev/urandom >"$work/records/0.bin"
    for ((i = 1; i < 64; i++)); do cp "$work/records/0.bin" "$work/records/$i.bin"; done
    for part in 0 1 2 3; do tar --format=ustar -C "$work/records" -cf "$work/raw/$part.tar" .; done
    rm -rf "$work/records"
    for turn in 1 2 3; do
        lines=14 step "raw_direct_$turn" 60 "$feedline" bench "$work/raw" --device "$device" --batch-size 2 --slots 6 --workers 1 --warmup 4 \
            --checksum off --direct on --cold --drive --seconds 4 --save "$out/raw_direct_$turn.json"
    done
    cat "$work"/raw/*.tar >/dev/null
    lines=14 step raw_page_cache 60 "$feedline" bench "$work/raw" --device "$device" --batch-size 2 --slots 6 --workers 1 --warmup 4 \
        --checksum off --direct off --seconds 4 --save "$out/raw_page_cache.json"
fi

if wanted sanitizer && command -v compute-sanitizer >/dev/null; then
    # Some virtual machines refuse it; a kernel that does nothing but one launch tells.
    if ! compute-sanitizer "$build/tests/gpu_normalize" one >"$out/sanitizer.log" 2>&1 &&
        grep -q 'not supported' "$out/sanitizer.log"; then
        echo "compute-sanitizer does not work here: $(grep -m1 'not supported' "$out/sanitizer.log")"
    else
        export FL_TEST_SHORT=1 # fewer cases: everything is 10 to 50 times slower
        for test in gpu_normalize gpu_jpeg gpu_decode gpu_loader; do
            lines=3 step "memcheck_$test" 60 compute-sanitizer --report-api-errors no --error-exitcode 9 "$build/tests/$test"
        done
        lines=3 step racecheck_gpu_jpeg 60 compute-sanitizer --tool racecheck --error-exitcode 9 "$build/tests/gpu_jpeg"
        unset FL_TEST_SHORT
    fi
fi

printf '\n== summary: %d s\n' $((SECONDS - began))
printf '%s\n' "${summary[@]}"
command -v python3 >/dev/null && python3 "$root/scripts/gpu_table.py" "$out/results.json"
echo "results: $out/results.json"
exit $failed
