#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ./gmacw refuses what its commands do not take, with status 2 and the reason, before it does anything.
set -uo pipefail
failures=0
before=$(find . | sort)

refuses() { # WORDS ARGUMENTS...
  local words=$1 said status
  shift
  said=$(./gmacw "$@" 2>&1)
  status=$?
  if [[ $status == 2 && $said == *"$words"* ]]; then
    echo "ok: $*"
  else
    echo "FAILED: gmacw $*: status $status, said: $said"
    failures=$((failures + 1))
  fi
}

refuses "no command 'buidl'" buidl
refuses "usage:" # no command
refuses "no command '--foo'" --foo
for command in setup format compile-commands help --help; do
  refuses "takes no arguments, and got '--foo'" "$command" --foo
done
for command in install bundle; do
  refuses "takes one argument" "$command"
  refuses "takes one argument" "$command" one two
  refuses "no option '--foo'" "$command" --foo
  refuses "no option '-p'" "$command" -p
  refuses "is empty" "$command" ""
done
for command in build test lint; do
  refuses "an argument is empty" "$command" ""
done
for value in other --keep_going; do
  refuses "--config takes one of asan, ubsan, tsan, debug, mpi-asan, mpi-tsan, and got '$value'" test --config "$value" //tests/...
done
refuses "--config takes one of" test --config

[[ $(find . | sort) == "$before" ]] || {
  echo "FAILED: files have appeared"
  failures=$((failures + 1))
}
[[ $failures == 0 ]]
