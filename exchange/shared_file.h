// SPDX-License-Identifier: Apache-2.0
//
// The memory file of one process of the exchange: what it lays down for others, and what they tell
// it. Every other process that it reaches has it mapped.
//
//     revocations, waiting, device | offers, proofs, waiting and suggestions, by rank | notes |
//     device pieces | exports | importers | slots | transfers | payloads
//
// All but the payloads is written by both sides, so neither believes more of it than it checks.
#ifndef GMAC_EXCHANGE_SHARED_FILE_H_
#define GMAC_EXCHANGE_SHARED_FILE_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "exchange/device_functions.h"
#include "exchange/layout_bytes.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/status.h"

namespace gmac::exchange {

// 128 random bits that tell one exchange of one process from all others.
using Nonce = std::array<std::uint64_t, 2>;

// Whether the pair of the file's owner and another rank reach each other: that rank takes the
// offer, or the owner withdraws it, whoever is first.
enum class Offer : std::uint32_t { kMade, kTaken, kWithdrawn };

// Whether another process has read from this one's memory what it should hold.
enum class Proof : std::uint32_t { kUnknown, kProved, kRefused };

// Device memory that the file's owner has exported.
struct alignas(64) DevicePiece {
  std::atomic<std::uint32_t> exported;  // 1: what follows does not change any more
  std::uint32_t unused;
  std::uint64_t bytes;
  Nonce mark;  // what its first bytes are
  DeviceHandle handle;
};

// Memory of the file's owner that others may import; see exports.h.
struct alignas(64) ExportRecord {
  std::atomic<std::uint64_t> live;  // its id; 0: there is none, or it is revoked
  // These change only when nobody has it imported.
  std::uint64_t bytes;
  std::uint32_t kind;
  // How often an importer has not found the file that was handed to it, for want of a descriptor
  // perhaps; by importers.
  std::atomic<std::uint32_t> lost;
  DeviceHandle handle;  // of device memory
};

// The life of a slot. A slot's state is its parcel's id, and this.
enum class Phase : std::uint64_t {
  kFree,       // nobody uses it
  kWritten,    // the sender writes
  kDescribed,  // the receiver may collect it
  kCollected,  // the receiver reads
  kCopied,  // as kDescribed; of a message that needs its sender no more: it is the sender's copy,
            // or in a ring that holds all of it
  kMoved,   // as kCollected; the sender has left a copy, to be read from its beginning
};

// One cache line, so that receivers do not slow each other.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> state;
  // Written by the owner in phase kWritten.
  std::uint64_t offset;  // bytes from the start of the payloads, or of the piece
  std::uint64_t bytes;
  std::int32_t receiver;
  std::uint16_t memory;
  std::uint16_t piece;  // of device memory

  static constexpr std::uint64_t kMaxId = UINT64_MAX >> 3;
  static std::uint64_t stateOf(std::uint64_t id, Phase phase) {
    return id << 3 | static_cast<std::uint64_t>(phase);
  }
};
static_assert(sizeof(Slot) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

// A message that is copied once; see transfers.h.
struct TransferRecord {
  enum Answer : std::uint32_t { kNone, kWantsRing, kGaveUp, kReads };
  static constexpr std::uint64_t kInline = UINT64_MAX;

  // Written by the owner in phase kWritten; the state is as a slot's.
  alignas(64) std::atomic<std::uint64_t> state;
  std::int64_t bytes;
  std::uint64_t address;  // of the layout's base, in the owner's process
  std::uint64_t exportId;
  std::int64_t exportOffset;
  std::uint64_t layoutOffset;  // from the start of the payloads; kInline: the layout is here
  std::uint64_t layoutBytes;
  LayoutHash hash;
  std::uint32_t layouts;  // LayoutExchange
  std::uint64_t ring;     // from the start of the payloads
  std::uint64_t ringBytes;
  std::uint64_t fragmentBytes;
  std::uint64_t
      copy;  // of all bytes, packed, in kCopied and kMoved; from the start of the payloads
  std::int32_t receiver;
  std::uint32_t path;
  // Where fragments are packed ahead in device memory (packed_ahead.h): the piece, and bytes from
  // its start; and of a fragment. 0: nowhere.
  static constexpr std::size_t kAheadSlots = 8;
  std::uint64_t aheadPiece;
  std::uint64_t aheadOffset;
  std::uint64_t aheadFragment;
  // The number of the fragment in each slot, and 1.
  std::array<std::atomic<std::uint64_t>, kAheadSlots> ahead;
  // Of a message through pinned memory (pinned_rings.h), which is the export: its part that is
  // used, and of a fragment; and whether the sender is over once all of the message is there.
  std::uint64_t pinnedOffset;
  std::uint64_t pinnedBytes;
  std::uint64_t pinnedFragment;
  std::atomic<std::uint64_t> pinnedIsLeft;
  // Packed bytes in the ring, since the start; by the owner.
  alignas(64) std::atomic<std::uint64_t> produced;
  // Bytes of the layout that are there, where it is laid down in parts; by the owner.
  std::atomic<std::uint64_t> laid;
  // As `produced`, in pinned memory.
  std::atomic<std::uint64_t> pinnedProduced;
  // Of these, unpacked; by the receiver, like all that follows.
  alignas(64) std::atomic<std::uint64_t> consumed;
  std::atomic<std::uint64_t> pinnedConsumed;
  // So many bytes have arrived of a message that is packed ahead.
  std::atomic<std::uint64_t> aheadTaken;
  std::atomic<std::uint64_t> left;  // the id, when it has let go of what was taken back
  std::atomic<std::uint32_t> answer;
  // By the owner again.
  alignas(64) std::array<std::byte, 256> layout;
};

// A memory file of that length, whose length no process can change. No page of it is there yet;
// the second function gives part of it its pages: what is not there would end a process that
// touches it. adsmErrorHostMemory.
Result<Descriptor> makeMemoryFile(const char* name, std::size_t bytes);
Status populateMemoryFile(const Descriptor& file, std::size_t offset, std::size_t bytes);

// Where the parts are, in bytes from the start.
struct FileLayout {
  static constexpr std::size_t kSlots = 4096;
  static constexpr std::size_t kPieces = 4;
  // Proofs of a rank: of each piece, of this process's own memory (kReads).
  static constexpr std::size_t kReads = kPieces;
  // And of exported device memory: whether that rank could import what it last tried to.
  static constexpr std::size_t kImports = kPieces + 1;
  static constexpr std::size_t kProofs = kPieces + 2;
  static constexpr std::size_t kExports = 1024;
  static constexpr std::size_t kTransfers = 512;
  static constexpr std::size_t kNotes = 64;

  FileLayout(int ranks, std::size_t payloadBytes);

  std::size_t offers;
  std::size_t proofs;
  std::size_t waiting;
  std::size_t suggestions;
  std::size_t notes;
  std::size_t pieces;
  std::size_t exports;
  std::size_t importers;
  std::size_t slots;
  std::size_t transfers;
  std::size_t payloads;  // a multiple of a huge page
  std::size_t importerWords;
  std::size_t bytes;
};

// Part of a memory file in this process's address space, until the object is destroyed. A child of
// fork() does not have it.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    Mapping(std::move(other)).swap(*this);
    return *this;
  }
  ~Mapping();

  static Result<Mapping> make(int file, std::size_t offset, std::size_t bytes, bool writable);
  std::byte* data() const { return data_; }

 private:
  void swap(Mapping& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(owner_, other.owner_);
  }

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  pid_t owner_ = 0;
};

