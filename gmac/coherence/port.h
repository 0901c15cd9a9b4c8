// SPDX-License-Identifier: Apache-2.0
//
// The interface that a library between the application and libc or CUDA (interpose/), and an engine
// on top of shared objects (datatype/), stand on. The public API is adsm.h.
//
// Somebody else implements it: the manager of the process's objects, once the runtime has started.
// Before that, and in programs without one, nothing is shared.
#ifndef GMAC_COHERENCE_PORT_H_
#define GMAC_COHERENCE_PORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"
#include "gmac/coherence/shared_ranges.h"

namespace gmac::coherence {

// Whether anything is shared now. A load.
inline bool anythingShared() noexcept { return shared_ranges::any(); }

// Whether a byte of [address, address + bytes), bytes > 0, may be shared: inline, a few
// comparisons, no runtime needed. No means no.
using shared_ranges::mayBeShared;

// The C library's own functions, as bulk operations need them for what the CPU does: a call of
// gmac's that copies must not come back to gmac.
using MoveFunction = void* (*)(void* to, const void* from, std::size_t bytes);
using SetFunction = void* (*)(void* to, int value, std::size_t bytes);

// The purpose of a hold. kOverwrite is kWrite by a holder that has all the bytes already and writes
// every one of them: blocks that lie wholly in the range are not fetched first, and until then hold
// bytes of any age.
enum class HoldFor { kRead, kWrite, kOverwrite };

// A range that device work uses.
struct DeviceRange {
  const void* address;  // a shared address, as a device address (identical); NULL: every object
  std::size_t bytes;    // ignored with NULL
  bool write;           // the work may write it; else it only reads it
};

// Where the bytes of a range are current.
enum class Current { kNotShared, kAccelerator, kCpu, kBoth };

// A range whose bytes are all current there: not always the longest one.
struct Place {
  std::uintptr_t begin;
  std::uintptr_t end;
  Current current;
  std::uint64_t asOf;  // placesChanged() then; 0: nobody may remember it
};

// Bytes of one object that another process may read where they lie: in the memory file that is the
// CPU's pages of this process's objects. All of them are current on the CPU, and stay so and as
// they are, but for what the application itself writes, until giveBack(); until then, calls and
// frees that need their blocks call what reclaimLoans() does, and wait.
struct Loan {
  int file;                  // its descriptor, to be used at once
  std::uint64_t fileNumber;  // of no other file of this process, ever
  std::int64_t fileBytes;    // its length, which only grows
  std::int64_t offset;       // of the first of the bytes
  const void* view;  // where this process may read them, whatever is done to the object's pages
};

// Whose kernels on the application's streams use an object: everybody's, nobody's, or one
// stream's.
enum class Users : std::uint8_t { kEverybody, kCpu, kOneStream };

// All methods are thread-safe. None may be called while the calling thread is inside the
// accelerator's driver. Those that are noexcept allocate nothing and may be called by signal
// handlers. The answers here are those of a process in which nothing is shared; an implementation
// overrides what it has.
class Port {
 public:
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // ---- Memory

  // Whether any byte of [address, address + bytes) belongs to a shared object. Ask the function
  // touchesShared() below, which is quick where nothing is.
  virtual bool touchesShared(const void* address, std::size_t bytes) noexcept;
  // Length of the prefix of [address, address + bytes) that is all shared (in one object) or all
  // not shared; `shared` says which. At least 1 for bytes > 0.
  virtual std::size_t sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept;
  // Whether the calling process is a child (of fork, _Fork or clone) of the one whose objects these
  // are: it does not have them. For children of vfork too.
  virtual bool inChildOfFork() const noexcept;

