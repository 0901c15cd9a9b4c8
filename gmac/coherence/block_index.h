// SPDX-License-Identifier: Apache-2.0
//
// Where in an object: its blocks by number, and its bytes.
#ifndef GMAC_COHERENCE_BLOCK_INDEX_H_
#define GMAC_COHERENCE_BLOCK_INDEX_H_

#include <cstddef>

namespace gmac {

// A block's number inside its object.
enum class BlockIndex : std::size_t {};

constexpr BlockIndex operator+(BlockIndex index, std::size_t count) {
  return BlockIndex{static_cast<std::size_t>(index) + count};
}
constexpr BlockIndex operator-(BlockIndex index, std::size_t count) {
  return BlockIndex{static_cast<std::size_t>(index) - count};
}
constexpr std::size_t operator-(BlockIndex end, BlockIndex begin) {
  return static_cast<std::size_t>(end) - static_cast<std::size_t>(begin);
}

// Consecutive blocks [begin, end).
struct BlockRange {
  BlockIndex begin{};
  BlockIndex end{};
  bool empty() const { return end <= begin; }
};

// Consecutive bytes [begin, end) of an object.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t length() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool contains(ByteRange other) const { return begin <= other.begin && other.end <= end; }
  bool overlaps(ByteRange other) const { return begin < other.end && other.begin < end; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_BLOCK_INDEX_H_
