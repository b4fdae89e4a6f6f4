#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Doxygen has nothing to say against the public headers: types without a comment, names in a comment that
# do not exist. Members and parameters whose name says it all need no words (lint.py docs looks at functions).
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v doxygen >/dev/null || { echo "skipped: no doxygen here"; exit 77; }
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

doxygen - >"$out/log" 2>&1 <<CONFIG
PROJECT_NAME = feedline
OUTPUT_DIRECTORY = $out
INPUT = include/feedline
OPTIMIZE_OUTPUT_FOR_C = YES
EXTRACT_ALL = NO
WARN_NO_PARAMDOC = NO
QUIET = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = FL_API= __cplusplus
CONFIG
found=$(grep warning "$out/log" | grep -vE 'Member .* \((variable|enumvalue)\)|following parameters? of' | sed "s|$PWD/||")
if [ -n "$found" ]; then
    printf '%s\n' "$found"
    exit 1
fi
echo "docs: no warning"
