# SPDX-License-Identifier: Apache-2.0
# ./gmacw bundle FILE: tests, benchmarks, Parboil, datatypes and the managed-memory programs for a machine that has only a driver and a C library;
# and programs of MPI for one that has Open MPI 4 as well.

max_bundle_mib=60

# Libraries that every machine with a C library has (its unwinder is one of them), and the ones that travel with the bundle
# (libgmac.so, which libgmac_mpi.so needs, in its own place).
c_library='^(linux-vdso|ld-linux-[a-z0-9-]+|libc|libm|libdl|librt|libpthread|libresolv|libutil|libgcc_s|libgmac)\.so'
bundled_library='^(libbenchmark|libcudart|libstdc\+\+)\.so'
# Libraries that programs of MPI find in the bundle or have from the machine's MPI.
mpi_library='^(libmpi|libmpi_[a-z0-9]+|libgfortran|libprofiler_openmpi|libstdc\+\+)\.so'

# Copies the shared libraries that a program needs into DIRECTORY/lib; an unexpected one is an error, because it would be
# missed only on the other machine.
bundle_libraries() { # PROGRAM DIRECTORY
  local name path
  while read -r name path; do
    if [[ $name =~ $c_library ]]; then
      continue
    elif [[ $name =~ $bundled_library && -e $path ]]; then
      mkdir -p "$2/lib"
      [[ -e $2/lib/$name ]] || cp -L "$path" "$2/lib/$name"
    else
      fail "$1 needs $name, which is neither part of the C library nor of the bundle"
    fi
  done < <(ldd "$1" | awk '{ name = $1; sub(".*/", "", name); print name, ($2 == "=>" ? $3 : $1) }')
}

# Programs of MPI take nothing along: what their libraries need is the machine's.
check_mpi_libraries() { # PROGRAM
  local name
  while read -r name; do
    [[ $name =~ $c_library || $name =~ $mpi_library ]] ||
      fail "$1 needs $name, which is neither part of the C library nor of Open MPI nor of the bundle"
  done < <(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
}

make_bundle() {
  local file=$1 folder program size
  bazel_build //...
  folder=$(mktemp -d)
  trap "rm -rf '$folder'" EXIT
  local top=$folder/gmac-bundle
  mkdir -p "$top"

  # As Bazel lays them out: a test finds the files it names (gmac/libgmac.so) from the same current directory.
  local programs mpi_programs tests benchmarks
  find_built programs \
    'kind("cc_(test|binary)",
       //tests/... union //bench/... union //parboil/... union //datatypes/... union //managed/... union //tools/...) union //gmac:libgmac.so union //mpi:libgmac_mpi.so
     except attr(tags, "no-bundle", //...)'
  # A sanitizer's library does not travel; the tests of such a program say that it is not there.
  mapfile -t programs < <(printf '%s\n' "${programs[@]}" | grep -v '_[at]san$')
  # docs_test reads the sources, which do not travel.
  find_built tests 'kind(cc_test, //tests/... except //tests:docs_test) except attr(tags, "no-bundle", //...)'
  find_built benchmarks 'kind(cc_binary, //bench/...) except attr(tags, "no-bundle", //...)'
  for program in "${programs[@]}"; do
    install -D -m 755 "bazel-bin/$program" "$top/$program"
    strip "$top/$program"
    # As built: there it finds the libraries that the toolkit brought.
    bundle_libraries "bazel-bin/$program" "$top"
  done
  find_built mpi_programs 'filter("_openmpi(\.so)?$", kind("cc_binary|generated file", //tests/mpi:* union //mpi:* union //exchange/bench/...))'
  for program in "${mpi_programs[@]}"; do
    install -D -m 755 "bazel-bin/$program" "$top/$program"
    strip "$top/$program"
    check_mpi_libraries "bazel-bin/$program"
  done
  ln -s libgmac.so "$top/gmac/libgmac.so.$(so_version)"
  while read -r program; do
    install -D -m 644 "$program" "$top/$program"
  done < <(find tests managed -name '*.py')
  install -D -m 755 bazel-bin/managed/python/liballocator.so "$top/managed/python/liballocator.so"
  printf '%s\n' "${tests[@]}" >"$top/tests.list"
  printf '%s\n' "${benchmarks[@]}" >"$top/bench.list"
  install -m 755 scripts/bundle_run.sh "$top/run"
  cp LICENSE "$top/"
  git describe --always --dirty >"$top/revision" 2>/dev/null || echo unknown >"$top/revision"

  mkdir -p "$(dirname "$file")"
  # Many programs, much the same code: what sees far back packs it once (a fifth less than by 64 MiB; takes 2 GiB).
  tar -C "$folder" --owner=0 --group=0 -cf - gmac-bundle | xz -T1 --lzma2=preset=2,dict=192MiB >"$file"
  size=$(stat -c %s "$file")
  ((size <= max_bundle_mib << 20)) ||
    fail "$file has $((size >> 20)) MiB; more than $max_bundle_mib do not travel: $(du -m "$top"/* | sort -rn | head -3 | tr '\n\t' ', ')"
  say "$file: $(((size + 1048575) >> 20)) MiB, ${#tests[@]} test programs, ${#benchmarks[@]} benchmark programs, ${#mpi_programs[@]} of MPI"
}
