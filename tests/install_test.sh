#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ./gmacw install makes a library that C, C++, CMake and nvcc users can build against and run.
set -euo pipefail
prefix=$TEST_TMPDIR/prefix
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
failures=0

# check WHAT COMMAND...: reports a command that fails, with what it printed.
check() {
  local what=$1
  shift
  if "$@" >"$TEST_TMPDIR/log" 2>&1; then
    echo "ok: $what"
  else
    echo "FAILED: $what"
    cat "$TEST_TMPDIR/log"
    failures=$((failures + 1))
  fi
}

# Nothing but C functions and no archive's: a second C++ library in a program must not see ours.
exportsOnlyWhatItShould() {
  local names
  names=$(nm -D --defined-only "$prefix/lib/libgmac.so" | awk '$2 ~ /[A-Z]/ { print $3 }')
  grep -q '^adsmAlloc$' <<<"$names" || { echo "adsmAlloc is not there"; return 1; }
  ! grep -E '^(_Z|__cxa|__gxx|_Unwind|cudart)' <<<"$names"
}

# The libraries that a file needs.
needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

# The C library's unwinder is one of its libraries.
needsOnlyTheCLibrary() {
  ! needed "$prefix/lib/libgmac.so" | grep -vE '^(libc|libm|libdl|librt|libpthread|libgcc_s|ld-linux-[a-z0-9-]+)\.so'
}

# With an unwinder of its own inside, a thread that is cancelled in a call of the library's aborts.
hasNoUnwinder() {
  needed "$prefix/lib/libgmac.so" | grep -q '^libgcc_s\.so' || { echo "libgcc_s is not needed"; return 1; }
  ! nm "$prefix/lib/libgmac.so" | grep -E ' [^Uwv] _Unwind_'
}

# Most of the library is kernels for several architectures.
isSmall() {
  local bytes
  bytes=$(stat -L -c %s "$prefix/lib/libgmac.so")
  ((bytes <= 8 * 1024 * 1024)) || { echo "libgmac.so has $bytes bytes, more than 8 MiB"; return 1; }
}

runsOnTheHost() { [[ $(GMAC_ACCEL=host LD_LIBRARY_PATH="$prefix/lib" "$1") == "saxpy: correct" ]]; }

# A program that is not linked with the library finds it there.
commandPreloads() {
  [[ $("$prefix/bin/gmac" run --accel host -- sh -c 'echo "$LD_PRELOAD"; grep -c libgmac /proc/$$/maps >/dev/null && echo loaded') \
    == "$(realpath "$prefix")/lib/libgmac.so"*$'\n'loaded ]]
}

# Both libraries, in a program that knows neither.
commandPreloadsForMpi() {
  PMI_RANK=0 "$prefix/bin/gmac" run --mpi --accel host -- sh -c 'grep -q libgmac_mpi /proc/$$/maps; exit $?'
}

mpiNeedsOnlyTheLibrary() {
  ! needed "$prefix/lib/libgmac_mpi.so" | grep -vE '^(libgmac|libc|libm|libdl|libgcc_s|ld-linux-[a-z0-9-]+)\.so'
}

commandNeedsOnlyTheCLibrary() {
  ! needed "$prefix/bin/gmac" | grep -vE '^(libc|libm|libdl|librt|libpthread|libgcc_s|ld-linux-[a-z0-9-]+)\.so'
}

buildWithPkgConfig() {
  # shellcheck disable=SC2046  # flags are words
  gcc -std=c11 -Wall -Wextra -Werror -pedantic docs/examples/cmake/saxpy.c -o "$TEST_TMPDIR/saxpy" \
    $(pkg-config --cflags --libs gmac)
}

# Every public header alone, as its users include it.
headerCompiles() { # LANGUAGE STANDARD HEADER
  echo "#include <gmac/$3>" | gcc -x "$1" "-std=$2" -Wall -Wextra -Werror -pedantic -fsyntax-only -I"$prefix/include" -
}

buildWithCmake() {
  cmake -S docs/examples/cmake -B "$TEST_TMPDIR/cmake" -DCMAKE_PREFIX_PATH="$prefix" &&
    cmake --build "$TEST_TMPDIR/cmake"
}

refusesAnotherSeries() {
  mkdir -p "$TEST_TMPDIR/newer"
  sed 's/find_package(gmac 0.1/find_package(gmac 99.0/' docs/examples/cmake/CMakeLists.txt >"$TEST_TMPDIR/newer/CMakeLists.txt"
  cp docs/examples/cmake/saxpy.c "$TEST_TMPDIR/newer/"
  ! cmake -S "$TEST_TMPDIR/newer" -B "$TEST_TMPDIR/newer/build" -DCMAKE_PREFIX_PATH="$prefix"
}

buildWithNvcc() {
  mkdir -p "$TEST_TMPDIR/nvcc"
  cp docs/examples/nvcc/* "$TEST_TMPDIR/nvcc/"
  TMPDIR=$TEST_TMPDIR make -C "$TEST_TMPDIR/nvcc" PREFIX="$prefix" NVCC="$1"
}

check "install" scripts/place_files.sh gmac/libgmac.so mpi/libgmac_mpi.so tools/gmac/gmac "$prefix"
check "install over an installation" scripts/place_files.sh gmac/libgmac.so mpi/libgmac_mpi.so tools/gmac/gmac "$prefix"
check "exports only C functions of its own" exportsOnlyWhatItShould
check "needs only the C library" needsOnlyTheCLibrary
check "has no unwinder of its own" hasNoUnwinder
check "has at most 8 MiB" isSmall
check "command needs only the C library" commandNeedsOnlyTheCLibrary
check "command preloads" commandPreloads
check "command preloads for MPI" commandPreloadsForMpi
check "the library for MPI needs libgmac.so, and no MPI" mpiNeedsOnlyTheLibrary
check "adsm.h as C99" headerCompiles c c99 adsm.h
check "adsm.h as C++11" headerCompiles c++ c++11 adsm.h
[[ ! -e gmac/api/adsm.hpp ]] || check "adsm.hpp as C++20" headerCompiles c++ c++20 adsm.hpp
check "C example through pkg-config" buildWithPkgConfig
check "C example runs" runsOnTheHost "$TEST_TMPDIR/saxpy"
mv "$prefix" "$prefix.moved"
prefix=$prefix.moved
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
check "C example through pkg-config, prefix moved" buildWithPkgConfig
check "command preloads, prefix moved" commandPreloads
if command -v cmake >/dev/null; then
  check "C example through CMake" buildWithCmake
  check "C example from CMake runs" runsOnTheHost "$TEST_TMPDIR/cmake/saxpy"
  check "CMake refuses a version that is not there" refusesAnotherSeries
else
  echo "left out: the CMake example (no cmake here)"
fi
nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
if [[ -x $nvcc ]]; then
  check "CUDA example through nvcc" buildWithNvcc "$nvcc"
else
  echo "left out: the nvcc example (no nvcc here)"
fi
[[ $failures == 0 ]]
