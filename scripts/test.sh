#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds feedline in every way that counts, and runs all tests.
# usage: scripts/test.sh [quick]     quick: the release build and its tests alone
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

mode=${1:-all}
case "$mode" in
all | quick) ;;
*)
    echo "usage: scripts/test.sh [quick]" >&2
    exit 2
    ;;
esac

build=${FL_BUILD_DIR:-build}
jobs=$(nproc)
summary=()
current=start
begun=$SECONDS
closing=

trap '[ $? -eq 0 ] || printf "\nFAILED in step: %s\n" "$current" >&2' EXIT

begin()
{
    current=$*
    step "$* (after $((SECONDS - begun)) s)"
}

# configure_and_build FOLDER CMAKE_OPTION ...
configure_and_build()
{
    local folder=$1
    shift
    cmake -S . -B "$folder" -G Ninja -DFL_WERROR=ON "$@"
    cmake --build "$folder" -j "$jobs"
}

# run_tests NAME FOLDER CTEST_OPTION ... : keeps ctest's closing line.
run_tests()
{
    local name=$1 folder=$2 log
    shift 2
    log="$folder/tests.log"
    ctest --test-dir "$folder" -j "$jobs" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log"
    closing=$(grep -E 'tests passed, [0-9]+ tests failed out of' "$log")
    summary+=("$(printf '%-28s %s' "$name" "$closing")")
}

begin "packages"
install_packages "${build_packages[@]}" "${test_packages[@]}"
install_python "$build/venv" "${test_python[@]}"

begin "release: build"
configure_and_build "$build" -DCMAKE_BUILD_TYPE=Release -DFL_SANITIZE=
begin "release: tests"
run_tests "release" "$build"
main_closing=$closing

if [ "$mode" = all ]; then
    begin "address and undefined: build"
    configure_and_build "$build/asan" -DCMAKE_BUILD_TYPE=Debug -DFL_SANITIZE=address,undefined -DFL_CUDA=off
    begin "address and undefined: tests"
    ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        run_tests "address, undefined" "$build/asan" -LE 'slow|lint|install|gpu|timing'

    begin "thread: build"
    configure_and_build "$build/tsan" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFL_SANITIZE=thread -DFL_CUDA=off
    begin "thread: tests"
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
        run_tests "thread" "$build/tsan" -LE 'slow|lint|install|gpu|timing'

    begin "no io_uring, no CUDA: build"
    configure_and_build "$build/minimal" -DCMAKE_BUILD_TYPE=Release -DFL_SANITIZE= -DFL_URING=off -DFL_CUDA=off
    begin "no io_uring, no CUDA: tests"
    run_tests "no io_uring, no CUDA" "$build/minimal" -LE 'slow|lint|install|gpu'
fi

step "all steps passed in $((SECONDS - begun)) s"
printf '%s\n' "${summary[@]}"
printf '\n%s\n' "$main_closing"
