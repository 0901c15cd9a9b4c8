// SPDX-License-Identifier: Apache-2.0
//
// Layouts of all forms, with the offset of each of their bytes by a walk of its own.
#ifndef GMAC_TESTS_EXCHANGE_RANDOM_LAYOUT_H_
#define GMAC_TESTS_EXCHANGE_RANDOM_LAYOUT_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "gmac/datatype/layout/layout.h"

namespace gmac::testing {

struct RandomLayout {
  datatype::Layout layout;
  std::vector<std::int64_t> offsets;  // by packed position; all different, all >= 0
  std::int64_t span = 0;              // greater than all of them
};

// Of about `bytes` bytes, and at least one.
inline RandomLayout randomLayout(std::mt19937_64& random, std::int64_t bytes) {
  using datatype::Block;
  using datatype::Dim;
  using std::int64_t;
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  constexpr int64_t kWidths[] = {1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 100, 128, 256, 1000, 5000};
  const auto width = [&] { return std::min(kWidths[below(std::size(kWidths))], bytes); };
  // One period: a block, or a list of blocks in any order.
  std::vector<Block> blocks;
  int64_t period = 0;
  int64_t inPeriod = 0;
  const bool alike = below(2) == 0;
  const int64_t first = width();
  const int64_t many = below(3) == 0 ? 1 + below(std::min<int64_t>(40, bytes)) : 1;
  for (int64_t i = 0; i < many && (i == 0 || inPeriod < bytes); ++i) {
    const int64_t length = alike ? first : width();
    blocks.push_back({period, length});
    inPeriod += length;
    period += length + (below(4) == 0 ? 0 : below(2 * length + 8));
  }
  if (below(3) == 0) {
    std::shuffle(blocks.begin(), blocks.end(), random);
  }
  // Up to three dims around it, of which each passes over the ones before.
  std::vector<Dim> dims;
  int64_t all = inPeriod;
  for (int64_t level = below(4); level > 0 && 2 * all <= bytes; --level) {
    const int64_t count = level == 1 ? std::max<int64_t>(1, bytes / all)
                                     : std::min<int64_t>(1 + below(20), bytes / all);
    const int64_t stride = period + (below(3) == 0 ? 0 : below(period + 16));
    dims.insert(dims.begin(), {count, below(6) == 0 ? -stride : stride});
    all *= count;
    period = count * stride;
  }
  RandomLayout made;
  std::vector<int64_t> index(dims.size());
  for (bool more = true; more;) {
    int64_t base = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      base += index[i] * dims[i].stride;
    }
    for (const Block& block : blocks) {
      for (int64_t at = 0; at < block.bytes; ++at) {
        made.offsets.push_back(base + block.offset + at);
      }
    }
    more = false;
    for (std::size_t i = dims.size(); i-- > 0 && !more;) {
      more = ++index[i] < dims[i].count;
      index[i] = more ? index[i] : 0;
    }
  }
  const int64_t low = *std::min_element(made.offsets.begin(), made.offsets.end());
  for (int64_t& offset : made.offsets) {
    offset -= low;
    made.span = std::max(made.span, offset + 1);
  }
  const auto layout = datatype::Layout::make(dims, blocks);
  const auto shifted = layout.ok() ? layout->arranged({}, -low) : layout;
  if (!shifted.ok()) {
    std::abort();
  }
  made.layout = *shifted;
  return made;
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_EXCHANGE_RANDOM_LAYOUT_H_
