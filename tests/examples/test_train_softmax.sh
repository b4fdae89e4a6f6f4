#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The example trains on a few photos made here: the loss falls from epoch to epoch, and wrong input is named.
. "$(dirname "$0")/../cli/lib.sh"
trainer="$FL_TEST_BUILD/examples/train_softmax"

check "photos" "$FEEDLINE" synth "$work/photos" --count 96 --classes 4 --quiet
check "shards" "$FEEDLINE" shard "$work/photos" "$work/shards"
check "training" "$trainer" "$work/shards" 4
"$trainer" "$work/shards" 4 >"$work/losses"
check "four epochs" test "$(grep -c '^epoch' "$work/losses")" = 4
check "the loss falls" awk '/^epoch/ { sub(",", "", $4); if (NR > 1 && $4 >= last) bad = 1; last = $4; first = NR == 1 ? $4 : first }
    END { exit bad || last > 0.9 * first }' "$work/losses"
check "every sample each epoch" bash -c "! grep '^epoch' $work/losses | grep -v ' 96 samples'"
check "the same losses again" bash -c "'$trainer' '$work/shards' 4 | diff - '$work/losses'"
check "class folders too" "$trainer" "$work/photos" 1

"$trainer" "$work/nowhere" >"$work/out" 2>"$work/err"
check "no such folder: exit code 1" test $? = 1
check "no such folder: named" grep -q "$work/nowhere" "$work/err"
finish
