// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/layout.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "gmac/datatype/period.h"

namespace gmac::datatype {
namespace {

using std::int64_t;

bool operator==(const Block& a, const Block& b) {
  return a.offset == b.offset && a.bytes == b.bytes;
}

Status doesNotFit() {
  return fail(adsmErrorInvalidValue, "the layout's bytes or bounds do not fit into 63 bits");
}

// Drops what is empty and joins neighbours, in place. False when a block or the span of all leaves
// 63 bits.
bool compact(std::vector<Block>& blocks) {
  std::size_t used = 0;
  int64_t first = 0;
  int64_t last = 0;
  for (const Block& block : blocks) {
    if (block.bytes == 0) {
      continue;
    }
    int64_t end = 0;
    if (__builtin_add_overflow(block.offset, block.bytes, &end)) {
      return false;
    }
    first = used == 0 ? block.offset : std::min(first, block.offset);
    last = used == 0 ? end : std::max(last, end);
    if (used > 0 && blocks[used - 1].offset + blocks[used - 1].bytes == block.offset) {
      // Within [first, last), which is looked at below.
      blocks[used - 1].bytes += block.bytes;
    } else {
      blocks[used++] = block;
    }
  }
  blocks.resize(used);
  int64_t span = 0;
  return !__builtin_sub_overflow(last, first, &span);
}

// The smallest number of blocks after which the sequence repeats, whole blocks each time.
std::size_t wholePeriod(const std::vector<Block>& blocks) {
  const std::size_t count = blocks.size();
  return smallestPeriod(count, [&](std::size_t period, std::size_t known) {
    const int64_t stride = blocks[period].offset - blocks[0].offset;
    const std::size_t end = std::min(count, known + period);
    for (std::size_t i = period; i < end; ++i) {
      if (blocks[i].bytes != blocks[i - period].bytes ||
          blocks[i].offset - blocks[i - period].offset != stride) {
        return false;
      }
    }
    return true;
  });
}

// The same where the last block of a repetition has been joined with the first of the next: how
// many blocks begin in each repetition, its joined first one aside. count - 1 when there is no such
// repetition.
std::size_t joinedPeriod(const std::vector<Block>& blocks) {
  const std::size_t last = blocks.size() - 1;
  return smallestPeriod(last, [&](std::size_t period, std::size_t known) {
    // The part of block `period` that belongs to the first repetition is as long as the last block.
    const int64_t stride = blocks[period].offset + blocks[last].bytes - blocks[0].offset;
    if (blocks[last - period].bytes != blocks[0].bytes + blocks[last].bytes ||
        blocks[last].offset - blocks[last - period].offset != stride) {
      return false;
    }
    const std::size_t end = std::min(last, known + period + 1);
    for (std::size_t i = period + 1; i < end; ++i) {
      if (blocks[i].bytes != blocks[i - period].bytes ||
          blocks[i].offset - blocks[i - period].offset != stride) {
        return false;
      }
    }
    return true;
  });
}

// Cuts a compact list down to its smallest period, again and again; gives the dims that are around
// what is left, outermost first.
std::vector<Dim> foldList(std::vector<Block>& blocks) {
  std::vector<Dim> dims;
  while (blocks.size() > 1) {
    const std::size_t count = blocks.size();
    if (const std::size_t period = wholePeriod(blocks); period < count) {
      dims.push_back(
          {static_cast<int64_t>(count / period), blocks[period].offset - blocks[0].offset});
      blocks.resize(period);
      continue;
    }
    const std::size_t period = count > 2 ? joinedPeriod(blocks) : 1;
    if (count == 2 || period == count - 1) {
      break;
    }
    const int64_t tail = blocks[count - 1].bytes;
    dims.push_back({static_cast<int64_t>((count - 1) / period),
                    blocks[period].offset + tail - blocks[0].offset});
    blocks[period].bytes = tail;
    blocks.resize(period + 1);
  }
  if (blocks.capacity() > 2 * blocks.size()) {
    blocks.shrink_to_fit();
  }
  return dims;
}

Bounds shifted(Bounds bounds, int64_t by) { return {bounds.first + by, bounds.last + by}; }

Bounds both(Bounds a, Bounds b) { return {std::min(a.first, b.first), std::max(a.last, b.last)}; }

// Of repetitions [from, to), to > from.
Bounds swept(Bounds one, int64_t stride, int64_t from, int64_t to) {
  return both(shifted(one, from * stride), shifted(one, (to - 1) * stride));
}

}  // namespace

bool operator==(const Layout& a, const Layout& b) {
  return a.dims_ == b.dims_ &&
         std::equal(a.blocks_.begin(), a.blocks_.end(), b.blocks_.begin(), b.blocks_.end(),
                    [](const Block& x, const Block& y) { return x == y; });
}

bool Layout::surround(Dim dim) {
  if (dim.count == 1) {
    return true;
  }
  if (dims_.empty() && blocks_.size() == 1 && dim.stride == blocks_[0].bytes) {
    return !__builtin_mul_overflow(blocks_[0].bytes, dim.count, &blocks_[0].bytes);
  }
  if (!dims_.empty()) {
    // A period of the whole that is shorter than `dims_` has to be the one that dims_ begins with.
    Dim& outer = dims_.front();
    int64_t pitch = 0;
    if (!__builtin_mul_overflow(outer.count, outer.stride, &pitch) && pitch == dim.stride) {
      return !__builtin_mul_overflow(outer.count, dim.count, &outer.count);
    }
  }
  dims_.insert(dims_.begin(), dim);
  return true;
}

bool Layout::measure() {
  if (blocks_.empty()) {
    return true;
  }
  levels_.resize(dims_.size() + 1);
  const std::size_t count = blocks_.size();
  starts_.resize(count > 1 ? count + 1 : 0);
  Bounds bounds{blocks_[0].offset, blocks_[0].offset};
  int64_t packed = 0;
  int64_t before = blocks_[0].offset;
  bool alike = true;
  bool ascending = true;
  for (std::size_t i = 0; i < count; ++i) {
    const Block block = blocks_[i];
    if (count > 1) {
      starts_[i] = packed;
    }
    int64_t end = 0;
    if (__builtin_add_overflow(packed, block.bytes, &packed) ||
        __builtin_add_overflow(block.offset, block.bytes, &end)) {
      return false;
    }
    ascending = ascending && before <= block.offset;
    before = end;
    alike = alike && block.bytes == blocks_[0].bytes;
    bounds = both(bounds, {block.offset, end});
  }
  if (count > 1) {
    starts_[count] = packed;
  }
  listBytes_ = packed;
  ascending_ = ascending;
  blockBytes_ = alike ? blocks_[0].bytes : 0;
  levels_.back() = {listBytes_, bounds};
  blockCount_ = static_cast<int64_t>(count);
  for (std::size_t i = dims_.size(); i-- > 0;) {
    const Dim dim = dims_[i];
    int64_t reach = 0;
    Level level = levels_[i + 1];
    if (__builtin_mul_overflow(dim.count - 1, dim.stride, &reach) ||
        __builtin_mul_overflow(level.bytes, dim.count, &level.bytes) ||
        (reach < 0 && __builtin_add_overflow(level.bounds.first, reach, &level.bounds.first)) ||
        (reach > 0 && __builtin_add_overflow(level.bounds.last, reach, &level.bounds.last))) {
      return false;
    }
    levels_[i] = level;
    // Every entry has a byte or more, so that their number fits when their bytes do.
    blockCount_ *= dim.count;
  }
  bytes_ = levels_[0].bytes;
  bounds_ = levels_[0].bounds;
  int64_t span = 0;
  return !__builtin_sub_overflow(bounds_.last, bounds_.first, &span);
}

Result<Layout> Layout::make(const std::vector<Dim>& dims, std::vector<Block> blocks) {
  for (const Dim& dim : dims) {
    if (dim.count < 0) {
      return fail(adsmErrorInvalidValue, "a layout's dim has count {}", dim.count);
    }
  }
  for (const Block& block : blocks) {
    if (block.bytes < 0) {
      return fail(adsmErrorInvalidValue, "a layout's block has {} bytes", block.bytes);
    }
  }
  if (!compact(blocks)) {
    return doesNotFit();
  }
  Layout inner;
  if (!blocks.empty()) {
    inner.dims_ = foldList(blocks);
    inner.blocks_ = std::move(blocks);
  }
  return std::move(inner).finished(dims, 0);
}

Result<Layout> Layout::arranged(const std::vector<Dim>& dims, int64_t offset) const {
  Layout copy;
  copy.dims_ = dims_;
  copy.blocks_ = blocks_;
  return std::move(copy).finished(dims, offset);
}

Result<Layout> Layout::finished(const std::vector<Dim>& dims, int64_t offset) && {
  const auto none = [](const Dim& dim) { return dim.count == 0; };
  if (blocks_.empty() || std::any_of(dims.begin(), dims.end(), none)) {
    return Layout();
  }
  if (offset != 0) {
    for (Block& block : blocks_) {
      if (__builtin_add_overflow(block.offset, offset, &block.offset)) {
        return doesNotFit();
      }
    }
  }
  dims_.reserve(dims_.size() + dims.size());
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (!surround(dims[i])) {
      return doesNotFit();
    }
  }
  if (!measure()) {
    return doesNotFit();
  }
  return std::move(*this);
}

