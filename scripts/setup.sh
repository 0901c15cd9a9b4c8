# SPDX-License-Identifier: Apache-2.0
# Installs what the build needs and the machine lacks.

required_packages=(
  bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-platforms bazel-skylib
  g++ gfortran lld git make pkg-config python3 xz-utils clang-format clang-tidy
  libgtest-dev libgmock-dev libbenchmark-dev libboost-dev libcli11-dev libfmt-dev
  nlohmann-json3-dev liblz4-dev libzstd-dev libopenmpi-dev libpmix-dev openmpi-bin libmpich-dev mpich python3-mpi4py python3-numpy iproute2 gnuplot-nox libjemalloc2 libtcmalloc-minimal4
)

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "${required_packages[@]}" 2>/dev/null |
    sed -n 's/^ii  *//p' || true)
  local package
  for package in "${required_packages[@]}"; do
    grep -qx -- "$package" <<<"$installed" || printf '%s\n' "$package"
  done
}

setup() {
  command -v dpkg-query >/dev/null || fail "this is no Debian machine: install yourself what scripts/setup.sh lists"
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ $EUID != 0 ]]; then
    command -v sudo >/dev/null ||
      fail "not installed: ${missing[*]}. Install them as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends
    "${missing[@]}")
  # The package lists may be absent or stale: fetch them only when the installation does not work without.
  if ! "${install[@]}" >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -q >/dev/null || fail "apt-get update failed; not installed: ${missing[*]}"
    "${install[@]}" >/dev/null || fail "apt-get could not install ${missing[*]}"
  fi
}
