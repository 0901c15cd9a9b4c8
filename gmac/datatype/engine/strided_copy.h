// SPDX-License-Identifier: Apache-2.0
//
// Layouts that a device's strided copy can do.
#ifndef GMAC_DATATYPE_ENGINE_STRIDED_COPY_H_
#define GMAC_DATATYPE_ENGINE_STRIDED_COPY_H_

#include <cstdint>
#include <optional>

#include "gmac/accel/commands.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::datatype {

// A layout as slices of rows.
struct Grid {
  std::int64_t offset = 0;  // of the first row
  std::int64_t rowBytes = 0;
  std::int64_t rows = 1;
  std::int64_t pitch = 0;  // bytes from one row to the next
  std::int64_t slices = 1;
  std::int64_t slicePitch = 0;  // and from one slice to the next
};

// Contiguous and strided layouts of at most three dimensions whose rows do not overlap, and whose
// slices are whole pitches apart. Empty for all others.
std::optional<Grid> gridOf(const Layout& layout);

// The copy from all of one layout to all of the other, with addresses relative to the layouts'
// origins. Empty where their rows have different lengths, or come in different slices, and neither
// is contiguous; and where one of them is no grid.
std::optional<accel::StridedCopy> stridedCopy(const Layout& target, const Layout& source);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_STRIDED_COPY_H_