  // memmove and memset for ranges that may be shared in part or as a whole: each part is copied or
  // filled on the side where its bytes are current, without a fault per block. On return the bytes
  // read as memmove and memset leave them, on both sides; copies on the accelerator may still be
  // under way there. They cannot fail: what would end the process in the fault handler ends it
  // here, with the same kind of message. `move` and `set` are called with no lock held.
  virtual void copy(void* to, const void* from, std::size_t bytes, MoveFunction move) noexcept;
  virtual void fill(void* to, int value, std::size_t bytes, SetFunction set) noexcept;

  // See CpuHold.
  virtual Status hold(const void* address, std::size_t bytes, HoldFor purpose);
  virtual void unhold(const void* address, std::size_t bytes);

  // See Loan.
  virtual bool lend(const void* address, std::size_t bytes, Loan* loan);
  virtual void giveBack(const void* address, std::size_t bytes);

  // How many bytes one piece of a split transfer should have, so that copies of one piece overlap
  // the next.
  virtual std::size_t pieceBytes() const noexcept;
  // How many threads, the caller's included, may make one such transfer. 1 in a child of fork,
  // whose shared memory is gone.
  virtual std::size_t ioThreads() const noexcept;

  // Hints that the program is done with a range for now, or is about to use it. They never wait for
  // a copy or a kernel, change no byte that anybody sees, and do nothing where the protocol, or a
  // thread that is using the block, stands against it; parts of the range that are not shared are
  // left alone. An error is the accelerator's or the system's and loses nothing either: the call or
  // the access that needs the copy meets it again.
  //
  // startFlush: begins to copy blocks that the CPU has written and that lie wholly in the range to
  // the accelerator; the CPU may go on reading them. For bytes that are next used by a kernel.
  // startFetch: begins to bring blocks that the range touches to the CPU, once the kernels that may
  // write them have finished; forgotten when a later call may write the object.
  virtual Status startFlush(const void* address, std::size_t bytes);
  virtual Status startFetch(const void* address, std::size_t bytes);

  // ---- Device work that the application submits itself, on a stream of its own

  // Release: flushes what the work will read or partly overwrite and invalidates what it may write,
  // and makes `stream` wait for the flushes. Call immediately before submitting the work; on
  // success exactly one endDeviceWork follows in the same thread. `ranges` that are not shared are
  // ignored. Between the two, other threads' accesses to shared objects wait.
  // accel::kForeignStream: this waits for the flushes, and the caller has waited for the work
  // before endDeviceWork().
  virtual Status beginDeviceWork(accel::NativeStream stream, std::span<const DeviceRange> ranges);
  // The work has been submitted (or failed to be: submitted = false). Later CPU accesses to what it
  // may write wait for it.
  virtual Status endDeviceWork(accel::NativeStream stream, bool submitted);
  // The application is about to wait for all device work, or for a stream's: the bytes that the CPU
  // is likely to read next are copied on the same queue, after that work. A hint.
  virtual void beforeDeviceWait(std::optional<accel::NativeStream> stream);
  // Acquire: the application has waited for device work (a stream, an event, the context). What
  // batch-update fetches at a sync is fetched here, once every pending call has finished.
  virtual Status afterDeviceWait();

  // A function of the CPU has been queued in a stream, between beginDeviceWork() without ranges and
  // endDeviceWork(submitted = false); and it has run, or never will. Device work waits for it to
  // have run, so that what it writes is released and it never waits for what comes after it.
  virtual void hostFunctionQueued();
  virtual void hostFunctionEnded();

  // The application destroys a stream: what only that stream used is everybody's again.
  virtual void streamDestroyed(accel::NativeStream stream);

  // ---- Device work of an engine, on the accelerator's kernel queue

