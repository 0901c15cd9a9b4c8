// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/costs.h"

#include <algorithm>
#include <optional>

#include "gmac/datatype/engine/strided_copy.h"

namespace gmac::datatype {
namespace {

constexpr double kNever = 1e30;

}  // namespace

adsmMethod_t Costs::choose(const Crossing& crossing) const {
  const auto bytes = static_cast<double>(crossing.bytes);
  const double pieces = static_cast<double>(crossing.layout->blockCount()) * bytes /
                        static_cast<double>(crossing.layout->bytes());
  const bool pack = crossing.direction == Direction::kPack;
  const double written = launch + std::max(bytes / zeroCopyRate, pieces * kPieceCost);
  const double read = readLaunch + std::max(bytes / zeroCopyReadRate, pieces * kPieceCost);
  const double kernel = !crossing.pinned ? kNever : pack ? written : read;
  const auto grid = crossing.whole ? gridOf(*crossing.layout) : std::nullopt;
  const double strided =
      grid ? copy2d + std::max(static_cast<double>(grid->rows * grid->slices) * copy2dRow,
                               bytes / copy2dRate)
           : kNever;
  const double first = std::min(bytes, static_cast<double>(Staging::kSlotBytes)) / kFirstStepRate;
  const double through = launch + copy + first + bytes / copyRate;
  if (strided <= kernel && strided <= through) {
    return adsmMethodCopy2d;
  }
  return kernel <= through ? adsmMethodKernel : adsmMethodStaged;
}

}  // namespace gmac::datatype
