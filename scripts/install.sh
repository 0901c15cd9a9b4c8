# SPDX-License-Identifier: Apache-2.0
# ./gmacw install PREFIX

install_library() {
  bazel_build //gmac:libgmac.so //mpi:libgmac_mpi.so //tools/gmac:gmac
  scripts/place_files.sh bazel-bin/gmac/libgmac.so bazel-bin/mpi/libgmac_mpi.so bazel-bin/tools/gmac/gmac "$1"
  say "installed gmac $(version) in $1"
}
