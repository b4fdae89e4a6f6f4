#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every C and CUDA file is as .clang-format wants it; the public headers are tables laid out by hand.
# Versions of clang-format differ in small things, so the one that counts is 14: CLANG_FORMAT, the one in
# build/venv, or the system's if it is 14.
set -u
cd "$(dirname "$0")/../.." || exit 1
format=
for candidate in "${CLANG_FORMAT:-}" build/venv/bin/clang-format clang-format-14 clang-format; do
    [ -n "$candidate" ] && "$candidate" --version 2>/dev/null | grep -q 'version 14\.' && format=$candidate && break
done
[ -n "$format" ] || { echo "skipped: no clang-format 14 here (scripts/test.sh installs it)"; exit 77; }

mapfile -t files < <(find $(ls -d lib decoders tools bench examples tests python 2>/dev/null) \
    \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -not -path '*/build/*' | sort)
[ "${#files[@]}" -gt 0 ] || { echo "no files found"; exit 1; }
bad=0
for file in "${files[@]}"; do
    "$format" --dry-run --Werror "$file" 2>/dev/null || { echo "$file: run clang-format -i on it"; bad=1; }
done
echo "format: ${#files[@]} files looked at"
exit $bad
