#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Strange JPEGs: what `verify --decode` finds good the loader decodes, however the files are stored.
. "$(dirname "$0")/lib.sh"
[ -d "${FL_TEST_SHARED:-}/odd-jpegs" ] || { echo "skipped: no odd JPEGs here"; exit 77; }
cd "$work" || exit 1

mkdir -p plain/class points/class
for odd in "$FL_TEST_SHARED"/odd-jpegs/*.jp*g; do cp "$odd" plain/class/; cp "$odd" points/class/; done
"$FEEDLINE" index plain --quiet
"$FEEDLINE" index points --entry-points --quiet
"$FEEDLINE" shard plain sliced --quiet 2>/dev/null
"$FEEDLINE" shard plain whole --no-slice --quiet 2>/dev/null
for set in plain points sliced whole; do
    "$FEEDLINE" verify $set --decode --quarantine $set.bad >out 2>err
    check "$set: the bad ones are found" test -s $set.bad
    check "$set: there are good ones" test "$(wc -l <$set.bad)" -lt 40
    for how in "--evaluation" "--size 64" "--size 64 --exact"; do
        # shellcheck disable=SC2086
        "$FEEDLINE" bench $set --exclude $set.bad $how --batch-size 3 --epochs 3 >out 2>err
        code=$?
        [ $code = 0 ] || cat err
        check "$set $how: the others are good" test $code = 0
    done
done
finish
