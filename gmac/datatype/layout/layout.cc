// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/layout/layout.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "gmac/datatype/layout/period.h"

namespace gmac::datatype {
namespace {

using std::int64_t;

bool operator==(const Block& a, const Block& b) {
  return a.offset == b.offset && a.bytes == b.bytes;
}

Status doesNotFit() {
  return fail(adsmErrorInvalidValue, "the layout's bytes or bounds do not fit into 63 bits");
}

// The smallest number of blocks after which the sequence repeats, whole blocks each time.
std::size_t wholePeriod(std::span<const Block> blocks) {
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
std::size_t joinedPeriod(std::span<const Block> blocks) {
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

// A sequence that repeats: its first `blocks` blocks, the last of them `lastBytes` long, in `dim`.
struct Repetition {
  Dim dim;
  std::size_t blocks;
  int64_t lastBytes;
};

// By the smallest period; `blocks` has two or more.
std::optional<Repetition> repetitionOf(std::span<const Block> blocks) {
  const std::size_t count = blocks.size();
  if (const std::size_t period = wholePeriod(blocks); period < count) {
    return Repetition{
        {static_cast<int64_t>(count / period), blocks[period].offset - blocks[0].offset},
        period,
        blocks[period - 1].bytes};
  }
  const std::size_t period = count > 2 ? joinedPeriod(blocks) : 1;
  if (period == count - 1) {
    return std::nullopt;
  }
  const int64_t tail = blocks[count - 1].bytes;
  return Repetition{
      {static_cast<int64_t>((count - 1) / period), blocks[period].offset + tail - blocks[0].offset},
      period + 1,
      tail};
}

Bounds shifted(Bounds bounds, int64_t by) { return {bounds.first + by, bounds.last + by}; }

Bounds both(Bounds a, Bounds b) { return {std::min(a.first, b.first), std::max(a.last, b.last)}; }

// Of repetitions [from, to), to > from.
Bounds swept(Bounds one, int64_t stride, int64_t from, int64_t to) {
  return both(shifted(one, from * stride), shifted(one, (to - 1) * stride));
}

}  // namespace

bool operator==(const Layout& a, const Layout& b) {
  if (a.dims_ != b.dims_ || a.list_ == nullptr || b.list_ == nullptr) {
    return a.dims_ == b.dims_ && a.list_ == b.list_ && a.one_ == b.one_;
  }
  const auto same = [](const Block& x, const Block& y) { return x == y; };
  return a.list_ == b.list_ || (a.list_->bytes == b.list_->bytes &&
                                std::equal(a.list_->blocks.begin(), a.list_->blocks.end(),
                                           b.list_->blocks.begin(), b.list_->blocks.end(), same));
}

bool Layout::isCopyOf(const Layout& other) const {
  return dims_ == other.dims_ && list_ == other.list_ && one_ == other.one_;
}

// Cuts the list down to its smallest period, again and again. What does not repeat, the rule for
// long lists, is shared.
void Layout::fold(BlockListPtr list) {
  std::span<const Block> blocks = list->blocks;
  std::vector<Block> shorter;
  while (blocks.size() > 1) {
    const auto repetition = repetitionOf(blocks);
    if (!repetition) {
      break;
    }
    dims_.push_back(repetition->dim);
    if (shorter.empty()) {
      shorter.assign(blocks.begin(),
                     blocks.begin() + static_cast<std::ptrdiff_t>(repetition->blocks));
    } else {
      shorter.resize(repetition->blocks);
    }
    shorter.back().bytes = repetition->lastBytes;
    blocks = shorter;
  }
  if (blocks.size() == 1) {
    one_ = blocks[0];
  } else if (shorter.empty()) {
    list_ = std::move(list);
  } else {
    // Inside of what has been added up before.
    BlockListBuilder again;
    again.reserve(blocks.size());
    for (const Block& block : blocks) {
      (void)again.add(block);
    }
    list_ = again.finish();
  }
}

bool Layout::surround(Dim dim) {
  if (dim.count == 1) {
    return true;
  }
  if (dims_.empty() && list_ == nullptr && dim.stride == one_.bytes) {
    return !__builtin_mul_overflow(one_.bytes, dim.count, &one_.bytes);
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

void Layout::sumUp() {
  const std::vector<Block>& blocks = list_->blocks;
  auto starts = std::make_shared_for_overwrite<int64_t[]>(blocks.size() + 1);
  int64_t packed = 0;
  int64_t* out = starts.get();
  for (const Block& block : blocks) {
    *out++ = packed;
    packed += block.bytes;
  }
  *out = packed;
  starts_ = std::move(starts);
}

bool Layout::measure() {
  Level list{one_.bytes, {one_.offset, 0}};
  if (list_ != nullptr) {
    blockBytes_ = list_->blockBytes;
    if (blockBytes_ == 0 && starts_ == nullptr) {
      sumUp();
    }
    list = {list_->bytes, list_->bounds};
  } else {
    blockBytes_ = one_.bytes;
    if (__builtin_add_overflow(one_.offset, one_.bytes, &list.bounds.last)) {
      return false;
    }
  }
  listBytes_ = list.bytes;
  levels_.resize(dims_.size() + 1);
  levels_.back() = list;
  blockCount_ = static_cast<int64_t>(blocks().size());
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

Result<Layout> Layout::make(const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
  for (const Dim& dim : dims) {
    if (dim.count < 0) {
      return fail(adsmErrorInvalidValue, "a layout's dim has count {}", dim.count);
    }
  }
  BlockListBuilder builder;
  builder.reserve(blocks.size());
  bool fits = true;
  for (const Block& block : blocks) {
    if (block.bytes < 0) {
      return fail(adsmErrorInvalidValue, "a layout's block has {} bytes", block.bytes);
    }
    fits = fits && builder.add(block);
  }
  BlockListPtr list = fits ? builder.finish() : nullptr;
  if (list == nullptr) {
    return doesNotFit();
  }
  Layout inner;
  inner.fold(std::move(list));
  return std::move(inner).finished(dims, 0);
}

Result<Layout> Layout::make(BlockListPtr list) {
  Layout made;
  made.fold(std::move(list));
  return std::move(made).finished({}, 0);
}

Result<Layout> Layout::arranged(const std::vector<Dim>& dims, int64_t offset) const {
  Layout copy;
  copy.dims_ = dims_;
  copy.one_ = one_;
  copy.list_ = list_;
  copy.starts_ = starts_;
  return std::move(copy).finished(dims, offset);
}

bool Layout::shift(int64_t offset) {
  if (list_ == nullptr) {
    return !__builtin_add_overflow(one_.offset, offset, &one_.offset);
  }
  BlockList moved;
  if (__builtin_add_overflow(list_->bounds.first, offset, &moved.bounds.first) ||
      __builtin_add_overflow(list_->bounds.last, offset, &moved.bounds.last)) {
    return false;
  }
  moved.bytes = list_->bytes;
  moved.blockBytes = list_->blockBytes;
  moved.ascending = list_->ascending;
  moved.blocks.reserve(list_->blocks.size());
  for (const Block& block : list_->blocks) {
    moved.blocks.push_back({block.offset + offset, block.bytes});
  }
  list_ = std::make_shared<const BlockList>(std::move(moved));
  return true;
}

Result<Layout> Layout::finished(const std::vector<Dim>& dims, int64_t offset) && {
  const auto none = [](const Dim& dim) { return dim.count == 0; };
  if (blocks().empty() || std::any_of(dims.begin(), dims.end(), none)) {
    return Layout();
  }
  if (offset != 0 && !shift(offset)) {
    return doesNotFit();
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

std::size_t Layout::blockAt(int64_t packed) const {
  if (starts_ == nullptr) {
    return static_cast<std::size_t>(packed / blockBytes_);
  }
  const int64_t* const starts = starts_.get();
  return static_cast<std::size_t>(std::upper_bound(starts, starts + list_->blocks.size(), packed) -
                                  starts - 1);
}

Bounds Layout::listPart(int64_t from, int64_t to) const {
  const std::span<const Block> all = blocks();
  const std::size_t first = blockAt(from);
  const std::size_t last = blockAt(to - 1);
  const Bounds ends{all[first].offset + (from - startOf(first)),
                    all[last].offset + (to - startOf(last))};
  return first == last || list_->ascending ? ends : levels_.back().bounds;
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
  const std::span<const Block> all = blocks();
  std::size_t block = blockAt(rest);
  rest -= startOf(block);
  for (int64_t packed = offset; packed < end;) {
    for (; block < all.size() && packed < end; ++block) {
      const int64_t length = std::min(all[block].bytes - rest, end - packed);
      piece(base + all[block].offset + rest, packed, length);
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
  if (blocks().empty()) {
    return "empty";
  }
  std::string text;
  if (list_ != nullptr) {
    text = fmt::format("list of {} blocks, {}", list_->blocks.size(), sizeText(listBytes_));
  } else {
    text = fmt::format("{} {} B", dims_.empty() ? "contiguous" : "strided", one_.bytes);
  }
  for (std::size_t i = dims_.size(); i-- > 0;) {
    text += fmt::format(" x {} @ {}", dims_[i].count, dims_[i].stride);
  }
  if (list_ == nullptr && one_.offset != 0) {
    text += fmt::format(", from {}", one_.offset);
  }
  return text;
}

}  // namespace gmac::datatype
