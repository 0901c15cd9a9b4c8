#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# place_files.sh LIBRARY COMMAND PREFIX: puts libgmac.so and what belongs to it where shells, compilers, pkg-config and CMake
# look. Runs in the root of the tree. The prefix may be moved afterwards.
set -euo pipefail
source scripts/common.sh
library=$1
command=$2
prefix=$3
version=$(version)
so_version=$(so_version)

fill() { # TEMPLATE FILE
  sed -e "s/@VERSION@/$version/g" -e "s/@SO_VERSION@/$so_version/g" "scripts/templates/$1" >"$2"
  chmod 644 "$2"
}

mkdir -p "$prefix/bin" "$prefix/lib/pkgconfig" "$prefix/lib/cmake/gmac" "$prefix/include/gmac"
# Replaced, not overwritten: programs that run keep the library that they have.
install -m 755 "$library" "$prefix/lib/libgmac.so.$version.new"
strip --strip-debug "$prefix/lib/libgmac.so.$version.new"
mv -f "$prefix/lib/libgmac.so.$version.new" "$prefix/lib/libgmac.so.$version"
ln -sf "libgmac.so.$version" "$prefix/lib/libgmac.so.$so_version"
ln -sf "libgmac.so.$so_version" "$prefix/lib/libgmac.so"
# It finds the library at ../lib.
install -m 755 "$command" "$prefix/bin/gmac.new"
strip "$prefix/bin/gmac.new"
mv -f "$prefix/bin/gmac.new" "$prefix/bin/gmac"
for header in gmac/api/adsm.h gmac/api/adsm.hpp gmac/api/adsm_datatype.h gmac/api/adsm_mpi.h; do
  [[ ! -e $header ]] || install -m 644 "$header" "$prefix/include/gmac/${header##*/}"
done
fill gmac.pc.in "$prefix/lib/pkgconfig/gmac.pc"
fill gmacConfig.cmake.in "$prefix/lib/cmake/gmac/gmacConfig.cmake"
fill gmacConfigVersion.cmake.in "$prefix/lib/cmake/gmac/gmacConfigVersion.cmake"
