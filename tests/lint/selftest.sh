#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The lint finds what it is there for: a small tree with one violation of each kind.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0

mkdir -p "$work"/{tests/lint,lib/base,lib/jpeg,tools,docs,include/feedline}
cp "$here/lint.py" "$work/tests/lint/"
cat >"$work/tests/lint/includes.txt" <<'TABLE'
include/feedline/* :
lib/base/*  : .
lib/plan*   : lib/base/
lib/jpeg/*  : . lib/base/
tools/*     : .
external
<jpeglib.h> : lib/jpeg/*
TABLE
spdx='/* SPDX-License-Identifier: Apache-2.0 */'

# expect RULE WORDS : the rule fails and says WORDS.
expect()
{
    local out
    if out=$(python3 "$work/tests/lint/lint.py" "$1" 2>&1) || ! grep -qF -- "$2" <<<"$out"; then
        failures=$((failures + 1))
        printf 'FAILED: lint.py %s should have said "%s":\n%s\n' "$1" "$2" "$out"
    fi
}

# file PATH LINE ... : a file with an SPDX line and these.
file()
{
    local path=$1
    shift
    printf '%s\n' "$spdx" "$@" >"$work/$path"
}

file lib/base/err.h
file lib/jpeg/slice.h
file lib/plan.h
file lib/plan.c '#include "plan.h"' '#include "base/err.h"' '#include <stdio.h>'
python3 "$work/tests/lint/lint.py" includes >/dev/null || { echo "FAILED: a tree without violations"; failures=1; }

file lib/plan.c '#include "jpeg/slice.h"'
expect includes 'lib/plan.c:2: may not include "lib/jpeg/slice.h"'
file lib/plan.c '#include <jpeglib.h>'
expect includes '<jpeglib.h> may be included by lib/jpeg/* only'
file lib/plan.c '#include <curl/curl.h>'
expect includes 'is in neither table'
file lib/plan.c '#include "nowhere.h"'
expect includes 'is not found'
file lib/plan.c '#include <feedline/nowhere.h>'
expect includes 'there is no public header'
file tools/bench.c '#include "base/err.h"'
expect includes 'tools/bench.c:2: may not include "lib/base/err.h"'
file lib/unknown.c
expect includes 'lib/unknown.c: no line'

file lib/plan.c "int x; // TO""DO: later"
expect words 'lib/plan.c:2: the word'
printf 'int x;\n' >"$work/lib/plan.c"
expect words 'lib/plan.c:1: no SPDX line'
file lib/plan.c "int x; "
expect words "a space at the line's end"

{ echo "$spdx"; echo 'int f(void)'; echo '{'; yes '    g();' | head -101; echo '}'; } >"$work/lib/plan.c"
expect sizes 'lib/plan.c:3: function of 101 lines'
{ echo "$spdx"; yes '// a line' | head -800; } >"$work/lib/plan.c"
expect sizes 'lib/plan.c: 801 lines'

printf '| `lib/plan*` | plans | base |\n' >"$work/lib/README.md"
expect map 'lib/plan* may include ""'
expect map 'lib/jpeg/* is missing'

file include/feedline/a.h '#include <stdint.h>' 'FL_API int fl_a(void);'
touch "$work"/{README,CHANGELOG}.md "$work/docs/settings.md"
printf 'typedef struct FlConfig {\n int a, b[3];\n} FlConfig;\ntypedef struct FlImage {\n} FlImage;\n' >"$work/include/feedline/config.h"
printf 'typedef struct FlDatasetOptions {\n} FlDatasetOptions;\n' >"$work/include/feedline/dataset.h"
printf '[x](nowhere.md)\n' >"$work/README.md"
expect docs 'a.h:3: a public function without a comment'
expect docs '`b` of FlConfig is missing'
expect docs 'README.md:1: the link to nowhere.md'

printf 'int fl_good(void) { return 0; }\nint stray(void) { return fl_good(); }\n' >"$work/s.c"
cc -shared -fPIC "$work/s.c" -o "$work/libs.so" && cc -c "$work/s.c" -o "$work/s.o" || exit 1
out=$(python3 "$work/tests/lint/lint.py" symbols "$work/libs.so" "$work/s.o")
grep -q 'libs.so: exports stray' <<<"$out" && grep -q 's.o: external name stray' <<<"$out" ||
    { echo "FAILED: symbols: $out"; failures=$((failures + 1)); }
[ "$failures" = 0 ] && echo "every rule fails where it should"
exit $((failures > 0))