  // The runtime's accelerator; the runtime starts if it had not.
  virtual Result<accel::Accelerator*> ensureAccelerator();
  // Where the byte at `address` is current, and others around it; looks no further than `bytes`.
  // Ask currentPrefix() below, which remembers.
  virtual Place placeOf(const void* address, std::size_t bytes) noexcept;
  // How much further on than its CPU address the accelerator knows the byte at a shared address: 0
  // but for objects of adsmSafeAlloc().
  virtual std::ptrdiff_t deviceDistance(const void* address) noexcept;
  // The CPU's address of the byte that the accelerator knows at `device`; another number for
  // objects of adsmSafeAlloc() alone. `device` where that is no shared object's.
  virtual std::uintptr_t cpuAddress(std::uintptr_t device) noexcept;
  // Release, as beginDeviceWork() does for a stream; the caller submits to the kernel queue, and
  // the ticket of what it has submitted (none: nothing was) ends it. The same ranges for both;
  // every one has an address.
  virtual Status beginOwnWork(std::span<const DeviceRange> ranges);
  virtual Status endOwnWork(std::span<const DeviceRange> ranges, accel::Ticket ticket);

  // ---- Contexts

  // The context (a CUcontext) that streams belong to; 0 while it is not known. Constant once known,
  // until endContext().
  std::uintptr_t nativeContext() const noexcept {
    return native_ != nullptr ? native_->nativeContext() : 0;
  }
  // The device (a CUdevice) in whose primary context shared objects live; -1: in another, or none.
  int primaryDevice() const noexcept { return native_ != nullptr ? native_->primaryDevice() : -1; }
  // The number of a stream of another context; whether any of those is known; and the end of one.
  // See accel::NativeStreams.
  virtual Result<accel::NativeStream> streamOf(std::uintptr_t context, accel::NativeStream stream) {
    return native_ != nullptr ? native_->streamOf(context, stream) : accel::kForeignStream;
  }
  bool knowsOtherContexts() const noexcept { return native_ != nullptr && native_->knowsOthers(); }
  void otherContextEnds(std::uintptr_t context) noexcept {
    if (native_ != nullptr) native_->otherEnds(context);
  }
  // The application ends that context, or resets that device, next: all objects are freed. It has
  // waited for the work there; `workFinished`: with success. The next allocation finds the runtime
  // another context.
  virtual void endContext(bool workFinished);

  // ---- Several devices that reach each other's memory, by their CUdevice

  // Whether objects may lie in the memory of several. Constant while a context lasts.
  virtual bool placesMemory() const noexcept;
  // A device is to have these bytes in its memory; a kernel on a device is given an address. Hints:
  // pages move while no device work is in flight, at once or after a later wait of the program's.
  virtual Status prefer(const void* address, std::size_t bytes, int device);
  virtual Status namedBy(const void* address, int device);

  // ---- The device's memory

  // For whoever else wants memory of the device and got none: gives back what is kept of freed
  // objects, else moves the object that was used least lately to the CPU's memory. False: neither
  // is to be had. Waits for kernels.
  virtual bool makeRoom();
  // Whether the byte that the accelerator knows at `device` is part of it. No object of the program
  // has that byte, though the driver takes it for allocated.
  virtual bool isKept(std::uintptr_t device);
  // How much of the accelerator's memory it is. A load.
  virtual std::size_t keptBytes() const noexcept;

  // ---- Programs written for managed memory (GMAC_MANAGED)

  // Whether CUDA's managed-memory calls are to give shared objects. Constant.
  virtual bool managedMode() const noexcept;
  // Whether the program's hints are promises (GMAC_MANAGED=trust). After the runtime has started.
  virtual bool trustsHints() const noexcept;
  // Whether the application's CUDA kernels reach shared objects. After the runtime has started.
  virtual bool reachedByCuda() const noexcept;
  // Says whose kernels use the object at `address`. A promise of the application's: other kernels
  // neither get the CPU's writes nor are they waited for. Waits for what was submitted before. No
  // effect on objects that share their pages.
  virtual Status setUsers(const void* address, Users users, accel::NativeStream stream);
  // The application says that kernels seldom write the object. Where hints are promises, they do
  // not write it, and launches leave it open for reading; otherwise this has no effect. Nor has it
  // on objects that share their pages.
  virtual void setReadMostly(const void* address, bool readMostly);

