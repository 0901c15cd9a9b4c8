// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/costs.h"

#include <algorithm>

#include "gmac/datatype/staging.h"

namespace gmac::datatype {

bool fitsCopy2d(const Layout& layout, bool whole, std::int64_t* rows) {
  const std::vector<Dim>& dims = layout.dims();
  if (!whole || layout.blocks().size() != 1 || dims.size() > 2) {
    return false;
  }
  *rows = 1;
  std::int64_t inner = layout.blocks()[0].bytes;
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (dims[i].stride < inner ||
        dims[i].stride % (i + 1 < dims.size() ? dims[i + 1].stride : 1) != 0) {
      return false;
    }
    inner = (dims[i].count - 1) * dims[i].stride + inner;
    *rows *= dims[i].count;
  }
  return true;
}

adsmMethod_t Costs::choose(const Crossing& crossing) const {
  const auto bytes = static_cast<double>(crossing.bytes);
  const auto pieces = static_cast<double>(crossing.layout->blockCount());
  const double kernel =
      crossing.pinned ? launch + std::max(bytes / zeroCopyRate, pieces * zeroCopyPiece) : 1e30;
  std::int64_t rows = 0;
  const double strided =
      fitsCopy2d(*crossing.layout, crossing.whole, &rows)
          ? copy2d + std::max(static_cast<double>(rows) * copy2dRow, bytes / copy2dRate)
          : 1e30;
  const double steps = std::max(1.0, bytes / static_cast<double>(Staging::kSlotBytes));
  const double staged = launch + copy + bytes / copyRate + (steps - 1) * stagedStep;
  if (strided <= kernel && strided <= staged) {
    return adsmMethodCopy2d;
  }
  return kernel <= staged ? adsmMethodKernel : adsmMethodStaged;
}

}  // namespace gmac::datatype
