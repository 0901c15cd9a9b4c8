// SPDX-License-Identifier: Apache-2.0
//
// Messages whose payload goes by exchange/: in place of the payload MPI carries a ticket, which
// says where the payload is. Both processes are on one host, and both have this library. Knows no
// mpi.h; ranks are those in MPI_COMM_WORLD.
//
// The payload is packed into shared memory before its ticket is sent (exchange::Parcel); or it
// stays where it is, and the receiver takes it from there (Transfer). To a process of another host
// it follows in fragments (abi/fragments.h); this header has the tickets of those, too.
//
// All functions are thread-safe, but for prepare(), open() and close().
#ifndef GMAC_MPI_TICKETS_H_
#define GMAC_MPI_TICKETS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "exchange/exchange.h"
#include "gmac/coherence/shared_memory.h"
#include "mpi/device_exports.h"
#include "mpi/way_choice.h"

namespace gmac::mpi::tickets {

// The length of a ticket: a multiple of the length of every predefined datatype, pairs (12 and 20
// bytes) and MPI_C_LONG_DOUBLE_COMPLEX included, as MPICH 4.0 ends a process that receives a part
// of an element. Short enough for every MPI to send it without a handshake.
inline constexpr std::size_t kBytes = 480;
using Bytes = std::array<std::byte, kBytes>;

namespace internal {
extern std::atomic<bool> inUse;
extern std::atomic<bool> takesFragments;
}  // namespace internal

// Whether this process reaches any other: from open() to close(). A load.
inline bool inUse() { return internal::inUse.load(std::memory_order_acquire); }

// Before MPI's own MPI_Init: reads the variables, and makes this process findable.
void prepare();
// After it: meets the other processes.
void open(int rank, int size);
// Before MPI's own MPI_Finalize. With GMAC_STATS, and tickets wanted, rank 0 says how its messages
// went.
void close();

// Whether tickets can be exchanged with that rank. Both processes give the same answer. A load.
bool reaches(int rank);

// Whether this process wants tickets. After prepare().
bool wanted();
// All processes have this library, and have this number in common: those that are not reached take
// tickets of fragments from now on.
using Nonce = std::array<std::uint64_t, 2>;
void admitFragments(const Nonce& nonce);
// Whether that rank does. Both processes give the same answer. A few loads.
bool takesFragments(int rank);
// Whether any may: a load; and the least payload that goes in fragments then.
inline bool anyTakesFragments() { return internal::takesFragments.load(std::memory_order_acquire); }
std::int64_t leastFragmented();
// How long the sender of such a payload waits for a receiver that does not answer.
std::chrono::microseconds answerWait(std::int64_t payloadBytes);
inline bool goesInFragments(std::int64_t payloadBytes) {
  return anyTakesFragments() && payloadBytes >= leastFragmented();
}

// Which way a large message went, and why. Of plain memory that takes the wire nothing is counted.
enum class Way {
  kTicket,      // packed into shared memory
  kNoRoom,      // the room for payloads was full
  kMode,        // synchronous, buffered or persistent, or of MPI_Sendrecv_replace
  kNotReached,  // the receiver is on another host, without this library, or in another group
  // Transfers, by exchange::Path.
  kMapped,
  kRead,
  kRing,
  kDevice,
  kPinned,
  kCopied,
  kFragments,
};
inline constexpr int kWays = 11;
// Payloads of fewer bytes take MPI's wire, and are not counted.
std::int64_t leastPayload();
// Tells the others which device this process uses. To be called for messages of its memory.
void tellDevice();
// leastPayload() of messages on this process's device for a rank that may have told that it uses
// another one. (Two processes that have one device in turns wait longer for it than for the wire.)
std::int64_t leastOnDevice(int rank);
// The least that a message of any memory for any rank may be to become a ticket. A few loads.
std::int64_t leastAnywhere();
void count(Way way, std::int64_t payloadBytes);
// Whether this process uses a device that copies other processes' memory much faster than it is
// packed (that of the `host` accelerator is no such device); and whether another one of its host
// does. Some loads for each process.
bool hasDevice();
bool anyOtherHasDevice();
// Whether all processes of MPI_COMM_WORLD are on this host.
bool areOnOneHost();
// Whether a shared object's bytes can be lent on the device now. Waits for kernels that write them.
bool mayLendOnDevice(const std::byte* base, const datatype::Bounds& bounds);
// A datatype that all processes have made, or have given up (Exchange::knowType).
void knowType(std::shared_ptr<const datatype::Layout> element, std::int64_t extent);
void forgetType(const datatype::Layout& element, std::int64_t extent);
// Adds a received message, or one that is not counted, to the trace.
void trace(const char* name, std::int64_t payloadBytes);

// Reserves room for a payload for that rank. Empty if there is no room now.
exchange::Parcel reserve(int rank, std::int64_t bytes);
// Device memory whose payload is packed.
struct Source {
  // The export that the receiver has to import first (importFor()). kNoExport: none.
  exchange::ExportId exported = exchange::kNoExport;
  bool hasNoHandle = false;  // so that nobody can
};
// Makes the ticket, once the payload is complete. `source`: what Transfer::offer() has found;
// `packed`: how long that took, for large ones.
Bytes write(exchange::Parcel& parcel, const Source& source, std::chrono::nanoseconds packed);

// The contents of a ticket.
struct Ticket {
  std::int64_t payloadBytes;
  int sender;
  std::array<std::byte, exchange::kDescriptionBytes> description;
  // Where the payload was, or is: device memory that the sender has exported. kNoExport: elsewhere.
  exchange::ExportId exported;
  // Of one that was packed: Source, and how long it took.
  bool hasNoHandle = false;
  std::chrono::nanoseconds packed{0};
  // Of a payload in fragments: their length (but for the last), and the message's number. 0: it is
  // none.
  std::int64_t fragmentBytes = 0;
  int number = 0;
  // A transfer of device memory through pinned memory: it was packed, as `hasNoHandle` says.
  bool isPinned = false;
};
// Empty if the bytes are no ticket but a message of the same length.
std::optional<Ticket> read(std::span<const std::byte, kBytes> bytes);

// The ticket of a payload in fragments.
Bytes writeFragmented(std::int64_t payloadBytes, std::int64_t fragmentBytes, int number);

// The payload that was packed. An error's message says why there is none.
Result<exchange::Delivery> collect(const Ticket& ticket);

// Whether the ticket is a transfer's, for which the following two are.
bool isTransfer(const Ticket& ticket);
// Copies the bytes to those of the layout, which has as many or more. Waits for the sender where it
// goes by the ring, and meanwhile serves this process's own transfers. An error's message says why
// the bytes are worth nothing.
// `memory`: what the base is; kDevice: device memory that the runtime's device reaches, or objects.
// *path: which way the message went, once all is there. NULL: nobody asks.
Status receive(const Ticket& ticket, std::byte* base, const datatype::Layout& layout,
               exchange::Memory memory = exchange::Memory::kHost, exchange::Path* path = nullptr);
// The same to one piece of device memory, as long as the payload, that the runtime's device
// reaches: does what gmacOpenDeviceMemory() does beforehand, and takes less time where the payload
// is one piece of memory that is imported here.
Status receivePiece(const Ticket& ticket, std::byte* piece);
// The same for a caller that unpacks the payload itself. `take` is given the packed payload where
// it lies and returns whether it has read all of it; it is called again if the sender has moved the
// payload meanwhile. True: `take` has it. False: the payload is in `room`, which has as many bytes.
Result<bool> receive(const Ticket& ticket, std::byte* room,
                     const std::function<bool(const std::byte* packed)>& take);
// The bytes are not wanted: releases the sender.
void discard(const Ticket& ticket);
// The receiver's bytes were on its device: imports the memory that the payload came from, so that
// the next one need not be packed. Some milliseconds, once for each export; what cannot be imported
// is tried again less and less often (import_attempts.h). False: it is not imported.
bool importFor(const Ticket& ticket);
// The same for a message that took the wire, as there was no room for its payload: the sender, and
// the receiver of its device's bytes from that rank. `wanted` is called if there is something to
// import: whether the bytes went to this process's device. False: they did, and it is not imported.
void suggest(int rank, exchange::ExportId exported);
bool importSuggested(int sender, const std::function<bool()>& wanted);
// Whether it has suggested something; `sender` may be negative. A load or two.
bool anySuggested(int sender);
// Gives back what others want back of what this process has imported, and ends exports that others
// have given back. A load if there is neither.
void sweep();

// Bytes of a shared object while another process may read them where they lie. Owner; one thread at
// a time.
class Loan {
 public:
  Loan() = default;
  // Without them if they cannot be lent.
  Loan(const std::byte* address, std::size_t bytes)
      : address_(address), bytes_(gmacLend(address, bytes, &loan_) != 0 ? bytes : 0) {}
  Loan(Loan&& other) noexcept { swap(other); }
  Loan& operator=(Loan&& other) noexcept {
    Loan(std::move(other)).swap(*this);
    return *this;
  }
  ~Loan() {
    if (bytes_ > 0) gmacGiveBack(address_, bytes_);
  }
  explicit operator bool() const { return bytes_ > 0; }
  const gmacLoan& operator*() const { return loan_; }
  std::int64_t end() const { return loan_.offset + static_cast<std::int64_t>(bytes_); }

