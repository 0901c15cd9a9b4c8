# SPDX-License-Identifier: Apache-2.0
# ./gmacw install PREFIX

install_library() {
  bazel_build //gmac:libgmac.so
  scripts/place_files.sh bazel-bin/gmac/libgmac.so "$1"
  say "installed gmac $(version) in $1"
}
