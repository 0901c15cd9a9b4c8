#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run [PART...] [-- ARGUMENTS...]: runs the bundle. PART: tests, mpi, parboil, managed, python, bench, datatypes; all but mpi,
# python and datatypes by default. python: programs of Python's GPU libraries, as far as the machine has those. The arguments are for parboil, or for managed or datatypes where that part is asked for alone.
# mpi: programs of MPI, by the machine's own Open MPI 4, on `cuda` and on `host`; then what measures MPI.
#   GMAC_TEST_FILTER  a pattern for the names of test programs, e.g. 'accel/*'; of mpi, 'mpi/windows' or 'bench/*'
#   GMAC_TEST_DRIVER  of mpi: fake, where the machine has no GPU
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

# mpi_run NAME PROGRAM RANKS EXPECTED [VARIABLE=VALUE...] [ARGUMENTS...]: passes if all ranks end well and say what is
# expected.
mpi_run() {
  local name=$1 program=$2 ranks=$3 expected=$4 variables=() code=0 log label missing
  shift 4
  # shellcheck disable=SC2254  # the filter is a pattern
  case $name in
    ${GMAC_TEST_FILTER:-*}) ;;
    *) return ;;
  esac
  while [[ ${1-} =~ ^[A-Z_]+= ]]; do
    variables+=("$1")
    shift
  done
  label="$name, $ranks rank$( ((ranks == 1)) || echo s)${*:+, $*}${variables[*]:+, ${variables[*]}}"
  log=$logs/$(tr -cs 'A-Za-z0-9.=\n' _ <<<"$label").log
  missing=$(LD_LIBRARY_PATH=$mpi_libraries ldd "$program" | awk '/not found/ { print $1 }' | sort -u | paste -sd ' ')
  if [[ -n $missing ]]; then
    skipped=$((skipped + 1))
    echo "skipped: $label: this machine has no $missing"
    return
  fi
  env "${variables[@]}" timeout --kill-after=10 "${GMAC_TEST_TIMEOUT:-300}" \
    mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$ranks" \
    -x "LD_PRELOAD=$PWD/gmac/libgmac.so:$PWD/mpi/libgmac_mpi.so" -x "LD_LIBRARY_PATH=$mpi_libraries" \
    "./$program" "$@" >"$log" 2>&1 || code=$?
  if ((code == 0)) && grep -qF -- "$expected" "$log"; then
    passed=$((passed + 1))
    echo "passed: $label"
    # A part that this machine cannot run.
    if grep -q '^skipped: ' "$log"; then
      skipped=$((skipped + $(count '^skipped: ' "$log")))
      sed -n "s|^skipped: |skipped: $label: |p" "$log"
    fi
    [[ $name != bench/* ]] || sed 's/^/    /' "$log"
  else
    failed=$((failed + 1))
    status=1
    echo "failed: $label: exit status $code"
    tail -n 25 "$log" | sed 's/^/    /'
  fi
}

skip_run() { # NAME VARIABLES REASON
  # shellcheck disable=SC2254  # the filter is a pattern
  case $1 in
    ${GMAC_TEST_FILTER:-*})
      skipped=$((skipped + 1))
      echo "skipped: $1, $2: $3"
      ;;
  esac
}

# The words in which the MPI here, without gmac, refuses a window over plain memory; nothing where it has windows.
windows_refusal() {
  LD_LIBRARY_PATH=$mpi_libraries timeout --kill-after=10 60 mpirun --allow-run-as-root --oversubscribe --bind-to none \
    -n 2 -x LD_LIBRARY_PATH ./tests/mpi/plain_window_openmpi 2>/dev/null | sed -n 's/^refused: //p'
}

# As tests/mpi/mpi_test.cc runs them.
mpi_tests() { # ACCELERATOR
  local accelerator=GMAC_ACCEL=$1 way ranks memory how
  local tickets=(GMAC_MPI_TICKETS=1 GMAC_TEST_TICKET_BYTES=512)
  test_program() { # NAME RANKS EXPECTED ...
    mpi_run "mpi/$1" "tests/mpi/$1_openmpi" "$2" "$3" "$accelerator" GMAC_BLOCK_SIZE=4096 "${@:4}"
  }
  for way in "GMAC_MPI_TICKETS=0" "${tickets[*]}"; do
    # shellcheck disable=SC2086  # words
    {
      test_program exchange 2 "exchanged" $way
      test_program requests 2 "requests are right" $way
      test_program intercommunicators 3 "groups agree" $way
      test_program threads 2 "threads are right" $way
      test_program profiled 2 "every call once" $way
      test_program plain_receives 2 "plain receives are right" $way
      test_program wide_types 2 "wide" $way
      # (The Fortran program knows no driver but the machine's.)
      [[ $1/$mpi_driver == cuda/fake ]] || test_program fortran 2 "Fortran is right" $way
    }
  done
  test_program tickets 2 "tickets are right" GMAC_MPI_TICKETS=1
  test_program rare_calls 2 "rare calls are right" GMAC_MPI_TICKETS=1
  test_program collective_types 2 "collective types are right" GMAC_MPI_TICKETS=1 known
  test_program lent_on_device 2 "objects on devices are right" GMAC_MPI_TICKETS=1
  for how in readable guarded unreadable; do
    test_program transfers 2 "transfers are right" GMAC_MPI_TICKETS=1 "$how"
  done
  if [[ -n ${GMAC_TEST_NO_WINDOWS-} ]]; then
    skip_run mpi/windows "$accelerator" "MPI refuses a window over plain memory: $GMAC_TEST_NO_WINDOWS"
  else
    test_program windows 3 "windows are right"
  fi
  for ranks in 2 3; do
    for memory in shared mixed plain; do
      test_program random_program "$ranks" " programs agree" "${tickets[@]}" --programs $((ranks == 2 ? 200 : 80)) \
        --seed $((3000 * ranks)) --memory "$memory"
    done
    test_program random_program "$ranks" " programs agree" --programs $((ranks == 2 ? 400 : 120)) --seed $((1000 * ranks))
  done
  [[ -n $mpi_driver ]] || return
  test_program device_memory 2 "device memory is right" GMAC_MPI_ORDER=default
  test_program device_memory 2 "device memory is right" GMAC_MPI_ORDER=streams ordered
  if [[ $1 == cuda ]]; then
    test_program device_copies 2 "copies are right" GMAC_MPI_TICKETS=1
    test_program lent_on_device 2 "objects on devices are right" GMAC_MPI_TICKETS=1 GMAC_MANAGED=1 managed
  fi
  for memory in device pinned; do
    test_program random_program 2 " programs agree" --programs 120 --seed 5000 --memory "$memory"
  done
  [[ $1 != cuda ]] || test_program which_device 2 "rank 1: "
}

mpi_benchmarks() { # ACCELERATOR
  local program ranks
  for program in call_cost receive_cost device_rate message_rate open_receives transpose_rate typed_messages; do
    [[ $program != device_rate || $1/$mpi_driver == cuda/real ]] || continue
    ranks=2
    [[ $program != call_cost ]] || ranks=1
    mpi_run "bench/$program" "mpi/${program}_openmpi" "$ranks" "" "GMAC_ACCEL=$1" GMAC_MPI_TICKETS=1
  done
}

run_mpi() {
  echo "== mpi"
  local accelerators=(host) accelerator program
  if ! command -v mpirun >/dev/null; then
    echo "this machine has no mpirun; the bundle's programs of MPI were built with Open MPI 4.1"
    status=1
    return
  fi
  if ! mpirun --version 2>&1 | grep -q 'Open MPI\|OpenRTE'; then
    echo "mpirun here is not Open MPI's, which the bundle's programs of MPI were built with: $(mpirun --version 2>&1 | head -1)"
    status=1
    return
  fi
  mpi_libraries=$PWD/gmac:$PWD/tests/mpi:$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  mpi_driver=${GMAC_TEST_DRIVER:-}
  if [[ -z $mpi_driver ]] && nvidia-smi -L >/dev/null 2>&1; then
    mpi_driver=real
  fi
  if [[ -n $mpi_driver ]]; then
    export GMAC_TEST_DRIVER=$mpi_driver
    [[ $mpi_driver == real ]] || export GMAC_TEST_MIRROR=file
    accelerators=(cuda host)
  else
    echo "this machine has no GPU (nvidia-smi -L finds none): on \`host\` alone; GMAC_TEST_DRIVER=fake has a driver without a device"
  fi
  mpirun --version 2>&1 | head -1
  export OMPI_MCA_mpi_yield_when_idle=1  # there may be more ranks than cores
  local refusal
  refusal=$(windows_refusal)
  [[ -z $refusal ]] || export GMAC_TEST_NO_WINDOWS=$refusal
  for accelerator in "${accelerators[@]}"; do
    mpi_tests "$accelerator"
  done
  # With cores enough, ranks that wait measure what they do elsewhere.
  unset OMPI_MCA_mpi_yield_when_idle
  for accelerator in "${accelerators[@]}"; do
    [[ $mpi_driver == fake && $accelerator == cuda ]] || mpi_benchmarks "$accelerator"
  done
  # (Without tickets, MPI's ways are its own.)
  mpi_run bench/transfers exchange/bench/transfers_openmpi 2 "" GMAC_ACCEL=host GMAC_MPI_TICKETS=0 --json "$logs/transfers.json" \
    --plots "$logs/transfers"
  mpi_run bench/stencil_3d exchange/bench/stencil_3d_openmpi 8 "" GMAC_ACCEL=host GMAC_MPI_TICKETS=0 --json "$logs/transfers.json" \
    --plots "$logs/transfers"
  if [[ $mpi_driver == real && -x exchange/bench/devices/devices_openmpi ]]; then
    mpi_run bench/devices exchange/bench/devices/devices_openmpi 2 "" GMAC_ACCEL=cuda --repeat 7 --json "$logs/devices.json" \
      --plots "$logs/devices"
    mpi_run bench/stencil exchange/bench/devices/stencil_openmpi 2 "" GMAC_ACCEL=cuda
  fi
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

# python_run NAME MODULE [VARIABLE=VALUE...] [ARGUMENTS...]: a program of managed/python, which compares with NumPy itself, without
# gmac and with it; nothing where the machine's Python has no such module.
python_run() {
  local name=$1 module=$2 variables=() with way code begun log
  shift 2
  while [[ ${1-} =~ ^[A-Z_]+= ]]; do
    variables+=("$1")
    shift
  done
  if ! python3 -c "import $module" >/dev/null 2>&1; then
    skipped=$((skipped + 1))
    echo "skipped: $name${*:+ $*}: python3 here has no $module"
    return
  fi
  for way in "without gmac" "with gmac"; do
    log=$logs/python_$(tr -cs 'A-Za-z0-9\n' _ <<<"$name $* $way").log
    code=0
    with=()
    [[ $way == without* ]] || with=(GMAC_MANAGED=1 "LD_PRELOAD=$PWD/gmac/libgmac.so")
    begun=${EPOCHREALTIME/./}
    env "${variables[@]}" "${with[@]}" \
      timeout --kill-after=10 "${GMAC_TEST_TIMEOUT:-300}" python3 "managed/python/$name.py" "$@" >"$log" 2>&1 || code=$?
    if ((code == 0)) && grep -q '^all is right$' "$log"; then
      passed=$((passed + 1))
      echo "passed: $name${*:+ $*}, $way, $(((${EPOCHREALTIME/./} - begun) / 1000)) ms"
    else
      failed=$((failed + 1))
      status=1
      echo "failed: $name${*:+ $*}, $way: exit status $code"
      tail -n 15 "$log" | sed 's/^/    /'
    fi
  done
}

run_python() {
  echo "== python"
  python_run cupy_arrays cupy pool
  python_run cupy_arrays cupy plain
  python_run numba_arrays numba.cuda
  python_run torch_network torch
  python_run torch_network torch "$PWD/managed/python/liballocator.so"
  # (JAX takes three quarters of the GPU's memory otherwise, before anything needs it.)
  python_run jax_network jax TF_FORCE_UNIFIED_MEMORY=1 XLA_PYTHON_CLIENT_MEM_FRACTION=.03
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
    tests | mpi | parboil | managed | python | bench | datatypes) parts+=("$1") ;;
    --)
      shift
      break
      ;;
    *)
      echo "usage: run [tests] [mpi] [parboil] [managed] [python] [bench] [datatypes] [-- ARGUMENTS of parboil, or of managed or datatypes alone...]" >&2
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
    mpi) run_mpi ;;
    parboil) run_parboil "$@" ;;
    managed) if [[ ${#parts[@]} == 1 ]]; then run_managed "$@"; else run_managed; fi ;;
    python) run_python ;;
    bench) run_bench ;;
    datatypes) if [[ ${#parts[@]} == 1 ]]; then run_datatypes "$@"; else run_datatypes; fi ;;
  esac
done
if [[ " ${parts[*]} " =~ " "(tests|mpi|python)" " ]]; then
  echo "$passed passed, $failed failed$( ((skipped == 0)) || echo ", $skipped skipped")"
fi
exit "$status"
