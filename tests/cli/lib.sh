# SPDX-License-Identifier: Apache-2.0
# For the tests of the command: a folder that goes away, and a few words to check with.
# Each check counts; finish prints the sum and is the exit code.
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
[ -x "${FEEDLINE:-}" ] || { echo "FEEDLINE must be the path of the command"; exit 1; }
checks=0
failures=0

# check TEXT COMMAND ... : the command must succeed.
check()
{
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" >"$work/check.out" 2>&1 && return 0
    failures=$((failures + 1))
    echo "FAILED: $what"
    head -20 "$work/check.out"
}

# refuses CODE WORDS ARGUMENT ... : the command ends with CODE (1 or 2), says exactly one line on stderr, which begins with
# its name and holds WORDS, and prints nothing on stdout.
refuses()
{
    local code=$1 words=$2 got lines
    shift 2
    checks=$((checks + 1))
    "$FEEDLINE" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    # A build or a kernel without io_uring says so first.
    sed -i '/^feedline [a-z]*: warning: falling back to pread/d' "$work/err"
    lines=$(wc -l <"$work/err")
    if [ "$got" = "$code" ] && [ "$lines" = 1 ] && [ ! -s "$work/out" ] && grep -q '^feedline' "$work/err" &&
        grep -qF -- "$words" "$work/err"; then
        return 0
    fi
    failures=$((failures + 1))
    echo "FAILED: feedline $*"
    echo "  exit code $got, $code wanted; one line with \"$words\" wanted, on stderr alone:"
    head -5 "$work/err" "$work/out"
}

finish()
{
    echo "$checks checks, $failures failed"
    [ "$failures" = 0 ] && [ "$checks" -gt 0 ]
    exit $?
}
