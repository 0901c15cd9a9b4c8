// SPDX-License-Identifier: Apache-2.0
//
// Payloads between the processes of one host.
//
// The sender lays a payload down in memory that its process owns and that the others have mapped
// (reserve, Parcel), and tells the receiver by any way of its own where it is: kDescriptionBytes
// bytes (Parcel::describe). The receiver reads it from there (collect, Delivery). The room is free
// again when the receiver says so through shared memory, so the sender need not do anything
// meanwhile.
//
//     sender                                         receiver
//     auto parcel = exchange.reserve(1, n, kHost);
//     write parcel->data();
//     parcel->describe(description);
//     (message with the description)       ----->    auto delivery = exchange.collect(0,
//     description);
//                                                    read delivery->data();
//                                                    destroy the delivery
//
// Nothing of it has a name in a file system. A process is found by an abstract Unix socket while it
// meets the others; each end asks the kernel for the other's user, and a memory file goes over the
// socket. No thread, no signal, and after meet() one descriptor, and one for each process reached.
//
// Memory may also be read where it is: its owner exports it, under an id, and others import it.
// They keep it imported as long as it is not revoked, which its owner does before it frees it.
//
// A payload may also lie in memory of the sender's device, which the receiver's imports. Such
// memory is taken when the first payload is to lie there, in pieces that are kept until the process
// ends. Each receiver first proves that it reaches a piece, by what it reads there, when it next
// collects anything of that sender; until then payloads for it have to lie elsewhere. One that does
// not reach it tries again (attempts.h), and so does a sender whose device refuses a piece.
//
// A child of fork() has none of this memory: its calls fail (adsmErrorForked), its destructors do
// nothing.
#ifndef GMAC_EXCHANGE_EXCHANGE_H_
#define GMAC_EXCHANGE_EXCHANGE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "exchange/device_functions.h"
#include "exchange/job.h"
#include "exchange/layout_bytes.h"
#include "exchange/transfer.h"
#include "gmac/base/status.h"

namespace gmac::exchange {

// Where a payload lies.
enum class Memory { kHost, kDevice };
inline constexpr int kMemories = 2;

// The bytes that the sender gives the receiver in place of the payload. Opaque; all of it is
// checked on arrival against what the sender's process has noted in shared memory.
inline constexpr std::size_t kDescriptionBytes = 128;
using Description = std::span<std::byte, kDescriptionBytes>;
using ConstDescription = std::span<const std::byte, kDescriptionBytes>;

namespace internal {
class Exports;
class Imports;
class Outbox;
class Peer;
}  // namespace internal

// Memory of a process that others may import. No id is given twice in the life of an exchange: what
// was revoked is not mistaken for what has its address, or its handle, later.
enum class ExportId : std::uint64_t;
inline constexpr ExportId kNoExport{0};

enum class ExportKind {
  kFile,         // CPU memory that is a memory file's, mapped by others for reading
  kDevice,       // memory of the process's device, by its handle
  kDeviceFiles,  // the same, by files
  kPinned        // a ring of the exchange's own (Path::kPinned), which others may pin
};

// Room for one payload, at the sender. Owner; one thread at a time. May outlive its exchange.
class Parcel {
 public:
  Parcel() = default;
  Parcel(Parcel&& other) noexcept { swap(other); }
  Parcel& operator=(Parcel&& other) noexcept {
    Parcel(std::move(other)).swap(*this);
    return *this;
  }
  // Without describe(): the room is free again. After describe() it is the receiver's, and this
  // does nothing.
  ~Parcel();

  // Aligned to 4096 bytes. kHost: the CPU may write it. kDevice: an address of this process's
  // device.
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }  // as asked for
  Memory memory() const { return memory_; }
  explicit operator bool() const { return data_ != nullptr; }

  // To be called when the payload is all there, and what a device does to it is done. From now on
  // the receiver may collect it, once, and frees the room.
  void describe(Description description);
  // Takes a described parcel back, as when the message that was to carry the description has
  // failed. False: the receiver has it already, or it never was described. The room is then the
  // receiver's still; else it is free again, and a receiver that gets the description is refused.
  bool recall();

 private:
  friend class Exchange;
  void swap(Parcel& other) noexcept {
    std::swap(outbox_, other.outbox_);
    std::swap(slot_, other.slot_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(memory_, other.memory_);
    std::swap(described_, other.described_);
  }

  std::shared_ptr<internal::Outbox> outbox_;
  std::size_t slot_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Memory memory_ = Memory::kHost;
  bool described_ = false;
};

// Somebody's payload, at the receiver. Owner; one thread at a time. May outlive its exchange, and
// its sender's process.
class Delivery {
 public:
  Delivery() = default;
  Delivery(Delivery&& other) noexcept { swap(other); }
  Delivery& operator=(Delivery&& other) noexcept {
    Delivery(std::move(other)).swap(*this);
    return *this;
  }
  // The sender's room is free: nothing may read data() any more, no device either. One atomic
  // operation.
  ~Delivery();