 protected:
  // `native`: the accelerator's, which lives as long as the port.
  constexpr explicit Port(accel::NativeStreams* native = nullptr) noexcept : native_(native) {}
  ~Port() = default;

 private:
  accel::NativeStreams* const native_;
};

namespace internal {
extern constinit std::atomic<Port*> running;
inline constinit std::atomic<std::uint64_t> contextsEnded{0};  // the manager counts
inline constinit std::atomic<bool> openWaits{false};
inline constinit std::atomic<std::uint64_t> placesChanged{1};
}  // namespace internal

// The port of this process. A load; before this library's constructors have run, too.
inline Port& port() noexcept { return *internal::running.load(std::memory_order_acquire); }
// Makes `port` the one, and returns the one before. For the runtime when it is loaded and when it
// has started, and for tests. It lives for ever, or until another one is open.
Port& open(Port& port) noexcept;

// Counts what changes a Place: states of blocks, and which objects there are.
inline std::uint64_t placesChanged() noexcept {
  return internal::placesChanged.load(std::memory_order_acquire);
}
// For the port, under its lock.
inline void notePlacesChanged() noexcept {
  internal::placesChanged.fetch_add(1, std::memory_order_acq_rel);
}

// Length of a prefix of [address, address + bytes), bytes > 0, that is current at one place, and
// which; at least 1. A hint as soon as it is given: other threads may be at work. What is held
// (CpuHold) or under device work is what its holder knows it to be. Takes no lock for what this
// thread has asked lately, unless something has changed since; for signal handlers too.
std::size_t currentPrefix(const void* address, std::size_t bytes, Current* current) noexcept;

namespace internal {
bool touchesShared(const void* address, std::size_t bytes) noexcept;
}  // namespace internal

// Whether any byte of [address, address + bytes) belongs to a shared object. Lock-free where
// nothing is shared, and as currentPrefix() is; for signal handlers too.
inline bool touchesShared(const void* address, std::size_t bytes) noexcept {
  return bytes > 0 && mayBeShared(address, bytes) && internal::touchesShared(address, bytes);
}

// The application has made a stream wait for something that the CPU, or another process, does
// later. Work of ours that is submitted to a stream after that may wait for it too, so the CPU must
// not wait for such work. For good; also before the runtime starts.
inline void noteOpenWait() noexcept { internal::openWaits.store(true, std::memory_order_relaxed); }
inline bool openWaits() noexcept { return internal::openWaits.load(std::memory_order_relaxed); }

// Who borrows (one library of the process) says how it is asked to give back all that it can, as
// soon as it can: by any thread, with no lock of ours held; it may call giveBack(). For good.
void onReclaim(void (*giveBack)()) noexcept;
// Asks it.
void reclaimLoans();

// How often a context has ended: what was made in one is gone with it. A load.
inline std::uint64_t contextsEnded() noexcept { return internal::contextsEnded.load(); }

// Keeps a range open on the CPU: while it lives, system calls and libc may read (write: also write)
// every byte of it without a fault, and nothing evicts or invalidates its blocks. Calls by other
// threads wait. The bytes are current when the constructor returns. With write, the blocks are
// Dirty afterwards, whether or not they were written. Parts of the range that are not shared are
// left alone. Keep it short-lived; the holder must not call adsmCall or launch.
class CpuHold {
 public:
  CpuHold(const void* address, std::size_t bytes, HoldFor purpose);
  CpuHold(const void* address, std::size_t bytes, bool write)
      : CpuHold(address, bytes, write ? HoldFor::kWrite : HoldFor::kRead) {}
  ~CpuHold();
  CpuHold(const CpuHold&) = delete;
  CpuHold& operator=(const CpuHold&) = delete;
  Status status() const { return status_; }

 private:
  Port& port_;  // the one that has the hold; another one may open meanwhile
  const void* address_;
  Status status_;
  std::size_t bytes_;
};

}  // namespace gmac::coherence

#endif  // GMAC_COHERENCE_PORT_H_
