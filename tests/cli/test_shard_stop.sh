#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# feedline shard, stopped in the middle: nobody takes what is there for a dataset, and a second start ends with the same
# bytes. A full disk is one sentence.
. "$(dirname "$0")/lib.sh"

check "photos to work with" "$FEEDLINE" synth "$work/src" --count 80 --classes 3 --quiet
run=("$FEEDLINE" shard "$work/src" "$work/b" --shard-size 600K --quiet)
check "a whole run" "$FEEDLINE" shard "$work/src" "$work/a" --shard-size 600K --quiet
shards=$(ls "$work/a"/shard-*.tar | wc -l)

# Kill it once the given number of shards is there, and look at what it leaves.
killed=0
for stop_at in 0 1 3 5; do
    "${run[@]}" --threads 1 >"$work/out" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ "$(ls "$work/b" 2>/dev/null | grep -c '^shard-')" -lt $stop_at ]; do
        sleep 0.002
    done
    kill -9 $pid 2>/dev/null && killed=$((killed + 1))
    wait $pid 2>/dev/null
    [ -e "$work/b/index.fli" ] && break
    [ -e "$work/b/.feedline-unfinished" ] && refuses 1 "unfinished" shard "$work/b" "$work/e" --quiet
    for tar in "$work/b"/shard-*.tar; do
        [ ! -e "$tar" ] || check "what is there is whole: $tar" cmp "$tar" "$work/a/${tar##*/}"
    done
done
check "killed in the middle at least twice, not $killed times" test "$killed" -ge 2
have=$(ls "$work/b" | grep -c '^shard-')
check "some shards, not all: $have of $shards" test "$have" -gt 0 -a "$have" -lt "$shards"
old=$(stat -c %Y.%i "$work/b/shard-000000.tar")
check "go on" "${run[@]}"
check "the same bytes" diff -r "$work/a" "$work/b"
check "what was there was not written again" test "$old" = "$(stat -c %Y.%i "$work/b/shard-000000.tar")"

# A record or a tar that was damaged is made again.
rm -rf "$work/b"
check "part of a run" "${run[@]}" --part 0/2
truncate -s 1000 "$work/b/shard-000000.tar"
truncate -s 100 "$work/b/.feedline-run/shard-000002.record"
rm "$work/b/shard-000004.tar"
check "go on after damage" "${run[@]}"
check "the same bytes after damage" diff -r "$work/a" "$work/b"

# The same part twice at once: one of them does the work, the other says so or finds it done.
rm -rf "$work/b"
"${run[@]}" >"$work/out1" 2>&1 &
one=$!
"${run[@]}" >"$work/out2" 2>&1 &
two=$!
wait $one
first=$?
wait $two
second=$?
check "two runs at once: at least one ends well ($first, $second)" test $first = 0 -o $second = 0 -o -e "$work/b/.feedline-unfinished"
if [ -e "$work/b/.feedline-unfinished" ]; then
    check "and a third ends it" "${run[@]}"
fi
check "the same bytes after both" diff -r "$work/a" "$work/b"

# Interrupted from the keyboard.
rm -rf "$work/b"
"${run[@]}" --threads 1 >"$work/out" 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && [ ! -e "$work/b/shard-000000.tar" ]; do
    sleep 0.002
done
kill -TERM $pid 2>/dev/null
wait $pid 2>/dev/null
check "go on after a signal" bash -c "[ -e $work/b/index.fli ] || ${run[*]}"
check "the same bytes after a signal" diff -r "$work/a" "$work/b"

# A full disk, where a small file system can be had.
mkdir "$work/disk"
if mount -t tmpfs -o size=4m none "$work/disk" 2>/dev/null; then
    refuses 1 "the disk is full" shard "$work/src" "$work/disk/out" --shard-size 600K --quiet
    check "what does not fit is no dataset" test ! -e "$work/disk/out/index.fli"
    check "more room" mount -o remount,size=64m "$work/disk"
    check "and it goes on" "$FEEDLINE" shard "$work/src" "$work/disk/out" --shard-size 600K --quiet
    check "the same bytes on the other disk" diff -r "$work/a" "$work/disk/out"
    umount "$work/disk"
else
    echo "a small file system cannot be mounted here: the full disk is skipped"
fi
finish
