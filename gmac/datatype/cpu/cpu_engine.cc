// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/cpu/cpu_engine.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "gmac/datatype/cpu/cpu_copies.h"
#include "gmac/os/helper_threads.h"

namespace gmac::datatype {
namespace {

using std::int64_t;

// The bytes that a thread takes at a time: enough to make taking them cheap, but few enough that a
// helper that wakes late still finds some. A multiple of every primitive, so that none is cut.
constexpr int64_t kPartBytes = 256 << 10;
// Waking a helper takes as long as copying some hundred KiB.
constexpr int64_t kMinShared = 1 << 20;

constexpr int64_t kLineBytes = 64;
// So few that their lines stay in the first-level cache, even if they map to few of its sets.
constexpr int64_t kTileColumns = 32;

// Walks through one part of a layout and copies it. For the stack of one thread.
template <Direction kDirection>
class Walk {
 public:
  using Packed = typename Sides<kDirection>::Packed;
  using Plain = typename Sides<kDirection>::Plain;

  Walk(const Layout& layout, Packed packed, Plain base, int64_t offset, int64_t bytes,
       CopyFunction copy)
      : layout_(layout),
        blocks_(layout.blocks()),
        packed_(packed),
        place_(base),
        left_(bytes),
        copy_(copy),
        copies_(Copies<kDirection>::of(layout.blockBytes())) {
    // The index of the repetition in which the part begins; from the innermost dim.
    const auto& dims = layout.dims();
    int64_t repetition = offset / layout.listBytes();
    within_ = offset - repetition * layout.listBytes();
    index_.resize(dims.size());
    for (std::size_t i = dims.size(); i-- > 0;) {
      index_[i] = repetition % dims[i].count;
      repetition /= dims[i].count;
      place_ += index_[i] * dims[i].stride;
    }
  }

  void run() {
    if (blocks_.size() == 1) {
      runStrided();
    } else {
      runList();
    }
  }

 private:
  void move(Plain place, int64_t bytes) {
    if constexpr (kDirection == Direction::kPack) {
      copyAny(packed_, place, bytes, copy_);
    } else {
      copyAny(place, packed_, bytes, copy_);
    }
    packed_ += bytes;
    left_ -= bytes;
  }

  // Advances by `count` repetitions in dim `dim`, which has so many left.
  void advance(std::size_t dim, int64_t count) {
    const auto& dims = layout_.dims();
    place_ += count * dims[dim].stride;
    index_[dim] += count;
    while (index_[dim] == dims[dim].count) {
      place_ -= dims[dim].count * dims[dim].stride;
      index_[dim] = 0;
      if (dim == 0) {
        // Past the last one: nothing is left.
        return;
      }
      --dim;
      place_ += dims[dim].stride;
      ++index_[dim];
    }
  }

  // Where rows are closer than a cache line and columns far apart, as in a transpose, all rows of a
  // line are copied before it is evicted.
  void copyPlane(Plain place, const Plane& plane) {
    const bool near = std::abs(plane.pitch) < kLineBytes && plane.pitch != 0;
    if (plane.rows == 1 || !near || std::abs(plane.stride) < kLineBytes ||
        plane.columns <= kTileColumns) {
      copies_.plane(packed_, place, plane, copy_);
      return;
    }
    const int64_t tileRows = std::max<int64_t>(2, 4 * kLineBytes / std::abs(plane.pitch));
    for (int64_t row = 0; row < plane.rows; row += tileRows) {
      for (int64_t column = 0; column < plane.columns; column += kTileColumns) {
        Plane tile = plane;
        tile.rows = std::min(tileRows, plane.rows - row);
        tile.columns = std::min(kTileColumns, plane.columns - column);
        copies_.plane(packed_ + row * plane.packedPitch + column * plane.bytes,
                      place + row * plane.pitch + column * plane.stride, tile, copy_);
      }
    }
  }

  void runStrided() {
    const auto& dims = layout_.dims();
    const Block block = blocks_[0];
    if (dims.empty()) {
      move(place_ + block.offset + within_, left_);
      return;
    }
    const std::size_t inner = dims.size() - 1;
    if (within_ > 0) {
      move(place_ + block.offset + within_, std::min(block.bytes - within_, left_));
      if (left_ == 0) {
        return;
      }
      advance(inner, 1);
    }
    const Dim columns = dims[inner];
    const int64_t rowBytes = columns.count * block.bytes;
    Plane plane{block.bytes, 1, 0, rowBytes, 0, columns.stride};
    while (left_ >= block.bytes) {
      const bool rows = inner > 0 && index_[inner] == 0 && left_ >= rowBytes;
      if (rows) {
        plane.rows = std::min(dims[inner - 1].count - index_[inner - 1], left_ / rowBytes);
        plane.pitch = dims[inner - 1].stride;
        plane.columns = columns.count;
      } else {
        plane.rows = 1;
        plane.columns = std::min(columns.count - index_[inner], left_ / block.bytes);
      }
      copyPlane(place_ + block.offset, plane);
      const int64_t copied = plane.rows * plane.columns * block.bytes;
      packed_ += copied;
      left_ -= copied;
      advance(rows ? inner - 1 : inner, rows ? plane.rows : plane.columns);
    }
    if (left_ > 0) {
      move(place_ + block.offset, left_);
    }
  }

