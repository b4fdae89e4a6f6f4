#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# feedline synth: as many photos as asked for, the same bytes whatever the threads, no mixing with other files.
. "$(dirname "$0")/lib.sh"

check "ten photos" "$FEEDLINE" synth "$work/a" --count 10 --classes 3 --threads 1
check "the same with four threads" "$FEEDLINE" synth "$work/b" --count=10 --classes=3 --threads=4
check "same bytes" diff -r "$work/a" "$work/b"
check "ten files" test "$(find "$work/a" -name 'photo*.jpg' | wc -l)" = 10
check "three classes" test "$(ls "$work/a" | tr '\n' ' ')" = "class000 class001 class002 "
check "another seed" "$FEEDLINE" synth "$work/c" --count 10 --classes 3 --seed 2
check "other bytes" bash -c "! cmp -s $work/a/class000/photo000000.jpg $work/c/class000/photo000000.jpg"
bytes=$(find "$work/a" "$work/c" -name '*.jpg' -printf '%s\n' | awk '{ n += $1 } END { print int(n / NR) }')
check "about 110 KB each, not $bytes" test "$bytes" -gt 80000 -a "$bytes" -lt 140000

refuses 2 "an argument is missing" synth
refuses 2 "one argument too many" synth "$work/d" "$work/e"
refuses 2 "--count wants a whole number from 1" synth "$work/d" --count 0
refuses 2 "not \"many\"" synth "$work/d" --count many
refuses 2 "--classes needs a value" synth "$work/d" --classes
refuses 2 "there is no option --colour" synth "$work/d" --colour red
refuses 2 "--quiet takes no value" synth "$work/d" --quiet=yes
refuses 1 "File exists" synth "$work/a" --count 10
refuses 1 "No such file" synth "$work/no/such/folder"
check "nothing written by refused runs" test ! -e "$work/d"
finish