  // Read-only. kHost: the CPU may read it. kDevice: an address of this process's device.
  const std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Memory memory() const { return memory_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class Exchange;
  void swap(Delivery& other) noexcept {
    std::swap(peer_, other.peer_);
    std::swap(slot_, other.slot_);
    std::swap(id_, other.id_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(memory_, other.memory_);
  }

  std::shared_ptr<internal::Peer> peer_;
  std::size_t slot_ = 0;
  std::uint64_t id_ = 0;
  const std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Memory memory_ = Memory::kHost;
};

// Memory that another process has exported, here. Owner; one thread at a time. May outlive its
// exchange, and the process.
class Imported {
 public:
  Imported() = default;
  Imported(Imported&& other) noexcept { swap(other); }
  Imported& operator=(Imported&& other) noexcept {
    Imported(std::move(other)).swap(*this);
    return *this;
  }
  // Nothing here may read data() any more, no device either. It stays imported for the next time,
  // unless it is revoked.
  ~Imported();

  // Read-only. kFile, kPinned: the CPU may read it. Else an address of this process's device.
  const std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  ExportKind kind() const { return kind_; }
  // True: the owner has revoked it. What was read before this was first seen may be anything
  // already; the memory stays readable. A load.
  bool revoked() const;
  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class Exchange;
  void swap(Imported& other) noexcept {
    std::swap(imports_, other.imports_);
    std::swap(self_, other.self_);
    std::swap(entry_, other.entry_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(kind_, other.kind_);
  }

  std::shared_ptr<internal::Imports> imports_;
  std::shared_ptr<const internal::Outbox> self_;
  void* entry_ = nullptr;
  const std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  ExportKind kind_ = ExportKind::kFile;
};

// Since open().
struct Statistics {
  struct Traffic {
    std::uint64_t parcels = 0;
    std::uint64_t bytes = 0;
  };
  Traffic sent[kMemories];       // described, less those recalled
  Traffic collected[kMemories];  // by this process
  std::uint64_t refused = 0;     // calls of reserve() that found no room
  std::uint64_t reclaimed = 0;   // parcels whose receiver's process has ended
  int peers = 0;                 // processes that this one reaches
  std::size_t exports = 0;       // not revoked, now
  std::size_t imports = 0;       // now, used or not
  std::uint64_t imported = 0;    // how often memory was imported anew
  std::uint64_t evicted = 0;     // imports given back to make room for others
  // Messages that are copied once, by the way that they went in the end.
  struct {
    Traffic sent;
    Traffic received;
  } paths[kPaths];
  std::uint64_t layoutHits = 0;    // layouts of others that were known already
  std::uint64_t layoutMisses = 0;  // and that were read
};

struct Options {
  // Most bytes of payloads in kHost memory that this process has laid down and that are not freed
  // yet. The pages are taken as they are needed, and kept. Rounded up to 2 MiB.
  std::size_t hostBytes = std::size_t{256} << 20;
  // The same of copies of messages (SendOptions::mayCopy), which are reserved for each message that
  // is under way and seldom made. A page is taken when a copy is; those of the first hostBytes are
  // kept. Empty: as much as the host has, at most 64 GiB; or hostBytes where the process's
  // addresses or files are limited (RLIMIT_AS, RLIMIT_FSIZE).
  std::optional<std::size_t> copyBytes = std::nullopt;
  // NULL: no payload lies in device memory, here or of others. Lives as long as the process.
  const DeviceFunctions* device = nullptr;
  // A piece of device memory; there are at most 4, taken one by one when payloads need them. A
  // multiple of 4096.
  std::size_t devicePieceBytes = std::size_t{64} << 20;
  // false: no payload lies in device memory, of this process or for it. Its device is not used
  // before it exports or imports something.
  bool devicePayloads = true;
  // Imports that this process keeps at a time; those in use are never given up for others.
  std::size_t maxImports = 64;
  // Messages of at least so many bytes, in pieces of less than 64, are packed ahead in device
  // memory while another device copies them: in fragments, of which 8 have room at a time. The
  // memory is taken with the first such message and kept.
  std::int64_t aheadLeast = std::int64_t{16} << 20;
  std::int64_t aheadFragment = std::int64_t{4} << 20;
  // Of these, messages of at least so many bytes are unpacked by one kernel while they arrive,
  // where the receiver's device has one for their rows.
  std::int64_t arrivalLeast = std::int64_t{16} << 20;
  // Layouts of others that this process keeps, to know them by their hash.
  std::size_t maxLayouts = 256;
  // Rings of pinned memory (Path::kPinned), each for messages to one process: the bytes of one, a
  // multiple of 4096, and how many this process keeps at a time. The memory is taken with the first
  // such message and kept.
  std::size_t pinnedRingBytes = std::size_t{32} << 20;
  std::size_t maxPinnedRings = 4;
};

// This process's part in the exchange. Thread-safe after meet(), but for close().
class Exchange {
 public:
  // Longest that meet() waits for a process that has opened and does not answer.
  static constexpr std::chrono::milliseconds kMeetLimit{10000};

  // Makes this process findable. To be called before anything that orders this after meet() of
  // another process of the job, such as MPI's own MPI_Init: of Open MPI 4.1 and MPICH 4.0 it ends
  // in no process before it has begun in every one.
  static Result<std::unique_ptr<Exchange>> open(const Job& job, const Options& options = {});
  ~Exchange();  // close()
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Meets the processes of the job that are on this host (in its network namespace), of this user,
  // and have opened; a process that has not is not waited for. Once; by one thread. `rank` and
  // `size` as MPI says: if the job's are others, this process remains alone, and says so.
  //
  // Both processes of a pair come to the same answer, whatever happens to either: they decide by
  // words in shared memory that only ever change once. A process that has opened and does not come
  // here within `limit` (stopped, or very late) is not reached, for good, and neither does it reach
  // this one; one that ends is noticed at once.
  void meet(int rank, int size, std::chrono::milliseconds limit = kMeetLimit);

  // Whether payloads can go to and come from that rank; never this process itself. The same for
  // the process there, from both's meet() until close(). A load.
  bool reaches(int rank) const noexcept;

  // Room for `bytes` bytes that `rank` is to get. Never blocks, waits for nobody.
  // adsmErrorInvalidValue: that rank is not reached. adsmErrorHostMemory,
  // adsmErrorAcceleratorMemory: no room now, or more than there ever is, or (device memory)
  // the rank has not proved yet that it reaches it; adsmErrorNotSupported: this
  // process's device exports none, or the rank has not reached it when it last tried. The first
  // call for device memory may take as long as the device takes to allocate it.
  Result<Parcel> reserve(int rank, std::size_t bytes, Memory wanted);

  // The payload that `sender` has described. Imports the memory that the sender has exported since:
  // some milliseconds, at most 4 times for each sender, and for what is not reached again after 1,
  // 2, 4 and at last 1024 calls. adsmErrorInvalidValue: that is no description of a parcel of that
  // process for this one, or it was collected or recalled before.
  Result<Delivery> collect(int sender, ConstDescription description);

  // ---- Messages that are copied once; see transfer.h.

  // Begins a message: the bytes of `layout` relative to `base`, for `rank`. Never waits.
  // adsmErrorInvalidValue: that rank is not reached, or options that cannot be;
  // adsmErrorNotSupported: device memory, where this process's device copies no messages;
  // adsmErrorHostMemory: as many messages as there can be are under way, or no room is left.
  Result<Sending> send(int rank, const std::byte* base, SharedLayoutPtr layout,
                       const SendOptions& options = {});
  // Whether that rank has proved that it reads this process's memory where it is: a message that
  // goes by kRead then needs nothing of its sender while it is received. A load.
  bool isReadBy(int rank) const noexcept;
  // Whether any rank, or that one, has described such a message for this process that this process
  // has not begun to receive, and that was neither taken back nor left as a copy. (Also if a
  // process ended in the middle of that.) A load or two.
  bool anyWaits() const noexcept;
  bool waits(int sender) const noexcept;
  // How many bytes such a message has; 0 for another description.
  static std::int64_t bytesOf(ConstDescription description);
  // Begins to receive it as the first bytes of `layout` relative to `base`. adsmErrorInvalidValue:
  // that is no description of such a message of that process for this one, it was received or taken
  // back before, or it is longer than the layout (it may be received by a longer one then).
  // `memory`: what the base is. kDevice: an address of this process's device, and nothing is under
  // way there; adsmErrorNotSupported where that copies no messages.
  Result<Receiving> receive(int sender, ConstDescription description, std::byte* base,
                            const datatype::Layout& layout, Memory memory = Memory::kHost);
  // The same. A sender's layout that is equal to this one is then known by its hash, also when its
  // first message comes, and the two are not compared. So processes that all make a type need not
  // tell each other of it (FALCON-X, section 6.2, makes types collectively for that).
  Result<Receiving> receive(int sender, ConstDescription description, std::byte* base,
                            const SharedLayoutPtr& layout, Memory memory = Memory::kHost);

  // A datatype that all processes have made, by its element and the bytes from one to the next: the
  // layouts of messages of it are known, whatever type this process receives them as. A process
  // that makes a type twice gives it up twice. At most Options::maxLayouts, the ones that were made
  // last.
  void knowType(std::shared_ptr<const datatype::Layout> element, std::int64_t extent);
  void forgetType(const datatype::Layout& element, std::int64_t extent);

  // ---- Memory that is not copied. Its owner orders its writes before others' reads.

  // Lets others import part of a memory file (whole pages, `bytes` of them inside of it), which is
  // sealed against shrinking if it is not yet, as readers would die of that. It may be closed
  // afterwards. adsmErrorNotSupported: the file takes no seal; adsmErrorHostMemory: there are as
  // many exports as there can be.
  Result<ExportId> exportFile(int file, std::int64_t offset, std::size_t bytes);
  // The same for memory that the application has from its device; from the start of an allocation.
  // adsmErrorNotSupported: this process's device does not do that.
  Result<ExportId> exportDevice(void* address, std::size_t bytes);
  // The same for device memory that is files, at most kMaxDeviceFiles, which may be closed
  // afterwards. Its pages stay while somebody has them, so that freeing it waits for nobody.
  Result<ExportId> exportDeviceFiles(std::span<const DeviceFile> files);
  // Lets `rank` import it: to be called before that rank hears of it, and again where it says that
  // the file has not come. Never blocks; most times a look. adsmErrorSystem: not now.
  Status offer(ExportId id, int rank);
  // From now on nobody imports it. Waits until no process that lives has it, at most for `limit`.
  // True: so it is; the id is forgotten, and device memory may be freed. False: somebody has it
  // still; call it again later. A process gives an idle import back in its next call of import() or
  // sweep(). Memory of files needs no wait: its pages stay while somebody has them.
  Result<bool> revoke(ExportId id, std::chrono::milliseconds limit = {});

  // Tells the others which device this process uses. To be called when it uses one; a load from the
  // second time on.
  void tellDevice();
  // Whether that rank has told that it uses another device than this process does. A few loads.
  bool usesOtherDevice(int rank) const noexcept;
  // The same of any rank. A load or two, unless one has told since the last call.
  bool anyUsesOtherDevice() noexcept;
  // Whether that rank, or this process by its own, has told that it uses one. A few loads.
  bool usesDevice(int rank) const noexcept;

  // Words of this process's that the others read, and those of another's: the caller's own matter,
  // and 0 at first. Valid until close(). Empty: that rank is not reached.
  static constexpr std::size_t kNotes = 64;
  std::span<std::atomic<std::uint64_t>, kNotes> notes() noexcept;
  std::span<const std::atomic<std::uint64_t>> notesOf(int rank) const noexcept;

  // Whether that rank has failed to import device memory of this process's when it last tried. A
  // load.
  bool failsToImport(int rank) const noexcept;

  // Whether that rank has an export imported now, used or not. A few loads.
  bool isImportedBy(ExportId id, int rank) const noexcept;

  // The memory that `owner` has exported and offered. Maps it, the first time, which may take a
  // device some milliseconds. adsmErrorInvalidValue: it is revoked, or never was;
  // adsmErrorHostMemory: as many imports as there may be are in use; adsmErrorNotSupported: it is
  // not reached from here (what that is for a device is proved as for payloads).
  Result<Imported> import(int owner, ExportId id);
  // Asks that rank to import an export before the next message of its memory; it hears of it when
  // it asks. The last suggestion replaces the ones before.
  void suggest(ExportId id, int rank) noexcept;
  // The export that `owner` has suggested, until it is dropped; kNoExport: none. A load or two.
  ExportId suggestion(int owner) const noexcept;
  void dropSuggestion(int owner, ExportId id) noexcept;
  // Gives back imports that nobody uses and whose owner waits for it, or has ended; and the pages
  // of copies that their receivers have freed. A few loads if there are none; to be called now and
  // then by a process that imports, or sends, nothing for long.
  void sweep();

  const Job& job() const noexcept;
  Statistics statistics() const;

  // From now on no rank is reached. What others have not collected yet remains theirs. Not while
  // another thread is in here.
  void close();

 private:
  struct State;
  explicit Exchange(std::unique_ptr<State> state);
  Result<Receiving> receive(int sender, ConstDescription description, std::byte* base,
                            const datatype::Layout& layout, const SharedLayoutPtr& shared,
                            Memory memory);
  std::unique_ptr<State> state_;
};

}  // namespace gmac::exchange

#endif  // GMAC_EXCHANGE_EXCHANGE_H_
