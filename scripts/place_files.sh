#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# place_files.sh LIBRARY MPI_LIBRARY COMMAND PREFIX: puts libgmac.so, libgmac_mpi.so and what belongs to them where shells, compilers, pkg-config and CMake
# look. Runs in the root of the tree. The prefix may be moved afterwards.
set -euo pipefail
source scripts/common.sh
library=$1
mpi_library=$2
command=$3
prefix=$4
version=$(version)
so_version=$(so_version)

fill() { # TEMPLATE FILE
  sed -e "s/@VERSION@/$version/g" -e "s/@SO_VERSION@/$so_version/g" "scripts/templates/$1" >"$2"
  chmod 644 "$2"
}

mkdir -p "$prefix/bin" "$prefix/lib/pkgconfig" "$prefix/lib/cmake/gmac" "$prefix/include/gmac"
# Replaced, not overwritten: programs that run keep the library that they have.
place_library() { # FILE NAME
  install -m 755 "$1" "$prefix/lib/$2.$version.new"
  strip --strip-unneeded "$prefix/lib/$2.$version.new"
  mv -f "$prefix/lib/$2.$version.new" "$prefix/lib/$2.$version"
  ln -sf "$2.$version" "$prefix/lib/$2.$so_version"
  ln -sf "$2.$so_version" "$prefix/lib/$2"
}
place_library "$library" libgmac.so
place_library "$mpi_library" libgmac_mpi.so
# It finds the libraries at ../lib.
install -m 755 "$command" "$prefix/bin/gmac.new"
strip "$prefix/bin/gmac.new"
mv -f "$prefix/bin/gmac.new" "$prefix/bin/gmac"
for header in gmac/api/adsm.h gmac/api/adsm.hpp gmac/api/adsm_datatype.h gmac/api/adsm_mpi.h; do
  [[ ! -e $header ]] || install -m 644 "$header" "$prefix/include/gmac/${header##*/}"
done
fill gmac.pc.in "$prefix/lib/pkgconfig/gmac.pc"
fill gmacConfig.cmake.in "$prefix/lib/cmake/gmac/gmacConfig.cmake"
fill gmacConfigVersion.cmake.in "$prefix/lib/cmake/gmac/gmacConfigVersion.cmake"
