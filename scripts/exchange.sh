# SPDX-License-Identifier: Apache-2.0
# ./gmacw exchange: what one message between two processes costs, beside each MPI.

# [--mpi NAME] [--devices] ARGUMENTS... of the program. --mpi: that MPI alone. --devices: between device memories.
run_exchange() {
  local mpis=(openmpi mpich) mpi status=0 arguments=() next program=exchange/bench/transfers start=()
  while [[ ${1-} == --mpi || ${1-} == --devices ]]; do
    if [[ $1 == --devices ]]; then
      program=exchange/bench/devices/devices
      shift
      continue
    fi
    case ${2-} in
      openmpi | mpich) mpis=("$2") ;;
      *) fail_usage "exchange: --mpi ${2-}: no such MPI; allowed are openmpi and mpich" ;;
    esac
    shift 2
  done
  # Each MPI's run adds to the file.
  while [[ $# -gt 0 ]]; do
    arguments+=("$1")
    case $1 in
      --json | --plots)
        next=${2-}
        [[ -n $next ]] || fail_usage "exchange: $1 takes an argument; see ./gmacw exchange --help"
        next=$(absolute "$next")
        [[ $1 != --json ]] || rm -f "$next"
        arguments+=("$next")
        shift
        ;;
    esac
    shift
  done
  if [[ $program == *devices ]]; then
    bazel query "//${program%/*}:devices_openmpi" >/dev/null 2>&1 || fail "exchange --devices needs a CUDA toolkit, and the build finds none"
    bazel_build "${mpis[@]/#///exchange/bench/devices:devices_}" //tools/gmac //gmac:libgmac.so //mpi:libgmac_mpi.so >&2
    start=(bazel-bin/tools/gmac/gmac run --mpi --)
  else
    bazel_build "${mpis[@]/#///exchange/bench:transfers_}" >&2
  fi
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  for mpi in "${mpis[@]}"; do
    "mpirun.$mpi" -n 2 "${start[@]}" "bazel-bin/${program}_$mpi" "${arguments[@]}" || status=$?
    # What it says of its command line it need not say twice.
    [[ $status == 0 && " ${arguments[*]} " != *" --help "* && " ${arguments[*]} " != *" --list "* ]] || break
  done
  return "$status"
}
