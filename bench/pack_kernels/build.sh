#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the program of main.cu for one GPU architecture, with nothing but nvcc and fmt's headers:
#   bench/pack_kernels/build.sh [OUTPUT [ARCHITECTURE]]    (from the repository's root; 90 if not said)
set -e
output=${1:-pack_kernels}
architecture=${2:-90}
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
for source in bench/pack_kernels/*.cu gmac/datatype/layout/block_list.cc gmac/datatype/plan/device_plan.cc \
    gmac/datatype/plan/device_plan_launches.cc gmac/datatype/plan/device_plan_tables.cc \
    gmac/datatype/layout/layout.cc gmac/datatype/layout/pieces.cc gmac/base/status.cc; do
  name=$(basename "$source" | tr . _)
  case $source in
    *.cu)
      # fmt's header knows nvcc as a compiler without constexpr.
      nvcc -std=c++20 -O3 -lineinfo -I. -DADSM_NO_CUDART -DFMT_HEADER_ONLY -DFMT_USE_CONSTEXPR=1 \
        -gencode="arch=compute_$architecture,code=sm_$architecture" -c "$source" \
        -o "$objects/$name.o" ;;
    *) g++ -std=c++20 -O2 -I. -DFMT_HEADER_ONLY -c "$source" -o "$objects/$name.o" ;;
  esac
done
nvcc -cudart static -Xcompiler -static-libstdc++,-static-libgcc -o "$output" "$objects"/*.o
