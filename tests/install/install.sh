#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a folder, moves that folder, and builds an outside program against it: with pkg-config as C and C++, and
# with CMake. FL_TEST_BUILD is the build folder, FL_TEST_SOURCE the tree.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail()
{
    echo "$*"
    exit 1
}

cmake --install "$FL_TEST_BUILD" --prefix "$work/first" >"$work/log"
mv "$work/first" "$work/moved tree"
prefix="$work/moved tree"
libdir=$(dirname "$(find "$prefix" -name libfeedline.so)")
version=$("$prefix/bin/feedline" version | cut -d' ' -f2)
[ -n "$version" ] || fail "the installed command says no version"

# Every public header is there, and nothing private.
(cd "$FL_TEST_SOURCE/include" && find . -name '*.h' | sort) >"$work/want"
(cd "$prefix/include" && find . -type f | sort) >"$work/have"
diff "$work/want" "$work/have" || fail "the installed headers differ from include/"

export PKG_CONFIG_PATH="$libdir/pkgconfig"
[ "$(pkg-config --modversion feedline)" = "$version" ] || fail "feedline.pc says another version"
eval "flags=($(pkg-config --cflags --libs feedline))"
cc -std=c11 -Wall -Wextra -Werror "$here/outside.c" -o "$work/c" "${flags[@]}"
LD_LIBRARY_PATH="$libdir" "$work/c" || fail "the C program failed"
c++ -x c++ -std=c++17 -Wall -Wextra -Werror "$here/outside.c" -x none -o "$work/cpp" "${flags[@]}"
LD_LIBRARY_PATH="$libdir" "$work/cpp" || fail "the C++ program failed"

cmake -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DFL_EXPECT="${version%.*}" >>"$work/log"
cmake --build "$work/build" >>"$work/log" || { cat "$work/log"; fail "the CMake project does not build"; }
"$work/build/outside" || fail "the CMake program failed"
cmake -S "$here" -B "$work/other" -DCMAKE_PREFIX_PATH="$prefix" -DFL_EXPECT=99.0 >>"$work/log" 2>&1 &&
    fail "find_package accepted version 99"
echo "installed, moved, used three ways: $version"
