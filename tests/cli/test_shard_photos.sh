#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# feedline shard on real photos and on every odd JPEG there is: each sample arrives, verify finds the pixels of the originals.
. "$(dirname "$0")/lib.sh"
[ -d "${FL_TEST_SHARED:-}/photos" ] || { echo "skipped: no photos here"; exit 77; }

i=0
for photo in "$FL_TEST_SHARED"/photos/*; do
    i=$((i + 1))
    [ $((i % 6)) = 0 ] || continue
    class="$work/src/class$((i % 9))"
    mkdir -p "$class"
    cp "$photo" "$class/"
done
photos=$(find "$work/src" -type f | wc -l)
check "shard $photos photos" "$FEEDLINE" shard "$work/src" "$work/a" --shard-size 2M --quiet
check "all of them" grep -q "^  \"samples\": $photos,$" "$work/a/dataset.json"
check "all of them are sliced" grep -q "\"sliced\": $photos, \"kept\": 0, \"damaged\": 0" "$work/a/dataset.json"
check "the originals' pixels" "$FEEDLINE" verify "$work/a" --against "$work/src"
before=$(find "$work/src" -type f -name '*.JPEG' -printf '%s\n' | awk '{ n += $1 } END { print n }')
after=$(cat "$work/a"/*.tar | wc -c)
check "hardly any larger: $before, $after with tar headers" test $((after - photos * 2000)) -lt $((before / 100 * 103))

if [ -d "$FL_TEST_SHARED/odd-jpegs" ]; then
    mkdir -p "$work/odd"
    cp -r "$FL_TEST_SHARED/odd-jpegs" "$work/odd/class"
    find "$work/odd/class" -type f ! -iname '*.jpg' ! -iname '*.jpeg' -delete
    odd=$(find "$work/odd/class" -type f | wc -l)
    check "shard $odd odd files" "$FEEDLINE" shard "$work/odd" "$work/b" --no-shuffle --quiet
    check "all of them" grep -q "^  \"samples\": $odd,$" "$work/b/dataset.json"
    check "nothing lost" test "$(tar -tf "$work/b/shard-000000.tar" | grep -c '\.jpe\?g$')" = "$odd"
    check "again, the same bytes" bash -c \
        "'$FEEDLINE' shard '$work/odd' '$work/c' --no-shuffle --quiet --threads 1 && diff -r '$work/b' '$work/c'"
    check "shrinking them" "$FEEDLINE" shard "$work/odd" "$work/d" --max-side 16 --quiet
    check "all of them" grep -q "^  \"samples\": $odd,$" "$work/d/dataset.json"
fi
finish