Result<Layout> Layout::repeated(int64_t count, int64_t extent) const {
  return arranged({{count, extent}}, 0);
}

Bounds Layout::listPart(int64_t from, int64_t to) const {
  if (blocks_.size() == 1) {
    return {blocks_[0].offset + from, blocks_[0].offset + to};
  }
  const auto blockAt = [this](int64_t packed) {
    return static_cast<std::size_t>(
        std::distance(starts_.begin(),
                      std::upper_bound(starts_.begin(), starts_.end() - 1, packed)) -
        1);
  };
  const std::size_t first = blockAt(from);
  const std::size_t last = blockAt(to - 1);
  const Bounds ends{blocks_[first].offset + (from - starts_[first]),
                    blocks_[last].offset + (to - starts_[last])};
  return first == last || ascending_ ? ends : levels_.back().bounds;
}

Bounds Layout::part(std::size_t level, int64_t from, int64_t to) const {
  if (from == 0 && to == levels_[level].bytes) {
    return levels_[level].bounds;
  }
  if (level == dims_.size()) {
    return listPart(from, to);
  }
  const int64_t stride = dims_[level].stride;
  const int64_t inner = levels_[level + 1].bytes;
  const int64_t first = from / inner;
  const int64_t last = (to - 1) / inner;
  if (first == last) {
    return shifted(part(level + 1, from - first * inner, to - first * inner), first * stride);
  }
  // A part at the front, a part at the back, whole repetitions between. Both parts touch an end of
  // their repetition, so that further down only one of two is cut again: O(dims).
  Bounds bounds = both(shifted(part(level + 1, from - first * inner, inner), first * stride),
                       shifted(part(level + 1, 0, to - last * inner), last * stride));
  if (last - first > 1) {
    bounds = both(bounds, swept(levels_[level + 1].bounds, stride, first + 1, last));
  }
  return bounds;
}

