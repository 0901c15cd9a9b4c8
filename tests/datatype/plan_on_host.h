// SPDX-License-Identifier: Apache-2.0
//
// Plans for a device, carried out by this process.
#ifndef GMAC_TESTS_DATATYPE_PLAN_ON_HOST_H_
#define GMAC_TESTS_DATATYPE_PLAN_ON_HOST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/datatype/kernels/pack_kernels.h"
#include "gmac/datatype/plan/device_plan.h"

namespace gmac::testing {

// A plan's table in this process's memory.
inline std::vector<std::uint64_t> tableOf(const datatype::DevicePlan& plan) {
  const datatype::DevicePlan::Table& shape = plan.table();
  std::vector<std::uint64_t> table((shape.bytes + 7) / 8 + 2, ~0ULL);
  auto* const bytes = reinterpret_cast<std::byte*>(table.data());
  if (shape.bytes != 0) {
    plan.writeUnits(0, shape.units, bytes);
    plan.writePieces(0, shape.pieces, bytes + shape.piecesAt);
  }
  return table;
}

// All blocks of a launch, one by one.
inline void runBlocks(int kernel, std::uint32_t blocks, std::uint32_t threads, void* params) {
  void* args[] = {params};
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const adsmThreadBlock_t place = {{blocks, 1, 1}, {threads, 1, 1}, {block, 0, 0}, nullptr, 0};
    datatype::kernelOnHost(kernel)(&place, args);
  }
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_DATATYPE_PLAN_ON_HOST_H_