  // Copies entries of the list from `block` on, as long as they are copied whole.
  void runBlocks(std::size_t block) {
    const int64_t start = layout_.startOf(block);
    std::size_t end = blocks_.size();
    if (left_ < layout_.listBytes() - start) {
      end = layout_.blockAt(start + left_);
    }
    copies_.list(packed_, place_, blocks_.data() + block, static_cast<int64_t>(end - block), copy_);
    const int64_t copied = layout_.startOf(end) - start;
    packed_ += copied;
    left_ -= copied;
    if (left_ > 0 && end < blocks_.size()) {
      move(place_ + blocks_[end].offset, left_);
    }
  }

  void runList() {
    const auto& dims = layout_.dims();
    if (within_ > 0) {
      const std::size_t block = layout_.blockAt(within_);
      const int64_t cut = within_ - layout_.startOf(block);
      move(place_ + blocks_[block].offset + cut, std::min(blocks_[block].bytes - cut, left_));
      if (left_ > 0 && block + 1 < blocks_.size()) {
        runBlocks(block + 1);
      }
      if (left_ == 0) {
        return;
      }
      advance(dims.size() - 1, 1);
    }
    const int64_t listBytes = layout_.listBytes();
    const auto count = static_cast<int64_t>(blocks_.size());
    while (left_ >= listBytes) {
      const int64_t repetitions =
          dims.empty() ? 1 : std::min(dims.back().count - index_.back(), left_ / listBytes);
      const int64_t stride = dims.empty() ? 0 : dims.back().stride;
      for (int64_t i = 0; i < repetitions; ++i) {
        copies_.list(packed_, place_ + i * stride, blocks_.data(), count, copy_);
        packed_ += listBytes;
      }
      left_ -= repetitions * listBytes;
      if (!dims.empty()) {
        advance(dims.size() - 1, repetitions);
      }
    }
    if (left_ > 0) {
      runBlocks(0);
    }
  }

  const Layout& layout_;
  const std::span<const Block> blocks_;
  Packed packed_;
  Plain place_;     // the base of the next repetition
  int64_t within_;  // packed bytes of it to skip
  int64_t left_;
  const CopyFunction copy_;
  const Copies<kDirection> copies_;
  std::vector<int64_t> index_;
};

template <Direction kDirection>
void copyPart(const Layout& layout, typename Sides<kDirection>::Packed packed,
              typename Sides<kDirection>::Plain base, int64_t offset, int64_t bytes,
              const CpuOptions& options) {
  if (bytes <= 0) {
    return;
  }
  if (options.threads <= 1 || bytes < kMinShared) {
    Walk<kDirection>(layout, packed, base, offset, bytes, options.copy).run();
    return;
  }
  // Cut at multiples counted from the beginning of the layout, so that no primitive is split.
  const int64_t first = offset / kPartBytes;
  const int64_t last = (offset + bytes - 1) / kPartBytes;
  os::shareOut(options.threads, static_cast<std::size_t>(last - first + 1), [&](std::size_t part) {
    const int64_t from = std::max(offset, (first + static_cast<int64_t>(part)) * kPartBytes);
    const int64_t to =
        std::min(offset + bytes, (first + static_cast<int64_t>(part) + 1) * kPartBytes);
    Walk<kDirection>(layout, packed + (from - offset), base, from, to - from, options.copy).run();
  });
}

}  // namespace

void pack(const Layout& layout, std::byte* packed, const std::byte* base, int64_t offset,
          int64_t bytes, const CpuOptions& options) {
  copyPart<Direction::kPack>(layout, packed, base, offset, bytes, options);
}

void unpack(const Layout& layout, std::byte* base, const std::byte* packed, int64_t offset,
            int64_t bytes, const CpuOptions& options) {
  copyPart<Direction::kUnpack>(layout, packed, base, offset, bytes, options);
}

}  // namespace gmac::datatype
