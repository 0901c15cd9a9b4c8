// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/layout/touched.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

namespace gmac::datatype {
namespace {

using Ranges = std::vector<Bounds>;

// Collects the ranges for one gap; gives up when there are too many. For the stack.
class Collector {
 public:
  Collector(const Layout& layout, std::int64_t gap) : layout_(layout), gap_(gap) {
    // rows_[d]: packed bytes of one index of dims[d].
    rows_.resize(layout.dims().size());
    std::int64_t bytes = layout.listBytes();
    for (std::size_t d = rows_.size(); d-- > 0;) {
      rows_[d] = bytes;
      bytes *= layout.dims()[d].count;
    }
  }

  std::optional<Ranges> part(std::int64_t offset, std::int64_t bytes) {
    Ranges ranges = partOf(0, offset, bytes);
    return tooMany_ ? std::nullopt : std::optional(std::move(ranges));
  }

 private:
  // Sorted, with small gaps bridged.
  void join(Ranges& ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const Bounds& a, const Bounds& b) { return a.first < b.first; });
    std::size_t last = 0;
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].first - ranges[last].last < gap_) {
        ranges[last].last = std::max(ranges[last].last, ranges[i].last);
      } else {
        ranges[++last] = ranges[i];
      }
    }
    ranges.resize(std::min(ranges.size(), last + 1));
    tooMany_ |= ranges.size() > kMaxTouched;
  }

  // Adds a part of one pass over the list.
  Ranges listPart(std::int64_t offset, std::int64_t bytes) {
    const auto blocks = layout_.blocks();
    std::size_t i = layout_.blockAt(offset);
    Ranges ranges;
    for (std::int64_t at = layout_.startOf(i); at < offset + bytes; ++i) {
      const Block& block = blocks[i];
      const std::int64_t from = std::max<std::int64_t>(0, offset - at);
      const std::int64_t to = std::min(block.bytes, offset + bytes - at);
      const Bounds range{block.offset + from, block.offset + to};
      // The usual lists ascend, and never need this.
      if (!ranges.empty() && range.first >= ranges.back().first &&
          range.first - ranges.back().last < gap_) {
        ranges.back().last = std::max(ranges.back().last, range.last);
      } else {
        ranges.push_back(range);
      }
      at += block.bytes;
    }
    join(ranges);
    return ranges;
  }

  // Adds `inner` for the indices [from, to) of a dim.
  Ranges repeat(const Ranges& inner, Dim dim, std::int64_t from, std::int64_t to) {
    Ranges ranges;
    if (inner.empty() || from >= to) {
      return ranges;
    }
    const std::int64_t low = std::min(from * dim.stride, (to - 1) * dim.stride);
    const std::int64_t high = std::max(from * dim.stride, (to - 1) * dim.stride);
    if (inner.size() == 1 && std::abs(dim.stride) - (inner[0].last - inner[0].first) < gap_) {
      ranges.push_back({inner[0].first + low, inner[0].last + high});
      return ranges;
    }
    if (static_cast<std::int64_t>(inner.size()) >
        static_cast<std::int64_t>(4 * kMaxTouched) / (to - from)) {
      tooMany_ = true;
      return ranges;
    }
    for (std::int64_t i = from; i < to; ++i) {
      for (const Bounds& range : inner) {
        ranges.push_back({range.first + i * dim.stride, range.last + i * dim.stride});
      }
    }
    join(ranges);
    return ranges;
  }

  // Adds a part of what dims[d] and the dims inside of it span.
  Ranges partOf(std::size_t d, std::int64_t offset, std::int64_t bytes) {
    if (tooMany_ || bytes == 0) {
      return {};
    }
    if (d == rows_.size()) {
      return listPart(offset, bytes);
    }
    const std::int64_t row = rows_[d];
    const std::int64_t end = offset + bytes;
    const std::int64_t firstRow = offset / row;
    const std::int64_t lastRow = (end - 1) / row;
    const Dim dim = layout_.dims()[d];
    Ranges ranges;
    const auto add = [&](std::int64_t from, std::int64_t to, const Ranges& inner) {
      Ranges more = repeat(inner, dim, from, to);
      ranges.insert(ranges.end(), more.begin(), more.end());
    };
    const std::int64_t whole = (offset + row - 1) / row;  // rows that begin in the part
    const std::int64_t wholeEnd = end / row;
    if (whole < wholeEnd) {
      add(whole, wholeEnd, partOf(d + 1, 0, row));
    }
    if (firstRow < whole) {
      const std::int64_t from = offset - firstRow * row;
      add(firstRow, firstRow + 1, partOf(d + 1, from, std::min(row - from, bytes)));
    }
    if (lastRow >= wholeEnd && lastRow >= whole) {
      add(lastRow, lastRow + 1, partOf(d + 1, 0, end - lastRow * row));
    }
    join(ranges);
    return ranges;
  }

  const Layout& layout_;
  const std::int64_t gap_;
  std::vector<std::int64_t> rows_;
  bool tooMany_ = false;
};

}  // namespace

std::vector<Bounds> touched(const Layout& layout, std::int64_t offset, std::int64_t bytes,
                            std::int64_t gap) {
  constexpr std::int64_t kMaxGap = std::int64_t{1} << 60;
  for (gap = std::max<std::int64_t>(gap, 1); gap < kMaxGap; gap *= 4) {
    if (auto ranges = Collector(layout, gap).part(offset, bytes)) {
      return *std::move(ranges);
    }
  }
  return {layout.boundsOf(offset, bytes)};
}

}  // namespace gmac::datatype
