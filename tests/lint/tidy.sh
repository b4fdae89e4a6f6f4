#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy with .clang-tidy's checks over library, decoders and tools.
# usage: tidy.sh BUILD_DIR (which holds compile_commands.json)
set -u
build=${1:?usage: tidy.sh BUILD_DIR}
cd "$(dirname "$0")/../.." || exit 1
command -v clang-tidy >/dev/null || { echo "skipped: no clang-tidy here"; exit 77; }
[ -f "$build/compile_commands.json" ] || { echo "no $build/compile_commands.json"; exit 1; }

# The files of this build: what an option leaves out has no compile command.
mapfile -t files < <(grep -o '"file": "[^"]*"' "$build/compile_commands.json" | cut -d'"' -f4 | sort -u |
    grep -E "^$PWD/(lib|decoders|tools)/.*\.c$" | grep -v '/lib/base/err\.c$')
[ "${#files[@]}" -gt 0 ] || { echo "no files found"; exit 1; }
# tidy.h comes before each file's own feature macros, so all of them are set from the start.
extra=(--extra-arg-before=-D_GNU_SOURCE= --extra-arg-before=-Wno-macro-redefined
    "--extra-arg-before=-I$PWD/lib" "--extra-arg-before=-I$PWD/include"
    --extra-arg-before=-include "--extra-arg-before=$PWD/tests/lint/tidy.h")
if ! printf '%s\0' "${files[@]}" |
    xargs -0 -n 4 -P "$(nproc)" clang-tidy --quiet -p "$build" "${extra[@]}" 2>/dev/null; then
    echo "tidy: see above"
    exit 1
fi
echo "tidy: ${#files[@]} files, nothing found"
