// SPDX-License-Identifier: Apache-2.0
//
// How much a read fault fetches ahead.
#ifndef GMAC_COHERENCE_READ_RUNS_H_
#define GMAC_COHERENCE_READ_RUNS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "gmac/coherence/block_index.h"

namespace gmac {

// The fetches of some readers of one object, each in order. Guarded like the object. Constant
// time but for the blocks that are fetched, allocates nothing.
class ReadRuns {
 public:
  // The blocks that one read fault fetches: the faulting one alone, unless it continues what an
  // earlier fault has fetched, after its end or before its beginning. Then twice as much as that,
  // up to `limit` blocks, so that a reader of n blocks in order faults about log2(n) times.
  //
  // The worst case is a reader that stops: it has fetched as much again as it has read, and no more
  // than the limit. A reader that leaves out blocks between those it reads fetches nothing ahead.
  //
  // `fetchable(block)`: whether a neighbour can come, too.
  template <typename Fetchable>
  BlockRange extend(BlockIndex index, BlockRange all, std::size_t limit, Fetchable fetchable) {
    auto run = std::find_if(runs_.begin(), runs_.end(), [&](const BlockRange& r) {
      return !r.empty() && (index == r.end || index + 1 == r.begin);
    });
    const bool sequential = run != runs_.end();
    const bool backward = sequential && index + 1 == run->begin;
    const std::size_t wanted = sequential ? std::min(2 * (run->end - run->begin), limit) : 0;
    const std::size_t most = std::max<std::size_t>(1, wanted);
    BlockRange range{index, index + 1};
    while (range.end - range.begin < most) {
      if (backward && range.begin > all.begin && fetchable(range.begin - 1)) {
        range.begin = range.begin - 1;
      } else if (!backward && range.end < all.end && fetchable(range.end)) {
        range.end = range.end + 1;
      } else {
        break;
      }
    }
    (sequential ? *run : takeOldest()) = range;
    return range;
  }

  // A reader in order has been served at a block without read-ahead: the next block continues the
  // run.
  void note(BlockIndex index) {
    for (BlockRange& run : runs_) {
      if (!run.empty() && index == run.end) {
        run.end = index + 1;
        return;
      }
      if (!run.empty() && index + 1 == run.begin) {
        run.begin = index;
        return;
      }
    }
    takeOldest() = {index, index + 1};
  }

 private:
  BlockRange& takeOldest() {
    BlockRange& run = runs_[oldest_];
    oldest_ = static_cast<std::uint8_t>((oldest_ + 1) % runs_.size());
    return run;
  }

  std::array<BlockRange, 4> runs_;  // what the last fetch of each reader took
  std::uint8_t oldest_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_READ_RUNS_H_
