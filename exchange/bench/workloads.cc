// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/workloads.h"

#include <fmt/format.h>

#include "exchange/bench/layouts.h"

namespace gmac::exchange::bench {
using datatype::Layout;

std::vector<Workload> workloads() {
  std::vector<Workload> all;
  const auto add = [&](const char* group, std::string name, Layout from, Layout to,
                       double most = 0) {
    all.push_back({group, std::move(name), std::move(from), std::move(to), most});
  };
  const auto both = [&](const char* group, std::string name, const Layout& one, double most = 0) {
    add(group, std::move(name), one, one, most);
  };
  for (std::int64_t bytes = 4 * kKiB; bytes <= 64 * kMiB; bytes *= 4) {
    // From 4 MiB on: as fast as the MPI's own single copy.
    both("contiguous", "contiguous", contiguous(bytes), bytes >= 4 * kMiB ? 1 : 0);
  }
  for (std::int64_t block = 8; block <= 4 * kKiB; block *= 2) {
    both("vector", fmt::format("vector of {} B", block), vectorOf(block, 2 * block, 2 * kMiB),
         block == 128 ? 0.5 : 0);
  }
  for (const std::int64_t block : {16, 128, 1024}) {
    const Layout strided = vectorOf(block, 2 * block, 2 * kMiB);
    add("one-side", fmt::format("vector of {} B to contiguous", block), strided,
        contiguous(2 * kMiB));
    add("one-side", fmt::format("contiguous to vector of {} B", block), contiguous(2 * kMiB),
        strided);
  }
  for (const std::int64_t side : {8, 16, 32, 64}) {
    both("MILC_su3_zd", fmt::format("MILC_su3_zd {}^4", side), milc(side));
  }
  for (const std::int64_t width : {32, 128, 512, 2048}) {
    both("WRF_y_vec", fmt::format("WRF_y_vec of {}", width), wrf(width));
  }
  for (const std::int64_t n : {64, 128, 256, 512}) {
    both("NAS_MG_z", fmt::format("NAS_MG_z {}^2", n), nasZ(n, n));
  }
  for (const std::int64_t n : {32, 64, 128}) {
    both("NAS_MG_x", fmt::format("NAS_MG_x {}^2", n), nasX(n));
  }
  for (const std::int64_t points : {2000, 32000, 512000}) {
    both("SPECFEM3D_cm", fmt::format("SPECFEM3D_cm, {} points", points), specfem(points));
  }
  return all;
}

std::vector<std::string> groupNames() {
  std::vector<std::string> names;
  for (const Workload& one : workloads()) {
    if (names.empty() || names.back() != one.group) {
      names.push_back(one.group);
    }
  }
  return names;
}

}  // namespace gmac::exchange::bench
