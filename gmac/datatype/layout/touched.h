// SPDX-License-Identifier: Apache-2.0
//
// The ranges of memory that a part of a layout covers, coarsely: those to be released, held or
// invalidated for it.
#ifndef GMAC_DATATYPE_LAYOUT_TOUCHED_H_
#define GMAC_DATATYPE_LAYOUT_TOUCHED_H_

#include <cstdint>
#include <vector>

#include "gmac/datatype/layout/layout.h"

namespace gmac::datatype {

// The ranges, ascending and disjoint, that hold all bytes of the part [offset, offset + bytes) in
// packed order, bytes > 0. Gaps between two ranges have at least `gap` bytes, or more if there
// would be more than kMaxTouched ranges. Thread-safe.
inline constexpr std::size_t kMaxTouched = 4096;
std::vector<Bounds> touched(const Layout& layout, std::int64_t offset, std::int64_t bytes,
                            std::int64_t gap);

// Whether a byte of the part [offset, offset + bytes) in packed order lies in `range`, both
// relative to the base; exact. O(blocks of one pass over the list) where repetitions do not
// interleave, at worst O(blocks of the part). Thread-safe.
bool touches(const Layout& layout, std::int64_t offset, std::int64_t bytes, Bounds range);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_LAYOUT_TOUCHED_H_