Bounds Layout::boundsOf(int64_t offset, int64_t bytes) const {
  const int64_t from = std::max<int64_t>(offset, 0);
  const int64_t to = bytes > bytes_ - from ? bytes_ : from + bytes;
  if (from == 0 && to == bytes_) {
    return bounds_;
  }
  return from < to ? part(0, from, to) : Bounds{};
}

void Layout::forEach(int64_t offset, int64_t bytes,
                     const std::function<void(int64_t, int64_t, int64_t)>& piece) const {
  if (offset < 0 || offset >= bytes_ || bytes <= 0) {
    return;
  }
  const int64_t end = bytes > bytes_ - offset ? bytes_ : offset + bytes;
  // Where the part begins: an index, the base that belongs to it, and a position in the list.
  std::vector<int64_t> index(dims_.size());
  int64_t base = 0;
  int64_t rest = offset;
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    index[i] = rest / levels_[i + 1].bytes;
    rest -= index[i] * levels_[i + 1].bytes;
    base += index[i] * dims_[i].stride;
  }
  std::size_t block = 0;
  if (blocks_.size() > 1) {
    block = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end() - 1, rest) -
                                     starts_.begin()) -
            1;
    rest -= starts_[block];
  }
  for (int64_t packed = offset; packed < end;) {
    for (; block < blocks_.size() && packed < end; ++block) {
      const int64_t length = std::min(blocks_[block].bytes - rest, end - packed);
      piece(base + blocks_[block].offset + rest, packed, length);
      packed += length;
      rest = 0;
    }
    block = 0;
    for (std::size_t i = dims_.size(); i-- > 0;) {
      if (++index[i] < dims_[i].count) {
        base += dims_[i].stride;
        break;
      }
      base -= (dims_[i].count - 1) * dims_[i].stride;
      index[i] = 0;
    }
  }
}

namespace {

// Three digits and a unit; up to 9999 the bytes themselves.
std::string sizeText(int64_t bytes) {
  if (bytes < 10000) {
    return fmt::format("{} B", bytes);
  }
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  while (std::round(value) >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.0f} {}", value, kUnits[unit]);
}

}  // namespace

std::string Layout::describe() const {
  if (blocks_.empty()) {
    return "empty";
  }
  std::string text;
  if (blocks_.size() > 1) {
    text = fmt::format("list of {} blocks, {}", blocks_.size(), sizeText(listBytes_));
  } else {
    text = fmt::format("{} {} B", dims_.empty() ? "contiguous" : "strided", blocks_[0].bytes);
  }
  for (std::size_t i = dims_.size(); i-- > 0;) {
    text += fmt::format(" x {} @ {}", dims_[i].count, dims_[i].stride);
  }
  if (blocks_.size() == 1 && blocks_[0].offset != 0) {
    text += fmt::format(", from {}", blocks_[0].offset);
  }
  return text;
}

}  // namespace gmac::datatype
