#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU: the tests, the sanitizer, the benchmarks. Under 8 minutes.
# usage: scripts/gpu.sh [--build DIR] [--photos DIR] [--quick]
#   --build DIR   a finished build (default: build-gpu, made here; machines without the libraries' headers get
#                 a build from elsewhere)
#   --photos DIR  folder with JPEGs for the end-to-end runs (default: photos made by `feedline synth`)
#   --quick       tests only
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build= photos= quick=
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift ;;
    --photos) photos=$2; shift ;;
    --quick) quick=1 ;;
    *) sed -n '3,9s/^# //p' "$0" >&2; exit 2 ;;
    esac
    shift
done
failed=0
say() { printf '\n== %s\n' "$*"; }

if [ -z "$build" ]; then
    build=$root/build-gpu
    cmake -S "$root" -B "$build" -DFL_CUDA=on >/dev/null && cmake --build "$build" -j "$(nproc)" >/dev/null ||
        { echo "gpu.sh: the build failed"; exit 1; }
fi
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
feedline=$build/tools/feedline
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
"$feedline" version || exit 1

for test in "$build"/tests/gpu_*; do
    [ -x "$test" ] && [ -f "$test" ] || continue
    say "$(basename "$test")"
    timeout 200 "$test" 2>&1 | tail -12
    code=${PIPESTATUS[0]}
    [ "$code" = 0 ] || { echo "exit code $code"; failed=1; }
done

if command -v compute-sanitizer >/dev/null; then
    for test in gpu_normalize gpu_loader gpu_decode; do
        [ -x "$build/tests/$test" ] || continue
        say "compute-sanitizer memcheck $test"
        timeout 100 compute-sanitizer --report-api-errors no --error-exitcode 9 "$build/tests/$test" 2>&1 | tail -3
        code=${PIPESTATUS[0]}
        [ "$code" = 0 ] || { echo "exit code $code"; failed=1; }
    done
fi
[ -z "$quick" ] || exit $failed

say "kernels and copies"
"$build/bench/stage_device" || failed=1

# A set of 24,000 pictures, so that an epoch is longer than the pipeline: links to a few hundred.
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
if [ -z "$photos" ]; then
    photos=$work/photos
    "$feedline" synth "$photos" --count 400 --classes 1 --quiet || exit 1
fi
mapfile -t files < <(find "$photos" -name '*.jpg' -o -name '*.JPEG' | sort)
mkdir -p "$work/set"
for ((copy = 0; copy * ${#files[@]} < 24000; copy++)); do
    mkdir "$work/set/c$copy"
    cp -l "${files[@]}" "$work/set/c$copy/" 2>/dev/null || cp -s "${files[@]}" "$work/set/c$copy/"
done
say "sharding"
time "$feedline" shard "$work/set" "$work/shards" 2>&1 | tail -3

run() {
    say "feedline bench $*"
    timeout 60 "$feedline" bench "$work/shards" --device cuda:0 --dtype bf16 --layout nhwc --warmup 20 "$@" || failed=1
}
run --decode cpu --seconds 6
run --decode cpu --seconds 6 --consume 38.5
run --decode cpu --seconds 5 --consume 14.5
run --decode auto --seconds 5
run --decode gpu --seconds 5
run --decode gpu --seconds 5 --batch-size 1024
run --decode auto --seconds 5 --consume 14.5
say "the drive alone: 128 KiB at random, O_DIRECT, 32 threads"
python3 - "$work/shards" <<'PYTHON' || true
import glob, mmap, os, random, sys, threading, time
files = [(os.open(p, os.O_RDONLY | os.O_DIRECT), os.path.getsize(p)) for p in glob.glob(sys.argv[1] + "/*.tar")]
done, end = [0] * 32, time.time() + 4
def read(i):
    buf, rng = mmap.mmap(-1, 131072), random.Random(i)
    while time.time() < end:
        fd, size = files[rng.randrange(len(files))]
        done[i] += os.preadv(fd, [buf], rng.randrange(max(1, size // 131072 - 1)) * 131072)
threads = [threading.Thread(target=read, args=(i,)) for i in range(32)]
start = time.time()
[t.start() for t in threads]; [t.join() for t in threads]
print("%.2f GB/s" % (sum(done) / (time.time() - start) / 1e9))
PYTHON
run --decode gpu --seconds 6 --cold --direct on
exit $failed
