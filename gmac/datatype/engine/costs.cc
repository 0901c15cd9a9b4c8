// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/costs.h"

#include <algorithm>

namespace gmac::datatype {
namespace {

constexpr double kNever = 1e30;

}  // namespace

bool fitsCopy2d(const Layout& layout, bool whole, std::int64_t* rows) {
  const std::vector<Dim>& dims = layout.dims();
  if (!whole || layout.blocks().size() != 1 || dims.size() > 2) {
    return false;
  }
  *rows = 1;
  std::int64_t inner = layout.blocks()[0].bytes;
  for (std::size_t i = dims.size(); i-- > 0;) {
    const std::int64_t unit = i + 1 < dims.size() ? dims[i + 1].stride : 1;
    if (dims[i].stride < inner || dims[i].stride % unit != 0) {
      return false;
    }
    inner = (dims[i].count - 1) * dims[i].stride + inner;
    *rows *= dims[i].count;
  }
  return true;
}

adsmMethod_t Costs::choose(const Crossing& crossing) const {
  const auto bytes = static_cast<double>(crossing.bytes);
  const double pieces = static_cast<double>(crossing.layout->blockCount()) * bytes /
                        static_cast<double>(crossing.layout->bytes());
  const bool pack = crossing.direction == Direction::kPack;
  const double written = launch + std::max(bytes / zeroCopyRate, pieces * kPieceCost);
  const double read = readLaunch + std::max(bytes / zeroCopyReadRate, pieces * kPieceCost);
  const double kernel = !crossing.pinned ? kNever : pack ? written : read;
  std::int64_t rows = 0;
  const double strided =
      fitsCopy2d(*crossing.layout, crossing.whole, &rows)
          ? copy2d + std::max(static_cast<double>(rows) * copy2dRow, bytes / copy2dRate)
          : kNever;
  const double first = std::min(bytes, static_cast<double>(Staging::kSlotBytes)) / kFirstStepRate;
  const double through = launch + copy + first + bytes / copyRate;
  if (strided <= kernel && strided <= through) {
    return adsmMethodCopy2d;
  }
  return kernel <= through ? adsmMethodKernel : adsmMethodStaged;
}

}  // namespace gmac::datatype
