// SPDX-License-Identifier: Apache-2.0
//
// When the CPU opens a block, because pieces of it are moved again and again between the CPU's
// memory and the accelerator's copy.
//
// What arrives for a block that is not current on the CPU alone is best brought there by the
// accelerator, as is what is packed from a block that only the accelerator has: that takes one
// submission and a wait for it, where opening the block takes a copy of all of it, and another one
// back before the next call that uses it. But a program may fill or read a block in thousands of
// pieces with no device work of its own in between, by a message or an MPI_Get for each element. Or
// it uses memory on the CPU alone that lies in objects because all of its heap does: it reads what
// has arrived, so that the block is fetched, and receives into it again.
//
// The block is opened once then, and the CPU moves what follows.
//
// The bound. Each piece costs as much as kBytesAPiece that are copied; and if the CPU has fetched
// bytes of the block since the last piece, those. A block is opened when the pieces in a row have
// cost as much as opening it does. So whatever the program does next, it has spent about twice what
// the better choice takes, at most. Device work of the program's own begins the count anew, since
// it takes the block away again.
#ifndef GMAC_COHERENCE_POLICIES_MOVED_PIECES_H_
#define GMAC_COHERENCE_POLICIES_MOVED_PIECES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gmac/coherence/block_index.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"

namespace gmac {

// See MemoryPort::prefersCpu(). Thread-safe; allocates nothing; changes no block.
class MovedPieces {
 public:
  // A block is not opened before pieces that cost so many alone.
  static constexpr std::size_t kLeastPieces = 8;
  // So much of a block is copied, there and back, in the time of one piece: 10 us on a GPU's bus;
  // and of one whose pages the CPU has to make first.
  static constexpr std::size_t kBytesAPiece = std::size_t{128} << 10;
  static constexpr std::size_t kNewBytesAPiece = std::size_t{16} << 10;
  // Of longer pieces nothing is counted.
  static constexpr std::size_t kMaxBlocks = 64;

  MovedPieces(ObjectMutex& mutex, ObjectIndex& index) : mutex_(mutex), index_(index) {}
  MovedPieces(const MovedPieces&) = delete;
  MovedPieces& operator=(const MovedPieces&) = delete;

  bool prefersCpu(const void* address, std::size_t bytes) noexcept;
  // Device work of the program's own begins. A few instructions.
  void workBegins() noexcept { work_.fetch_add(1, std::memory_order_relaxed); }

 private:
  // What the pieces of a block have cost since the last device work.
  struct Count {
    std::uint64_t object = 0;  // Object::number
    BlockIndex block{0};
    std::uint64_t work = 0;
    std::uint64_t cost = 0;  // 0: of no block
  };

  // Under the lock: counts a piece of the block, and returns whether the CPU should have it.
  bool count(const Object& object, BlockIndex block);

  ObjectMutex& mutex_;
  ObjectIndex& index_;
  std::atomic<std::uint64_t> work_{0};
  // By a hash. A block that takes another's place begins anew.
  std::array<Count, 4 * kMaxBlocks> counts_{};
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_MOVED_PIECES_H_