// A process's file, mapped by itself or another. Thread-safe.
class SharedFile {
 public:
  // This process's own: all zero, and no process can change its length from now on.
  static Result<SharedFile> create(int ranks, std::size_t payloadBytes);
  // Another process's, which has said how long its payloads are. Its payloads can be read only.
  static Result<SharedFile> open(int file, int ranks, std::size_t payloadBytes);

  std::atomic<Offer>& offer(int rank) const;
  // Of a rank, about a piece or kReads.
  std::atomic<Proof>& proof(int rank, std::size_t piece) const;
  DevicePiece& piece(std::size_t index) const;
  Slot& slot(std::size_t index) const;
  TransferRecord& transfer(std::size_t index) const;
  // How many messages of that rank, and of all ranks, are described for the owner (kDescribed) and
  // in no later phase. Counted by senders and owner, who add before and subtract after: a process
  // that ends in between leaves too many.
  std::atomic<std::uint32_t>& waitingOf(int rank) const;
  std::atomic<std::uint32_t>& waiting() const;
  // The export of the owner's that the rank is to import; 0: none. By the owner, and by that rank
  // when it has tried.
  std::atomic<std::uint64_t>& suggestion(int rank) const;
  // The owner's, for whatever it tells the others; so many words (kNotes).
  std::atomic<std::uint64_t>* notes() const;
  // The identity of the owner's device (DeviceFunctions); 0: unknown.
  std::atomic<std::uint64_t>& device() const;
  // How many processes have told the owner of their devices since.
  std::atomic<std::uint64_t>& deviceNews() const;
  // How often the owner has revoked an export.
  std::atomic<std::uint64_t>& revocations() const;
  ExportRecord& exportRecord(std::size_t index) const;
  // A bit for each rank that has that record's memory imported; so many words for each record.
  std::atomic<std::uint64_t>& importers(std::size_t record, std::size_t word) const;
  std::size_t importerWords() const { return layout_.importerWords; }
  std::byte* payloads() const { return payloads_.data(); }
  std::size_t payloadBytes() const { return payloadBytes_; }
  // Of create().
  const Descriptor& descriptor() const { return descriptor_; }
  // Gives the payloads from `offset` on memory: what is not there would end the process when it is
  // touched. And takes it from them again: nobody reads there any more.
  Status populatePayloads(std::size_t offset, std::size_t bytes);
  void emptyPayloads(std::size_t offset, std::size_t bytes);

 private:
  SharedFile(int ranks, std::size_t payloadBytes) : layout_(ranks, payloadBytes) {}
  Status map(int file, bool own);

  FileLayout layout_;
  std::size_t payloadBytes_ = 0;
  Descriptor descriptor_;
  Mapping control_;
  Mapping payloads_;
};

}  // namespace gmac::exchange

#endif  // GMAC_EXCHANGE_SHARED_FILE_H_