 private:
  void swap(Loan& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(loan_, other.loan_);
  }
  gmacLoan loan_{};  // before bytes_, whose initialisation fills it in
  const std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

// The same on this process's device: while another process's device may read them there.
class DeviceLoan {
 public:
  DeviceLoan() = default;
  // *error: that of a kernel that was waited for. Without the bytes if they cannot be lent.
  DeviceLoan(const std::byte* address, std::size_t bytes, adsmError_t* error) : address_(address) {
    int lent = 0;
    *error = gmacLendOnDevice(address, bytes, &loan_, &lent);
    bytes_ = *error == adsmSuccess && lent != 0 ? bytes : 0;
  }
  DeviceLoan(DeviceLoan&& other) noexcept { swap(other); }
  DeviceLoan& operator=(DeviceLoan&& other) noexcept {
    DeviceLoan(std::move(other)).swap(*this);
    return *this;
  }
  ~DeviceLoan() {
    if (bytes_ > 0) gmacGiveBackOnDevice(address_, bytes_, &loan_);
  }
  explicit operator bool() const { return bytes_ > 0; }
  const gmacDeviceLoan& operator*() const { return loan_; }

 private:
  void swap(DeviceLoan& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(loan_, other.loan_);
  }
  gmacDeviceLoan loan_{};
  const std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

// The memory file of this process's objects, as others import it. Revoked when no message needs it.
struct ExportedFile {
  ExportedFile(exchange::ExportId exported, const gmacLoan& loan)
      : id(exported), number(loan.fileNumber), bytes(loan.fileBytes) {}
  ~ExportedFile();
  ExportedFile(const ExportedFile&) = delete;
  ExportedFile& operator=(const ExportedFile&) = delete;
  const exchange::ExportId id;
  const std::uint64_t number;
  const std::int64_t bytes;
};

// A message in the sender's memory until the receiver has taken it. Thread-safe.
//
// A sender that waits cannot tell a receiver that is late from one that comes to its receive only
// after something else of the sender's, so it leaves a copy in shared memory when it has waited for
// about as long as the copy takes: at most twice the time of the better choice, but for kLeastWait.
// One that does not wait for its receiver as a rule (kFollows) waits for a tenth of that.
//
// Bytes of a shared object are lent meanwhile, on the CPU or on the device. As soon as a kernel
// call or a free needs them, its thread leaves a copy, whether the receiver has begun or not: it
// waits for no longer than that.
//
// A thread may hold the lock of one on the device and then take that of one on the CPU: packing on
// the device may ask for what is lent on the CPU. Never the other way round.
class Transfer {
 public:
  static constexpr std::chrono::microseconds kLeastWait{100};

