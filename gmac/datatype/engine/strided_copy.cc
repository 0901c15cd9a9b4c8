// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/strided_copy.h"

#include <cstddef>
#include <vector>

namespace gmac::datatype {
namespace {

// The same bytes, in rows and slices as the other grid has them.
std::optional<Grid> arrangedAs(const Grid& other, Grid grid) {
  if (grid.rows == 1 && grid.slices == 1) {  // contiguous
    grid.rowBytes = grid.pitch = other.rowBytes;
    grid.rows = other.rows;
    grid.slices = other.slices;
    grid.slicePitch = other.rows * other.rowBytes;
    return grid;
  }
  if (grid.rowBytes != other.rowBytes) {
    return std::nullopt;
  }
  if (grid.slices == 1 && grid.rows == other.rows * other.slices) {
    grid.rows = other.rows;
    grid.slices = other.slices;
    grid.slicePitch = other.rows * grid.pitch;
  }
  return grid.rows == other.rows && grid.slices == other.slices ? std::optional(grid)
                                                                : std::nullopt;
}

accel::StridedCopy::Side sideOf(const Grid& grid) {
  return {static_cast<std::uint64_t>(grid.offset), grid.pitch, grid.slicePitch, false};
}

}  // namespace

std::optional<Grid> gridOf(const Layout& layout) {
  const std::vector<Dim>& dims = layout.dims();
  if (layout.blocks().size() != 1 || dims.size() > 2) {
    return std::nullopt;
  }
  std::int64_t inner = layout.blocks()[0].bytes;
  for (std::size_t i = dims.size(); i-- > 0;) {
    const std::int64_t unit = i + 1 < dims.size() ? dims[i + 1].stride : 1;
    if (dims[i].stride < inner || dims[i].stride % unit != 0) {
      return std::nullopt;
    }
    inner = (dims[i].count - 1) * dims[i].stride + inner;
  }
  Grid grid;
  grid.offset = layout.blocks()[0].offset;
  grid.rowBytes = layout.blocks()[0].bytes;
  grid.rows = dims.empty() ? 1 : dims.back().count;
  grid.pitch = dims.empty() ? grid.rowBytes : dims.back().stride;
  grid.slices = dims.size() < 2 ? 1 : dims.front().count;
  grid.slicePitch = dims.size() < 2 ? grid.rows * grid.pitch : dims.front().stride;
  return grid;
}

std::optional<accel::StridedCopy> stridedCopy(const Layout& target, const Layout& source) {
  const auto to = gridOf(target);
  const auto from = gridOf(source);
  if (!to || !from || target.bytes() != source.bytes()) {
    return std::nullopt;
  }
  // The one with more dimensions decides.
  const auto toAs = arrangedAs(*from, *to);
  const auto fromAs = toAs ? std::optional(*from) : arrangedAs(*to, *from);
  if (!fromAs) {
    return std::nullopt;
  }
  const Grid& rows = toAs ? *toAs : *to;
  accel::StridedCopy copy;
  copy.target = sideOf(rows);
  copy.source = sideOf(*fromAs);
  copy.rowBytes = rows.rowBytes;
  copy.rows = rows.rows;
  copy.slices = rows.slices;
  return copy;
}

}  // namespace gmac::datatype
