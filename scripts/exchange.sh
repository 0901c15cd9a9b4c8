# SPDX-License-Identifier: Apache-2.0
# ./gmacw exchange: what one message between two processes costs, beside each MPI.

# ARGUMENTS... of the program; --mpi NAME, first, for one MPI alone.
run_exchange() {
  local mpis=(openmpi mpich) mpi status=0 arguments=() next
  if [[ ${1-} == --mpi ]]; then
    case ${2-} in
      openmpi | mpich) mpis=("$2") ;;
      *) fail_usage "exchange: --mpi ${2-}: no such MPI; allowed are openmpi and mpich" ;;
    esac
    shift 2
  fi
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
  bazel_build "${mpis[@]/#///exchange/bench:transfers_}" >&2
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  for mpi in "${mpis[@]}"; do
    "mpirun.$mpi" -n 2 "bazel-bin/exchange/bench/transfers_$mpi" "${arguments[@]}" || status=$?
    # What it says of its command line it need not say twice.
    [[ $status == 0 && " ${arguments[*]} " != *" --help "* && " ${arguments[*]} " != *" --list "* ]] || break
  done
  return "$status"
}