  // NULL: there is no room. `choice`: kRead, kShortRing or kWholeRing, which follow() packs of a
  // sender that follows.
  static std::shared_ptr<Transfer> begin(int rank, const std::byte* base,
                                         exchange::SharedLayoutPtr layout, Choice choice);
  // The same of a shared object all of whose bytes between the layout's bounds are current on the
  // CPU, in a memory file, which the receiver maps. NULL: it does not go this way.
  static std::shared_ptr<Transfer> lend(int rank, const std::byte* base,
                                        exchange::SharedLayoutPtr layout, Sender sender);
  // The same of device memory that the program has allocated, whose context's default streams are
  // waited for: the receiver's device copies it, in one pass, and needs nothing of the sender
  // meanwhile. Where that device does not reach it, a long message goes through pinned memory, over
  // both buses at once (isStaged()), but of a sender that leaves. NULL: it does neither, and
  // *packed says what may help.
  static std::shared_ptr<Transfer> offer(int rank, const std::byte* base,
                                         exchange::SharedLayoutPtr layout, Sender sender,
                                         tickets::Source* packed);
  // The same of a shared object all of whose bytes between the layout's bounds are current on the
  // device. Waits for kernels that write them. *failed: one of them has, or the device; the message
  // cannot be sent then, and an error's text says why.
  static std::shared_ptr<Transfer> lendOnDevice(int rank, const std::byte* base,
                                                exchange::SharedLayoutPtr layout,
                                                tickets::Source* packed, bool* failed);
  // The memory of the message.
  struct Source {
    Loan loan;
    std::shared_ptr<const ExportedFile> file;
    DeviceExports::MemoryPtr memory;
    DeviceLoan deviceLoan;
    tickets::Source packed;  // of one that goes through pinned memory
  };
  Transfer(exchange::Sending sending, int rank, Source source = {}, Sender sender = Sender::kWaits);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  std::int64_t bytes() const { return sending_.bytes(); }
  // It goes through pinned memory: the sender's call is to advance it until it is over, for which
  // it needs no receiver. If the receiver has the memory imported, and all of the message fits
  // there, that is when it is packed; else a copy is left to a receiver that does not begin.
  bool isStaged() const { return isStaged_; }
  // Once. The receiver may have it from now on.
  Bytes write();
  // Does what there is to do, and never waits. The first call begins the wait for the receiver.
  enum class Progress { kUnderWay, kOver, kFailed };
  Progress advance();
  // The same before the sender waits: MPI has the ticket.
  Progress follow();
  // The ticket was not sent.
  void recall();
  // Gives bytes back that are lent on the device, or on the CPU, and leaves a copy; before write():
  // as soon as that is called.
  void giveBack(bool onDevice);
  // The same of a message of that device memory.
  void giveBack(exchange::ExportId memory);
  // Of a failure.
  std::string reason() const;

