#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# feedline verify: a good dataset, damage to index, archive and picture, and what it prints.
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 1

"$FEEDLINE" synth photos --count 40 --classes 2 >/dev/null 2>&1 || exit 1
cp -r photos origin
"$FEEDLINE" index photos --quiet
# finds WORDS ARGUMENT ... : verify ends with 1 and prints a line with WORDS.
finds()
{
    local words=$1
    shift
    checks=$((checks + 1))
    "$FEEDLINE" verify "$@" >out 2>err
    [ $? = 1 ] && grep -qF -- "$words" out && return 0
    failures=$((failures + 1))
    echo "FAILED: verify $*: no line with \"$words\":"
    head -5 out err
}

"$FEEDLINE" verify photos --decode --against origin >out 2>err
check "a good dataset" test $? = 0
check "its summary" grep -qE '^photos: 40 samples, [0-9.]+ MB read and decoded, nothing bad; 40 fields have no checksum$' out
"$FEEDLINE" verify photos --decode --json >out 2>err
check "for machines" grep -q '"bad": 0' out

first=$(ls photos/class000 | head -1)
bytes=$(stat -c %s "photos/class000/$first")
time=$(stat -c %y "photos/class000/$first")
# Cut the picture's content and fill it up: same size, same beginning, same time.
head -c 20000 "origin/class000/$first" >"photos/class000/$first"
truncate -s "$bytes" "photos/class000/$first"
touch -d "$time" "photos/class000/$first"
"$FEEDLINE" verify photos >out 2>err
check "without a checksum the bytes alone do not tell" test $? = 0
finds "sample 0 (class000/${first%.jpg}), field jpg, bytes 0 to $bytes of photos/class000/$first: " photos --decode
finds "field jpg has other pixels than its origin" photos --against origin
finds "1 bad samples, 0 other findings" photos --decode --threads 4
"$FEEDLINE" verify photos --decode --json >out 2>err
check "one finding for machines" test "$(grep -c '"text"' out)" = 1

# What is bad goes to a list, and a loader leaves it out.
"$FEEDLINE" verify photos --decode --quarantine bad.jsonl >out 2>err
check "a list is written" grep -qF '"key": "class000/'"${first%.jpg}"'", "column": "jpg", "container": "class000/'"$first"'", "offset": 0, "length": '"$bytes" bad.jsonl
check "of one line" test "$(wc -l <bad.jsonl)" = 1
check "and said" grep -qxF 'bad.jsonl: 1 to leave out, as exclude_file of a loader' out
refuses 1 "class000/${first%.jpg}" bench photos --epochs 1 --evaluation --batch-size 8
check "left out" bash -c "'$FEEDLINE' bench photos --epochs 1 --evaluation --batch-size 8 --exclude bad.jsonl | grep -q ', 39 samples;'"
"$FEEDLINE" bench photos --epochs 1 --batch-size 8 --bad skip --crop none --bad-report report.jsonl >out 2>err
check "bench says how many" grep -qE '^bad samples +1$' out
check "and reports them" grep -qF '"action": "skipped"' report.jsonl
check "a report is a list too" bash -c "'$FEEDLINE' bench photos --epochs 1 --evaluation --batch-size 8 --exclude report.jsonl | grep -q ', 39 samples;'"
"$FEEDLINE" synth others --count 40 --classes 2 --seed 9 >/dev/null 2>&1 || exit 1
refuses 1 "bad.jsonl, line 1: the list is of dataset photos (" bench others --epochs 1 --exclude bad.jsonl
refuses 1 "cannot open the exclusion list missing" bench photos --exclude missing
refuses 1 "cannot open the report of bad samples nowhere/x" bench photos --bad-report nowhere/x
refuses 1 "cannot create nowhere/list" verify photos --quarantine nowhere/list

rm "photos/class001/$(ls photos/class001 | tail -1)"
refuses 1 "photos/class001 has other files in it" verify photos
cp origin/class001/* photos/class001/
touch photos/class001/*
"$FEEDLINE" verify photos >out 2>err
check "a copy is as good" test $? = 0

# Damage to one block of the index: found without touching the pictures.
cp photos/index.fli good.fli
size=$(stat -c %s photos/index.fli)
printf 'X' | dd of=photos/index.fli bs=1 seek=$((size - 20)) conv=notrunc 2>/dev/null
refuses 1 "photos/index.fli is damaged: checksum of block 0" verify photos
cp good.fli photos/index.fli
head -c $((size - 1)) good.fli >photos/index.fli
refuses 1 "photos/index.fli is cut or damaged" verify photos
printf 'X' | dd of=photos/index.fli bs=1 seek=30 conv=notrunc 2>/dev/null
refuses 1 "photos/index.fli" verify photos
rm photos/index.fli
refuses 1 "photos has no index" verify photos
check "verify makes no index" test ! -e photos/index.fli
refuses 2 "an argument is missing" verify
refuses 1 "cannot open dataset missing" verify missing
finish
