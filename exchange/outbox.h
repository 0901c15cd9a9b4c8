// SPDX-License-Identifier: Apache-2.0
//
// The payloads that this process has laid down for others.
#ifndef GMAC_EXCHANGE_OUTBOX_H_
#define GMAC_EXCHANGE_OUTBOX_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/peer.h"
#include "exchange/shared_file.h"
#include "gmac/base/fork_mark.h"
#include "gmac/base/range_allocator.h"

namespace gmac::exchange::internal {

// Counts; see Statistics.
struct Counters {
  std::atomic<std::uint64_t> parcels[kMemories]{};
  std::atomic<std::uint64_t> bytes[kMemories]{};

  void add(Memory memory, std::size_t count) {
    parcels[static_cast<int>(memory)].fetch_add(1, std::memory_order_relaxed);
    bytes[static_cast<int>(memory)].fetch_add(count, std::memory_order_relaxed);
  }
  void remove(Memory memory, std::size_t count) {
    parcels[static_cast<int>(memory)].fetch_sub(1, std::memory_order_relaxed);
    bytes[static_cast<int>(memory)].fetch_sub(count, std::memory_order_relaxed);
  }
};

// This process's file and who has which part of it. Thread-safe.
class Outbox {
 public:
  // Makes the file, and the nonce that tells it from others.
  // `payloadBytes`, `copyBytes`: see Options::hostBytes and copyBytes.
  static Result<std::shared_ptr<Outbox>> make(int ranks, std::size_t payloadBytes,
                                              std::size_t copyBytes, const Options& options);

  const SharedFile& file() const { return file_; }
  const Nonce& nonce() const { return nonce_; }
  bool inChild() const { return mark_.inChild(); }

  // The number of a slot in phase kWritten, with memory for `bytes` bytes. `peers` by rank, NULL
  // where there is none.
  Result<std::size_t> reserve(int receiver, std::size_t bytes, Memory memory,
                              const std::vector<std::shared_ptr<Peer>>& peers);
  std::byte* payload(std::size_t slot) const;
  void describe(std::size_t slot, Description description);
  // False: it is not the sender's any more.
  bool giveBack(std::size_t slot, Phase phase);
  // Part of the payloads for something else, `bytes` of whole pages: its offset.
  // adsmErrorHostMemory.
  Result<std::size_t> takeRoom(std::size_t bytes);
  void giveRoomBack(std::size_t offset, std::size_t bytes);
  // The same for a copy of a message, which has memory after populateCopy() alone. `populated`:
  // whether that was called.
  Result<std::size_t> takeCopyRoom(std::size_t bytes);
  Status populateCopy(std::size_t offset, std::size_t bytes);
  void giveCopyRoomBack(std::size_t offset, std::size_t bytes, bool populated);
  // There is a piece of device memory that others prove by that they reach the device.
  Status exportFirstPiece();
  // Device memory for something else, in a piece that the receiver has proved to reach. Empty:
  // there is none now. Exports a piece for it, once, if there is none so large.
  struct DeviceRoom {
    std::byte* address;
    std::size_t piece;
    std::size_t offset;
    std::size_t bytes;
  };
  std::optional<DeviceRoom> takeDeviceRoom(int receiver, std::size_t bytes);
  void giveDeviceRoomBack(const DeviceRoom& room);

  Counters sent;
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> reclaimed{0};

 private:
  // The sender's own note of a slot: receivers can write the shared one.
  struct Entry {
    std::uint64_t id = 0;  // 0: nobody's
    std::size_t offset = 0;
    std::size_t bytes = 0;  // asked for
    std::size_t room = 0;   // taken
    int receiver = 0;
    Memory memory = Memory::kHost;
    std::size_t piece = 0;  // of device memory
  };
  // Part of a window.
  struct Place {
    std::size_t piece;
    std::size_t offset;
  };
  struct Piece {
    std::byte* address;
    std::size_t bytes;
    RangeAllocator room;
  };

  Outbox(SharedFile file, std::size_t copyBytes, const Nonce& nonce, const Options& options);
  // All under the lock.
  bool freed(std::size_t slot) const;
  void release(std::size_t slot);
  void releaseFreed(std::size_t most);
  void releaseOfEnded(const std::vector<std::shared_ptr<Peer>>& peers);
  std::optional<Place> take(int receiver, std::size_t bytes, Memory memory);
  void giveBack(Memory memory, const Place& place, std::size_t bytes);
  Status refuse(int receiver, std::size_t bytes, Memory memory);
  Status populate(std::size_t offset, std::size_t bytes);
  Status openDevice();
  // Whether that is what the rank says of all pieces that there are.
  bool allProofs(int receiver, Proof proof) const;
  // Whether to export one more piece, or the first, now: what has failed is tried again. Takes a
  // turn.
  bool mayExport() { return exportFailed_ == adsmSuccess || exportAttempts_.mayTry(); }
  void exportPiece(std::size_t bytes);

  SharedFile file_;
  const std::size_t payloadBytes_;  // of the file's, from the start; the others are for copies
  const std::size_t keptBytes_;     // likewise, whose pages are kept
  const Nonce nonce_;
  const DeviceFunctions* const device_;
  const std::size_t pieceBytes_;
  ForkMark mark_;

  mutable std::mutex lock_;  // guards what follows
  RangeAllocator room_;
  RangeAllocator copyRoom_;
  std::vector<bool> populated_;  // which parts of what is kept have memory
  std::vector<Entry> entries_;
  std::vector<std::size_t> free_;     // slots
  std::vector<std::size_t> taken_;    // slots
  std::size_t next_ = 0;              // of taken_, to be looked at
  std::size_t used_[kMemories] = {};  // bytes
  std::vector<Piece> pieces_;
  adsmError_t exportFailed_ = adsmSuccess;  // the last one
  Attempts exportAttempts_;                 // since it failed
  // Memory for the next piece that has a handle and no mark yet.
  struct {
    void* address = nullptr;
    std::size_t bytes = 0;
    DeviceHandle handle{};
  } unmarked_;
  std::uint64_t ids_ = 0;
  std::chrono::steady_clock::time_point askedForEnded_{};
};

inline bool Peer::inChild() const { return self_->inChild(); }

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_OUTBOX_H_
