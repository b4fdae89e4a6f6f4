#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# feedline doctor: every line is there, with and without data and GPU, and it ends with a sentence.
. "$(dirname "$0")/lib.sh"

TMPDIR=$work "$FEEDLINE" doctor --seconds 0.2 >"$work/out" 2>"$work/err"
check "it runs" test $? = 0
check "nothing on stderr: $(head -1 "$work/err")" test ! -s "$work/err"
for line in '^build  *feedline [0-9]' '^processors  *[0-9]+ online, [0-9]+ by affinity, .*: [0-9]+ workers$' '^memory .* available, .* may be locked' \
    '^io_uring  *(allowed|refused: .+); the loader reads with (io_uring|pread)' '^storage  *not looked at' \
    '^JPEG  *[0-9]+ images/s on one core, [0-9]+ on [0-9]+ ' '^GPU ' \
    '^This machine can feed about [0-9,]+ images/s, limited by .+\.$'; do
    check "the page has $line" grep -Eq "$line" "$work/out"
done
check "what it made is gone" bash -c "! ls -d $work/feedline-* 2>/dev/null"

check "photos" "$FEEDLINE" synth "$work/photos" --count 40 --classes 2 --quiet
"$FEEDLINE" doctor "$work/photos" --seconds 0.2 >"$work/out" 2>"$work/err"
check "it runs on a dataset" test $? = 0
check "the drive is told" grep -Eq '^storage .*photos: [0-9.]+ [kMG]?B/s at random' "$work/out"
check "the dataset is left as it was" test ! -e "$work/photos/index.fli"
check "--data is the same" bash -c "'$FEEDLINE' doctor --data '$work/photos' --seconds 0.1 | grep -q '^JPEG .* of the dataset'"

# Any folder will do for the drive; the pictures are then made. So will records that are no pictures.
mkdir "$work/folder" "$work/folder/empty" "$work/raw"
head -c 1000000 /dev/urandom >"$work/folder/large.bin"
"$FEEDLINE" doctor "$work/folder" --seconds 0.1 >"$work/out" 2>"$work/err"
check "it runs on any folder" test $? = 0
check "which is no dataset" grep -Eq '^ +it is no dataset: .' "$work/out"
check "pictures are made instead" grep -Eq '^JPEG .* of made photos' "$work/out"
tar --format=ustar -C "$work/folder" -cf "$work/raw/0.tar" large.bin
"$FEEDLINE" doctor "$work/raw" --seconds 0.1 >"$work/out" 2>"$work/err"
check "records: $(head -1 "$work/err")" grep -Eq '^This machine can feed about [0-9,]+ samples/s of 1.0 MB each' "$work/out"
check "what it made is gone" bash -c "! ls -d $work/feedline-* 2>/dev/null"

refuses 1 "$work/nowhere" doctor --data "$work/nowhere" --seconds 0.1
refuses 2 "--device wants cuda or cuda:N" doctor --device gpu
finish
