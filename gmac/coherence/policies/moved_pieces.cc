// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/moved_pieces.h"

namespace gmac {

bool MovedPieces::count(const Object& object, BlockIndex block) {
  const std::uint64_t work = work_.load(std::memory_order_relaxed);
  const std::uint64_t hash = object.number * 31 + static_cast<std::size_t>(block);
  Count& counted = counts_[hash % counts_.size()];
  if (counted.cost == 0 || counted.object != object.number || counted.block != block ||
      counted.work != work) {
    counted = {object.number, block, work, 0};
  } else {
    // (The accelerator has moved the last piece, so what the CPU has it has fetched since.)
    const ByteRange fetched = object.currentOf(block);
    counted.cost += fetched.end - fetched.begin;
  }
  counted.cost += kBytesAPiece;
  const std::size_t bytes = object.lengthOf({block, block + 1});
  const std::size_t opening =
      object.pagesReady(block) ? bytes : bytes * (kBytesAPiece / kNewBytesAPiece);
  return counted.cost > kLeastPieces * kBytesAPiece + opening;
}

bool MovedPieces::prefersCpu(const void* address, std::size_t bytes) noexcept {
  const Lock lock(mutex_);
  const Object* const object = index_.find(address);
  const auto* const first = static_cast<const std::byte*>(address);
  if (bytes == 0 || object == nullptr ||
      static_cast<std::size_t>(object->ownEnd(first) - first) < bytes) {
    return false;
  }
  const BlockRange blocks = object->covering(first, bytes);
  if (static_cast<std::size_t>(blocks.end) - static_cast<std::size_t>(blocks.begin) > kMaxBlocks) {
    return false;
  }
  bool prefers = true;
  for (BlockIndex block = blocks.begin; block < blocks.end; block = block + 1) {
    prefers = count(*object, block) && prefers;
  }
  return prefers;
}

}  // namespace gmac
