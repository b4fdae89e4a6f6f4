#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The command as a whole: help, version, every sub-command's help, wrong names.
. "$(dirname "$0")/lib.sh"

help=$("$FEEDLINE" --help)
check "--help succeeds" test $? = 0
check "version" bash -c "'$FEEDLINE' version | grep -Eq '^feedline [0-9]+\.[0-9]+\.[0-9]+ \(.*jpeg.*\)$'"
check "--version is version" test "$("$FEEDLINE" --version)" = "$("$FEEDLINE" version)"
refuses 2 "there is no command \"shart\"" shart

commands=$(printf '%s\n' "$help" | awk '/^  [a-z]/ { print $1 }')
check "several commands in the help" test "$(printf '%s\n' "$commands" | wc -l)" -ge 2
for command in $commands; do
    [ "$command" = version ] && continue
    check "$command --help" bash -c "'$FEEDLINE' $command --help | grep -q '^usage: feedline $command'"
    refuses 2 "there is no option --no-such-option" "$command" --no-such-option
    refuses 2 "" "$command" a b c d e f g h
done

"$FEEDLINE" >"$work/out" 2>"$work/err"
check "no command: usage, exit code 2" test $? = 2
check "no command: usage on stderr" grep -q '^usage: feedline COMMAND' "$work/err"
finish