 private:
  friend void serveTransfers();
  // Both under the lock.
  Progress serve();  // advance() without its wait
  void leaveCopyNow();
  void end();
  static void list(const std::shared_ptr<Transfer>& transfer);
  static std::shared_ptr<Transfer> beginOnDevice(int rank, const std::byte* base,
                                                 const std::byte* device,
                                                 exchange::SharedLayoutPtr layout, Source source);
  static std::shared_ptr<Transfer> stage(int rank, const std::byte* base,
                                         exchange::SharedLayoutPtr layout, Sender sender,
                                         const tickets::Source& packed);
  void settle();

  const bool isLent_;        // on the CPU
  const bool isDeviceLent_;  // on the device
  const bool isStaged_;
  const std::int64_t bytesPerMicrosecond_;  // of its patience
  mutable std::mutex lock_;                 // guards what follows
  Source source_;
  bool written_ = false;
  bool wanted_ = false;  // what is lent, as soon as it is written
  exchange::Sending sending_;
  const int rank_;
  Progress progress_ = Progress::kUnderWay;
  std::chrono::steady_clock::time_point copyAt_{};  // none: nobody waits yet
  std::string reason_;
};

// choosePlain() for that receiver.
Choice choiceFor(int rank, const std::byte* base, const datatype::Layout& layout, Sender sender);
// Whether any of this process is under way. A load.
bool anyTransfers();
// Advances each of them.
void serveTransfers();
// Whether any process, or that one, may wait for this one to receive a transfer; by its rank. A
// load or two.
bool anyWaits();
bool waits(int rank);

}  // namespace gmac::mpi::tickets

#endif  // GMAC_MPI_TICKETS_H_
