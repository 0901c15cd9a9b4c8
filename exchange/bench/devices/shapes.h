// SPDX-License-Identifier: Apache-2.0
//
// Layouts as arguments of the kernels written by hand.
#ifndef GMAC_EXCHANGE_BENCH_DEVICES_SHAPES_H_
#define GMAC_EXCHANGE_BENCH_DEVICES_SHAPES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "exchange/bench/devices/kernels.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::bench {

// A place, and its table before that lies on the device.
struct Shape {
  Place place;
  std::vector<std::uint32_t> table;
};
// In words of that many bytes. Nothing: no formula of the above fits the layout.
std::optional<Shape> shapeOf(const datatype::Layout& layout, std::int64_t wordBytes);
// The most bytes of a word, at most 16, that both layouts consist of.
std::int64_t wordOf(const datatype::Layout& from, const datatype::Layout& to);

// The pieces that both sides have in one, in packed order.
std::vector<Piece> piecesOf(const datatype::Layout& from, const datatype::Layout& to);

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_DEVICES_SHAPES_H_
