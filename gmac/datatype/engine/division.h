// SPDX-License-Identifier: Apache-2.0
//
// Divides an operation between the CPU and the accelerator.
#ifndef GMAC_DATATYPE_ENGINE_DIVISION_H_
#define GMAC_DATATYPE_ENGINE_DIVISION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::datatype {

// A part in packed order, and where the bytes of the strided side are current.
struct Portion {
  std::int64_t offset;
  std::int64_t bytes;
  coherence::Current current;  // kBoth: either place will do; kNotShared: not an object's memory
};

// Divides the part [offset, offset + bytes), bytes > 0, of a layout at `base`: ascending, without
// gaps; each portion's blocks are all current at the place it names. Where blocks of both kinds
// alternate within less than `least` packed bytes, or more than kMaxPortions times, they count as
// the accelerator's, and those that are current on the CPU are flushed first. A snapshot;
// thread-safe.
inline constexpr std::size_t kMaxPortions = 256;
std::vector<Portion> divide(const Layout& layout, const std::byte* base, std::int64_t offset,
                            std::int64_t bytes, std::int64_t least);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_DIVISION_H_
