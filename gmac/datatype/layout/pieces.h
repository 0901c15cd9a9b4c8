// SPDX-License-Identifier: Apache-2.0
//
// The contiguous pieces of a layout as an application sees them: in packed order, neighbours joined
// wherever they touch, across repetitions too.
#ifndef GMAC_DATATYPE_LAYOUT_PIECES_H_
#define GMAC_DATATYPE_LAYOUT_PIECES_H_

#include <cstdint>

#include "gmac/datatype/layout/layout.h"

namespace gmac::datatype {

// The number of pieces. O(dims).
std::int64_t pieceCount(const Layout& layout);

// Writes at most `room` pieces from number `first` on, and returns how many. O(dims + log blocks +
// pieces written).
std::int64_t readPieces(const Layout& layout, std::int64_t first, std::int64_t room, Block* pieces);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_LAYOUT_PIECES_H_
