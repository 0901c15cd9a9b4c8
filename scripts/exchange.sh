# SPDX-License-Identifier: Apache-2.0
# ./gmacw exchange: what messages between processes cost, beside each MPI.

# [--mpi NAME] [--devices] ARGUMENTS... of the programs. --mpi: that MPI alone. --devices: between device memories.
run_exchange() {
  local mpis=(openmpi mpich) mpi status=0 arguments=() next program=exchange/bench/transfers start=() edge=()
  local stencil=exchange/bench/stencil_3d many
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
      --edge)
        # The stencil's alone, which says what is wrong with it.
        unset 'arguments[-1]'
        edge=("$@")
        edge=("${edge[@]:0:2}")
        [[ $# == 1 ]] || shift
        ;;
    esac
    shift
  done
  if [[ $program == *devices ]]; then
    bazel query "//${program%/*}:devices_openmpi" >/dev/null 2>&1 || fail "exchange --devices needs a CUDA toolkit, and the build finds none"
    bazel_build "${mpis[@]/#///exchange/bench/devices:devices_}" //tools/gmac //gmac:libgmac.so //mpi:libgmac_mpi.so >&2
    start=(bazel-bin/tools/gmac/gmac run --mpi --)
  else
    bazel_build "${mpis[@]/#///exchange/bench:transfers_}" "${mpis[@]/#///exchange/bench:stencil_3d_}" >&2
  fi
  # Of the stencil: as many as there are cores, within what its figure is for.
  many=$(nproc)
  many=$((many < 4 ? 4 : many > 16 ? 16 : many))
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  for mpi in "${mpis[@]}"; do
    "mpirun.$mpi" -n 2 "${start[@]}" "bazel-bin/${program}_$mpi" "${arguments[@]}" || status=$?
    # An answer about the command line is printed once.
    [[ $status == 0 && " ${arguments[*]} " != *" --help "* && " ${arguments[*]} " != *" --list "* ]] || break
    [[ $program == *devices ]] && continue
    # (Hydra knows no such option, and needs none.)
    [[ $mpi == openmpi ]] && start=(--oversubscribe)
    "mpirun.$mpi" -n "$many" "${start[@]}" "bazel-bin/${stencil}_$mpi" "${arguments[@]}" "${edge[@]}" || status=$?
    start=()
    [[ $status == 0 ]] || break
  done
  return "$status"
}
