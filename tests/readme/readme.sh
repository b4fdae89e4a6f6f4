#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The C blocks of README.md and docs/ that are whole programs compile without a warning and link, as C11.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$FL_TEST_SOURCE" || exit 1

awk -v out="$work" '
    FNR == 1 { inside = 0 }
    /^```c$/ { inside = 1; name = out "/" ++n ".c"; next }
    /^```$/ { inside = 0 }
    inside { print > name }' README.md docs/*.md
count=0
for program in $(grep -l '^int main' "$work"/*.c); do
    cc -std=c11 -Wall -Wextra -Werror -I include "$program" -o "$program.out" -L "$FL_TEST_BUILD/lib" -lfeedline ||
        { echo "a C block of the documentation does not compile:"; head -5 "$program"; exit 1; }
    count=$((count + 1))
done
echo "$count programs compiled"
[ "$count" -ge 1 ]
