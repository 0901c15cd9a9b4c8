#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run [PART...] [-- ARGUMENTS...]: runs the bundle. PART: tests, parboil, managed, bench, datatypes; all but datatypes
# by default. The arguments are for parboil, or for managed or datatypes where that part is asked for alone.
#   GMAC_TEST_FILTER  a pattern for the names of test programs, e.g. 'accel/*'
#   GMAC_LOGS         where each program's output goes (./logs)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
logs=${GMAC_LOGS:-$PWD/logs}
mkdir -p "$logs"
export TEST_TMPDIR=${TEST_TMPDIR:-$(mktemp -d)}

passed=0
failed=0
skipped=0
status=0

count() { grep -cE "$1" "$2" || true; }

# A test program that dies, hangs, or fails without saying which test it was counts as one failure.
run_test() { # PROGRAM
  local log=$logs/${1//\//_}.log code=0 ok bad left_out
  timeout --kill-after=10 "${GMAC_TEST_TIMEOUT:-900}" "./$1" >"$log" 2>&1 || code=$?
  ok=$(count '^\[       OK \] ' "$log")
  bad=$(count '^\[  FAILED  \] .* \([0-9]+ ms\)$' "$log")
  left_out=$(count '^\[  SKIPPED \] .* \([0-9]+ ms\)$' "$log")
  passed=$((passed + ok))
  skipped=$((skipped + left_out))
  failed=$((failed + bad))
  if ((code != 0)); then
    grep -E '^\[  FAILED  \] .* \([0-9]+ ms\)$' "$log" | sed "s|^\[  FAILED  \] |failed: $1: |"
    if ((bad == 0)); then
      failed=$((failed + 1))
      local last
      last=$(grep -E '^\[ RUN      \] ' "$log" | tail -1 | cut -c14-)
      echo "failed: $1: exit status $code${last:+ in $last}"
    fi
    tail -n 25 "$log" | sed 's/^/    /'
  fi
  printf '%-48s %4d passed %4d failed %4d skipped\n' "$1" "$ok" "$bad" "$left_out"
}

run_tests() {
  echo "== tests"
  local program
  while read -r program; do
    # shellcheck disable=SC2254  # the filter is a pattern
    case ${program#tests/} in
      ${GMAC_TEST_FILTER:-*}) run_test "$program" ;;
    esac
  done <tests.list
  grep -h '^\[  SKIPPED \] .* ms)$' "$logs"/tests_*.log 2>/dev/null | sed 's/^\[  SKIPPED \] /skipped: /' | sort | uniq -c |
    sed 's/^ *1 //'
  ((failed == 0)) || status=1
}

run_parboil() {
  echo "== parboil"
  if [[ -x parboil/parboil ]]; then
    ./parboil/parboil "$@" 2>&1 | tee "$logs/parboil.log" || status=1
  else
    echo "the bundle has no parboil/parboil"
    status=1
  fi
}

# Managed-memory programs, with real managed memory and with ours.
run_managed() {
  echo "== managed"
  if [[ -x managed/compare/compare ]]; then
    # Standard error has the progress.
    ./managed/compare/compare --json "$logs/managed.json" "$@" 2>"$logs/managed_progress.log" |
      tee "$logs/managed.log" || status=1
    grep -E '^compare: ' "$logs/managed_progress.log" || true
  else
    echo "the bundle has no managed/compare/compare"
    status=1
  fi
}

run_bench() {
  echo "== bench"
  local program
  while read -r program; do
    echo "-- $program"
    LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "./$program" 2>&1 |
      tee "$logs/${program//\//_}.log" || status=1
  done <bench.list
}

run_datatypes() {
  echo "== datatypes"
  if [[ -x datatypes/datatypes ]]; then
    # Standard error has the progress.
    ./datatypes/datatypes --json "$logs/datatypes.json" --plots "$logs/datatypes" "$@" \
      2>"$logs/datatypes_progress.log" | tee "$logs/datatypes.log" || status=1
    grep -E '^datatypes: ' "$logs/datatypes_progress.log" || true
  else
    echo "the bundle has no datatypes/datatypes"
    status=1
  fi
}

parts=()
while [[ $# -gt 0 ]]; do
  case $1 in
    tests | parboil | managed | bench | datatypes) parts+=("$1") ;;
    --)
      shift
      break
      ;;
    *)
      echo "usage: run [tests] [parboil] [managed] [bench] [datatypes] [-- ARGUMENTS of parboil, or of managed or datatypes alone...]" >&2
      exit 2
      ;;
  esac
  shift
done
[[ ${#parts[@]} -gt 0 ]] || parts=(tests parboil managed bench)

echo "gmac $(cat revision) on $(uname -srm), $(nproc) cores, $(nvidia-smi -L 2>/dev/null | head -1 || true)"
for part in "${parts[@]}"; do
  case $part in
    tests) run_tests ;;
    parboil) run_parboil "$@" ;;
    managed) if [[ ${#parts[@]} == 1 ]]; then run_managed "$@"; else run_managed; fi ;;
    bench) run_bench ;;
    datatypes) if [[ ${#parts[@]} == 1 ]]; then run_datatypes "$@"; else run_datatypes; fi ;;
  esac
done
if [[ " ${parts[*]} " == *" tests "* ]]; then
  echo "$passed passed, $failed failed$( ((skipped == 0)) || echo ", $skipped skipped")"
fi
exit "$status"
