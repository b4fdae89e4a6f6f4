#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C11 and as C++17, with no warning.
# usage: headers.sh CC CXX
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
bad=0
checked=0
flags=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$root/include")

for header in "$root"/include/feedline/*.h; do
    name=feedline/$(basename "$header")
    # Twice: the include guard must work.
    source=$(printf '#include <%s>\n#include <%s>\n' "$name" "$name")
    "$1" -std=c11 -x c "${flags[@]}" - <<<"$source" || { echo "$name: not C11 on its own"; bad=1; }
    if [ -n "${2:-}" ]; then
        "$2" -std=c++17 -x c++ "${flags[@]}" - <<<"$source" || { echo "$name: not C++17 on its own"; bad=1; }
    fi
    checked=$((checked + 1))
done
echo "headers: $checked checked"
[ "$checked" -gt 0 ] && exit $bad
exit 1
