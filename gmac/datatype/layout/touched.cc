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

bool meet(Bounds a, Bounds b) { return a.first < b.last && b.first < a.last; }

Bounds shifted(Bounds bounds, std::int64_t by) { return {bounds.first + by, bounds.last + by}; }

std::int64_t floorOf(std::int64_t numerator, std::int64_t divisor) {
  const std::int64_t quotient = numerator / divisor;
  return quotient - ((numerator % divisor != 0 && (numerator < 0) != (divisor < 0)) ? 1 : 0);
}

// Looks for a byte of a range. For the stack.
class Search {
 public:
  explicit Search(const Layout& layout) : layout_(layout), rows_(layout.dims().size() + 1) {
    list_ = {layout.blocks()[0].offset, layout.blocks()[0].offset};
    for (const Block& block : layout.blocks()) {
      list_.first = std::min(list_.first, block.offset);
      list_.last = std::max(list_.last, block.offset + block.bytes);
    }
    rows_.back() = layout.listBytes();
    for (std::size_t d = layout.dims().size(); d-- > 0;) {
      rows_[d] = rows_[d + 1] * layout.dims()[d].count;
    }
  }

  // The part [offset, offset + bytes) of one index of the first d dims, at offset 0.
  bool part(std::size_t d, std::int64_t offset, std::int64_t bytes, Bounds range) const {
    if (bytes <= 0) {
      return false;
    }
    if (d == layout_.dims().size()) {
      return listPart(offset, bytes, range);
    }
    const std::int64_t row = rows_[d + 1];
    const std::int64_t end = offset + bytes;
    const std::int64_t whole = (offset + row - 1) / row;  // rows that begin in the part
    const std::int64_t wholeEnd = end / row;
    if (whole > wholeEnd) {  // inside one row
      return rowPart(d, wholeEnd, offset - wholeEnd * row, bytes, range);
    }
    const std::int64_t before = whole * row - offset;
    return rows(d, whole, wholeEnd, range) || rowPart(d, whole - 1, row - before, before, range) ||
           rowPart(d, wholeEnd, 0, end - wholeEnd * row, range);
  }

 private:
  // Dims in any order, and the bounds of one index of those before each: the list's at the end.
  struct Nest {
    std::vector<Dim> dims;
    std::vector<Bounds> bounds;
  };

  bool rowPart(std::size_t d, std::int64_t index, std::int64_t offset, std::int64_t bytes,
               Bounds range) const {
    return part(d + 1, offset, bytes, shifted(range, -index * layout_.dims()[d].stride));
  }

  // All of the indices [from, to). Their order does not matter: with the longest strides outside,
  // few indices of a dim reach the range.
  bool rows(std::size_t d, std::int64_t from, std::int64_t to, Bounds range) const {
    if (from >= to) {
      return false;
    }
    Nest nest;
    nest.dims.assign(layout_.dims().begin() + static_cast<std::ptrdiff_t>(d), layout_.dims().end());
    range = shifted(range, -from * nest.dims[0].stride);
    nest.dims[0].count = to - from;
    std::stable_sort(nest.dims.begin(), nest.dims.end(), [](const Dim& a, const Dim& b) {
      return std::abs(a.stride) > std::abs(b.stride);
    });
    nest.bounds.assign(nest.dims.size() + 1, list_);
    for (std::size_t i = nest.dims.size(); i-- > 0;) {
      const std::int64_t reach = (nest.dims[i].count - 1) * nest.dims[i].stride;
      nest.bounds[i] = {nest.bounds[i + 1].first + std::min<std::int64_t>(reach, 0),
                        nest.bounds[i + 1].last + std::max<std::int64_t>(reach, 0)};
    }
    return whole(nest, 0, range);
  }

  // All of one index of the nest's first `level` dims.
  bool whole(const Nest& nest, std::size_t level, Bounds range) const {
    if (!meet(nest.bounds[level], range)) {
      return false;
    }
    if (level == nest.dims.size()) {
      return listPart(0, layout_.listBytes(), range);
    }
    const Dim dim = nest.dims[level];
    std::int64_t from = 0;
    std::int64_t to = dim.stride != 0 ? dim.count : 1;
    if (dim.stride != 0) {
      // range.first - inner.last < index * stride < range.last - inner.first
      const Bounds inner = nest.bounds[level + 1];
      const std::int64_t above = range.first - inner.last;
      const std::int64_t below = range.last - inner.first;
      from = std::max(from, floorOf(dim.stride > 0 ? above : below, dim.stride) + 1);
      to = std::min(to, -floorOf(dim.stride > 0 ? -below : -above, dim.stride));
    }
    for (std::int64_t i = from; i < to; ++i) {
      if (whole(nest, level + 1, shifted(range, -i * dim.stride))) {
        return true;
      }
    }
    return false;
  }

  bool listPart(std::int64_t offset, std::int64_t bytes, Bounds range) const {
    if (!meet(list_, range)) {
      return false;
    }
    const auto blocks = layout_.blocks();
    std::size_t i = layout_.blockAt(offset);
    for (std::int64_t at = layout_.startOf(i); at < offset + bytes; at += blocks[i++].bytes) {
      const Block& block = blocks[i];
      const std::int64_t first = block.offset + std::max<std::int64_t>(0, offset - at);
      const std::int64_t last = block.offset + std::min(block.bytes, offset + bytes - at);
      if (meet({first, last}, range)) {
        return true;
      }
    }
    return false;
  }

  const Layout& layout_;
  std::vector<std::int64_t> rows_;  // packed bytes of one index of the first i dims
  Bounds list_;
};

}  // namespace

bool touches(const Layout& layout, std::int64_t offset, std::int64_t bytes, Bounds range) {
  return bytes > 0 && Search(layout).part(0, offset, bytes, range);
}

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
