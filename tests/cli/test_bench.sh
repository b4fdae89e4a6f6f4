#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# feedline bench: the table has every figure, the JSON is JSON and adds up, the step time is kept, wrong input is named.
. "$(dirname "$0")/lib.sh"

check "photos" "$FEEDLINE" synth "$work/photos" --count 64 --classes 2 --quiet
check "shards" "$FEEDLINE" shard "$work/photos" "$work/shards"

"$FEEDLINE" bench "$work/shards" --epochs 3 --batch-size 8 --warmup 2 --workers 1 >"$work/table" 2>"$work/err"
check "bench runs" test $? = 0
# Where io_uring is refused, or not in the build, the loader says once that it does without.
grep -v 'falling back to pread: ' "$work/err" >"$work/odd"
check "nothing else on stderr: $(head -1 "$work/odd")" test ! -s "$work/odd"
for line in '^dataset .*64 samples' '^batches .*8 x 224 x 224 uint8 NHWC, random crop, global shuffle' '^loader .*1 workers' \
    '^storage .*in the page cache at the start' '^samples/s  *[0-9,]+$' '^MB/s read' '^CPU s/1,000 samples' \
    '^first batch  *[0-9.]+ s' '^measured .*22 batches, 176 samples; the warm-up is left out' '^stage  *threads  *busy' \
    '^plan ' '^read ' '^decode ' '^[A-Z].* limits: .*\.$'; do
    check "the table has $line" grep -Eq "$line" "$work/table"
done
check "no accelerator without --step-ms" bash -c "! grep -q accelerator $work/table"

"$FEEDLINE" bench "$work/shards" --epochs 2 --batch-size 8 --warmup 2 --step-ms 20 --json --save "$work/saved" --drive --dtype f32 --layout nchw \
    --size 64 --shuffle none >"$work/json" 2>"$work/err"
check "JSON run" test $? = 0
check "the JSON says what happened" python3 - "$work/json" <<'PYTHON'
import json, sys
r = json.load(open(sys.argv[1]))
assert r["samples"] == 14 * 8 and r["batches"] == 14 and r["epochs"] == 2, r
assert r["valid"] == r["samples"]
assert 0.019 <= r["step_seconds"] / r["batches"] <= 0.1, r["step_seconds"]
assert 0 < r["accelerator_utilisation"] <= 1
assert abs(r["accelerator_utilisation"] - r["step_seconds"] / r["seconds"]) < 1e-3
assert r["bytes_delivered"] == 14 * 8 * (3 * 64 * 64 * 4 + 8), r["bytes_delivered"]
assert r["warmup_left_out"] and r["limiting"] in r["stages"] and r["sentence"].endswith(".")
assert set(r["stages"]) == {"plan", "read", "decode", "augment", "batch", "device", "consumer"}
assert r["io"] in ("io_uring", "pread") and r["io_reason"]
assert r["step_ms"] == 20 and r["drive_bytes_per_second"] > 0 and 0 < r["drive_ratio"] < 1, r
assert r["cpu_seconds_per_gb_read"] == float("%.6g" % (r["cpu_seconds"] * 1e9 / r["bytes_read"])) or \
    abs(r["cpu_seconds_per_gb_read"] * r["bytes_read"] * 1e-9 / r["cpu_seconds"] - 1) < 1e-4
PYTHON
check "--save writes the same object" cmp "$work/json" "$work/saved"

# Records of one length are read straight into the batch, by whatever way the file system allows.
mkdir "$work/records" "$work/raw"
for i in 1 2 3 4 5 6; do head -c 1000000 /dev/urandom >"$work/records/$i.bin"; done
tar --format=ustar -C "$work/records" -cf "$work/raw/0.tar" 1.bin 2.bin 3.bin 4.bin 5.bin 6.bin
"$FEEDLINE" bench "$work/raw" --epochs 2 --batch-size 2 --warmup 0 --consume 1 --checksum off --drive >"$work/table" 2>"$work/err"
check "raw records: $(head -1 "$work/err")" test $? = 0
for line in '2 x raw records of field "bin"' '^processor time  *[0-9.]+% of one core, [0-9.]+ s for each GB read' \
    '^the drive alone  *[0-9.]+ [kMG]?B/s: plain reads of .* at random, 64 at once' '^accelerator use '; do
    check "raw records: the table has $line" grep -Eq "$line" "$work/table"
done

check "without workers" "$FEEDLINE" bench "$work/shards" --epochs 1 --batch-size 16 --workers 0
check "cold" bash -c "'$FEEDLINE' bench '$work/shards' --epochs 1 --batch-size 16 --cold | grep -q '^storage  *cold: '"
check "class folders" "$FEEDLINE" bench "$work/photos" --epochs 1 --batch-size 16 --exact --crop center --io pread
check "synthetic" bash -c "TMPDIR='$work' '$FEEDLINE' bench --synthetic --photos 20 --epochs 1 --batch-size 4"
check "what --synthetic made is gone" bash -c "! ls -d $work/feedline-* 2>/dev/null"
check "one batch at least" bash -c "'$FEEDLINE' bench '$work/shards' --seconds 0.001 | grep -Eq '^measured .* 1 batches'"
check "a short run says so" bash -c "'$FEEDLINE' bench '$work/shards' --epochs 1 --warmup 1000 | grep -q 'with the warm-up'"

refuses 2 "give a dataset, or --synthetic" bench
refuses 2 "not both" bench "$work/shards" --synthetic
refuses 2 "--batch-size wants a whole number from 1" bench "$work/shards" --batch-size 0
refuses 2 "--shuffle wants one of none, global, block, not \"some\"" bench "$work/shards" --shuffle some
refuses 2 "--device wants cpu, cuda or cuda:N" bench "$work/shards" --device gpu
refuses 2 "--seconds wants a number" bench "$work/shards" --seconds soon
refuses 2 "has no field \"png\"" bench "$work/shards" --field png
refuses 1 "decode = gpu needs a CUDA device" bench "$work/shards" --decode gpu
refuses 1 "$work/nowhere" bench "$work/nowhere"
mkdir "$work/empty"
refuses 1 "$work/empty" bench "$work/empty"
refuses 1 "memory" bench "$work/shards" --memory 1M
finish
