// SPDX-License-Identifier: Apache-2.0
//
// The interface to shared objects for interpose/, which stands between the application and libc or
// CUDA, and for datatype/. (The public API is adsm.h.)
//
// The manager of the process's objects implements it once the runtime has started. Until then, and
// in programs without a runtime, nothing is shared.
#ifndef GMAC_COHERENCE_PORT_H_
#define GMAC_COHERENCE_PORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"
#include "gmac/coherence/shared_ranges.h"

namespace gmac::coherence {

// Whether anything is shared now. A load.
inline bool anythingShared() noexcept { return shared_ranges::any(); }

// Whether a byte of [address, address + bytes), bytes > 0, may be shared. False is certain. Inline:
// a few comparisons; needs no runtime.
using shared_ranges::mayBeShared;

// The C library's own functions, for the CPU's part of bulk operations: a copy that gmac makes must
// not enter gmac again.
using MoveFunction = void* (*)(void* to, const void* from, std::size_t bytes);
using SetFunction = void* (*)(void* to, int value, std::size_t bytes);

// The purpose of a hold. kOverwrite is kWrite by a holder that writes every byte of the range and
// has them all already: blocks that lie wholly in the range are not fetched, and hold stale bytes
// until they are written.
enum class HoldFor { kRead, kWrite, kOverwrite };

// A range that device work uses.
struct DeviceRange {
  const void* address;  // a shared address, as a device address (identical); NULL: every object
  std::size_t bytes;    // ignored with NULL
  bool write;           // the work may write it; else it only reads it
  // The driver gets it in parts of one kind of memory each (Port::ofOneKind()); else as a whole, as
  // it does one that runs past its allocation: it refuses that, or knows that other memory follows.
  bool inParts = false;
  // With NULL: every object of which another range of the same work has a byte, all of it, and no
  // more. The others say whether the work may write it.
  bool listed = false;
};

// Where the bytes of a range are current.
enum class Current { kNotShared, kAccelerator, kCpu, kBoth };

// A range whose bytes are all current at the same place. There may be a longer one.
struct Place {
  std::uintptr_t begin;
  std::uintptr_t end;
  Current current;
  std::uint64_t asOf;  // placesChanged() at that time; 0: do not remember the answer
};

// Bytes of one object that another process may read in place: they lie in the memory file that
// backs the CPU's pages of this process's objects. They stay current on the CPU until giveBack(),
// and only the application's own writes change them. Calls and frees that need their blocks ask for
// them (reclaimLoans()) and wait.
struct Loan {
  int file;                  // its descriptor; use it at once
  std::uint64_t fileNumber;  // unique in this process, never used again
  std::int64_t fileBytes;    // its length, which only grows
  std::int64_t offset;       // of the first of the bytes
  const void* view;  // this process may read them here, whatever the protection of the object
};

// Bytes of one object that another process's accelerator may read in place, in this one's memory:
// part of an allocation that can be handed over (accel/exported_memory.h). They are current on the
// accelerator, what calls and other work submitted before write there is done, and nothing but the
// application's own copies and packs to these bytes changes them until giveBackOnDevice(). Calls
// and other device work that may write them ask for them, as do frees and what moves the memory
// (reclaimLoans()), and wait.
struct DeviceLoan {
  std::uintptr_t start;    // of the allocation, a device address
  std::size_t bytes;       // of the allocation
  std::uint64_t number;    // of its pages: see accel::SharedAllocation
  std::uintptr_t address;  // of the first of the lent bytes, a device address
  std::uint64_t object;    // for giveBackOnDevice()
};

// What the runtime knew when the application began to wait for device work.
struct DeviceWait {
  std::uint64_t launches = 0;  // all that were not marked, which the wait is for; 0: not that
  bool skipped = false;        // the runtime has nothing to do at this wait
  bool asks = false;           // see beforeDeviceWait()
  bool begun = false;          // the policies know of it
  std::optional<accel::NativeStream> stream;  // of one that asks or has begun; none: all work
};

// Which of the application's streams have kernels that use an object: all, none, or one.
enum class Users : std::uint8_t { kEverybody, kCpu, kOneStream };

// All methods are thread-safe. Do not call them from inside the accelerator's driver. Those that
// are noexcept allocate nothing and may be called in signal handlers. The defaults are the answers
// of a process in which nothing is shared; an implementation overrides what it has.
class Port {
 public:
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // ---- Memory

  // Whether any byte of [address, address + bytes) belongs to a shared object. Call the function
  // touchesShared() below: it is fast where nothing is shared.
  virtual bool touchesShared(const void* address, std::size_t bytes) noexcept;
  // Length of the longest prefix of [address, address + bytes) that lies in one object, or in none;
  // `shared` says which. At least 1 for bytes > 0.
  virtual std::size_t sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept;
  // Whether the calling process is a child (of fork, _Fork or clone) of the objects' process: it
  // does not have them. May be called in a child of vfork.
  virtual bool inChildOfFork() const noexcept;
  // Whether the calling thread is at work for the runtime, maybe under its lock: what its allocator
  // or a driver does then is no request of the program's. None of the questions above may be asked.
  virtual bool worksHere() const noexcept;

  // memmove and memset for ranges that may be shared in part or as a whole: each part is copied or
  // filled on the side where its bytes are current, without a fault per block. On return both sides
  // read what memmove and memset would have left; copies on the accelerator may still be in flight.
  // They cannot fail: an error that would end the process in the fault handler ends it here, with
  // the same kind of message. No lock is held while `move` and `set` run.
  virtual void copy(void* to, const void* from, std::size_t bytes, MoveFunction move) noexcept;
  virtual void fill(void* to, int value, std::size_t bytes, SetFunction set) noexcept;

  // See CpuHold.
  virtual Status hold(const void* address, std::size_t bytes, HoldFor purpose);
  virtual void unhold(const void* address, std::size_t bytes);

  // See Loan.
  virtual bool lend(const void* address, std::size_t bytes, Loan* loan);
  virtual void giveBack(const void* address, std::size_t bytes);
  // See DeviceLoan. False: not all of the bytes are one object's and current on the accelerator, or
  // its memory is not handed over. Waits for device work that writes them; errors are that work's.
  // No block changes its state.
  virtual Result<bool> lendOnDevice(const void* address, std::size_t bytes, DeviceLoan* loan);
  virtual void giveBackOnDevice(const void* address, std::size_t bytes, const DeviceLoan& loan);

  // The length of a piece of a long transfer, in bytes, at which the copy of one piece overlaps the
  // transfer of the next.
  virtual std::size_t pieceBytes() const noexcept;
  // How many threads, the caller included, may work on one such transfer. 1 in a child of fork.
  virtual std::size_t ioThreads() const noexcept;

  // Hints: the program has finished with a range for now, or is about to use it. They never wait
  // for a copy or a kernel and change no visible byte. They do nothing where the protocol forbids
  // it or a thread uses the block, and ignore parts that are not shared. After an error nothing is
  // lost: the call or access that needs the copy meets the error again.
  //
  // startFlush: starts to copy the dirty blocks that lie wholly in the range to the accelerator;
  // the CPU may still read them. For bytes that a kernel uses next.
  // startFetch: starts to fetch the blocks that overlap the range, once the kernels that may write
  // them have finished; cancelled when a later call may write the object.
  virtual Status startFlush(const void* address, std::size_t bytes);
  virtual Status startFetch(const void* address, std::size_t bytes);
  // The same by the calling thread, if no kernel runs that may write the bytes: waits for the copy.
  virtual void fetchIfQuiet(const void* address, std::size_t bytes) noexcept;

  // ---- Device work that the application submits itself, on a stream of its own

  // Release: flushes dirty blocks of `ranges`, invalidates those that the work may write, and makes
  // `stream` wait for the flushes. Call it immediately before submitting the work; after success
  // the same thread must call endDeviceWork() exactly once. Until then, accesses of other threads
  // to shared objects wait. Ignores `ranges` that are not shared. accel::kForeignStream: the call
  // itself waits for the flushes, and the caller must wait for the work before endDeviceWork().
  virtual Status beginDeviceWork(accel::NativeStream stream, std::span<const DeviceRange> ranges);
  // The work has been submitted; submitted = false: that failed. Later CPU accesses to the ranges
  // that it may write wait for it.
  virtual Status endDeviceWork(accel::NativeStream stream, bool submitted);
  // The same pair for a launch that may use every object and write it, where a launch on the same
  // stream has been the newest event: takes no lock. False: call beginDeviceWork() instead. The
  // program's handlers are kept out of the thread from the first to the second
  // (os::SignalsBlocked). mayRepeat(): whether it is worth to ask. A load.
  virtual bool mayRepeat() const noexcept;
  virtual bool beginRepeated(accel::NativeStream stream) noexcept;
  virtual void endRepeated(accel::NativeStream stream, bool submitted) noexcept;
  // markRepeated: what was launched like that is marked now, as the application is about to end its
  // stream, or to put other work there. noneRepeats: and no launch that has begun before is under
  // way, as the application is about to record the work of streams.
  virtual void markRepeated() noexcept;
  virtual void noneRepeats() noexcept;
  // After captureBegins(): each object has memory of one kind from now on, as long as
  // captureUnderWay() or recorded(), but where device work goes on for longer than a few
  // milliseconds.
  virtual void keepWhole() noexcept;
  // The same of these ranges alone; where one does not lie in memory of one kind, waits for all
  // device work.
  virtual void keepWhole(std::span<const DeviceRange> ranges) noexcept;
  // The application is about to wait for all device work, or for that of one stream;
  // kForeignStream: for an event, or something else. `asks`: it only asks whether that has ended. A
  // hint: copies the bytes that the CPU is likely to read next, on the same queue after that work.
  virtual DeviceWait beforeDeviceWait(std::optional<accel::NativeStream> stream, bool asks);
  DeviceWait beforeDeviceWait(std::optional<accel::NativeStream> stream) {
    return beforeDeviceWait(stream, false);
  }
  // Acquire: the application has waited for device work (a stream, an event, the context) with
  // success, or has been told that it has ended. Under batch-update this fetches the objects, once
  // every pending call has finished.
  virtual Status afterDeviceWait(const DeviceWait& wait);

  // A CUDA call of the application's in nativeContext() has failed with that number. See
  // accel::NativeStreams.
  void callFailed(int number) noexcept {
    if (native_ != nullptr) native_->failed(number);
  }

  // hostFunctionQueued: a host function has been queued in a stream, between beginDeviceWork()
  // without ranges and endDeviceWork(submitted = false). hostFunctionEnded: it has run, or never
  // will. Later device work waits for it: its writes are released then, and it never waits for work
  // after it.
  virtual void hostFunctionQueued();
  virtual void hostFunctionEnded();

  // The application destroys a stream: objects that only that stream used have all users again.
  virtual void streamDestroyed(accel::NativeStream stream);

  // ---- Device work of an engine, on the accelerator's kernel queue

  // The runtime's accelerator; starts the runtime if need be.
  virtual Result<accel::Accelerator*> ensureAccelerator();
  // Where the byte at `address` is current, with the range around it that is current there; looks
  // no further than `bytes`. Call currentPrefix() below, which caches.
  virtual Place placeOf(const void* address, std::size_t bytes) noexcept;
  // Device address minus CPU address of the byte at a shared address: 0 but for objects of
  // adsmSafeAlloc().
  virtual std::ptrdiff_t deviceDistance(const void* address) noexcept;
  // The CPU address of the byte at a device address: differs for objects of adsmSafeAlloc() alone.
  // `device` itself where no shared object lies there.
  virtual std::uintptr_t cpuAddress(std::uintptr_t device) noexcept;
  // An engine is about to move these bytes of an object between the CPU's memory and the
  // accelerator's copy, by device work that it waits for. True: so much has been done like that for
  // these blocks, with no device work of the application's in between, that the CPU had better have
  // them (CpuHold) and move the bytes itself. Counts them. A hint.
  virtual bool prefersCpu(const void* address, std::size_t bytes) noexcept;
  // Release, as by beginDeviceWork(), for work that the caller submits to the kernel queue.
  // endOwnWork() takes its ticket; an empty one: nothing was submitted. Pass both the same ranges,
  // each with an address.
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
  // The number of a stream of another context; whether other contexts are known; one of them ends.
  // See accel::NativeStreams.
  Result<accel::NativeStream> streamOf(std::uintptr_t context, accel::NativeStream stream) {
    return native_ != nullptr ? native_->streamOf(context, stream) : accel::kForeignStream;
  }
  bool knowsOtherContexts() const noexcept { return native_ != nullptr && native_->knowsOthers(); }
  virtual void otherContextEnds(std::uintptr_t context) noexcept {
    if (native_ != nullptr) native_->otherEnds(context);
  }
  // The application is about to destroy the runtime's context, or to reset its device, and has
  // waited for its work; `workFinished`: with success. Frees all objects. The next allocation
  // chooses another context.
  virtual void endContext(bool workFinished);

  // ---- Several devices that reach each other's memory, by their CUdevice

  // Whether objects may lie in the memory of several devices. Constant while a context lasts.
  virtual bool placesMemory() const noexcept;
  // prefer: these bytes should lie in the memory of that device. namedBy: a kernel there gets an
  // address as an argument. Hints: pages move while no device work is in flight, at once or after a
  // later wait of the program.
  virtual Status prefer(const void* address, std::size_t bytes, int device);
  virtual Status namedBy(const void* address, int device);

  // ---- The device's memory

  // An allocation of the application's own has failed for want of device memory: releases the
  // memory that is kept of freed objects, else moves the least recently used object to other
  // memory. False: there is nothing to release or move. Waits for kernels.
  virtual bool makeRoom();
  // The same for memory of the runtime's own work, which is device 0's.
  virtual bool makeRoomForOwnWork();
  // Whether a device address lies in the memory that is kept of freed objects: the driver has it
  // allocated, and no object uses it.
  virtual bool isKept(std::uintptr_t device);
  // The size of that memory in bytes. A load.
  virtual std::size_t keptBytes() const noexcept;
  // Length of a prefix of [address, address + bytes), bytes > 0, that the driver copies or fills at
  // once: some pages of an object may have one copy, in the CPU's memory. Good from
  // beginDeviceWork() to endDeviceWork(), for a range that says `inParts`.
  virtual std::size_t ofOneKind(const void* address, std::size_t bytes) noexcept;

  // ---- Programs written for managed memory (GMAC_MANAGED)

  // Whether no device has room now for an object of that size, even if all other objects left it.
  // Asks the devices; gives back what is kept of freed objects if that may change the answer.
  virtual bool fitsNowhere(std::size_t bytes);

  // Whether CUDA's managed-memory calls are to give shared objects. Constant.
  virtual bool managedMode() const noexcept;
  // Whether the program's hints are promises (GMAC_MANAGED=trust). After the runtime has started.
  virtual bool trustsHints() const noexcept;
  // Whether the application's CUDA kernels reach shared objects. After the runtime has started.
  virtual bool reachedByCuda() const noexcept;
  // How long one access of the CPU waits for kernels, in seconds; 0: for ever. Constant.
  virtual unsigned waitLimit() const noexcept;
  // Says which streams have kernels that use the object at `address`. The application promises it:
  // kernels on other streams do not see the CPU's writes, and no access waits for them. Waits for
  // work submitted before. No effect on objects that share their pages.
  virtual Status setUsers(const void* address, Users users, accel::NativeStream stream);
  // The application says that kernels seldom write the object. Where hints are promises, kernels do
  // not write it and launches leave it open for reading. Else, and on objects that share their
  // pages, no effect.
  virtual void setReadMostly(const void* address, bool readMostly);

 protected:
  // `native`: the accelerator's streams, which outlive the port.
  constexpr explicit Port(accel::NativeStreams* native = nullptr) noexcept : native_(native) {}
  ~Port() = default;

 private:
  accel::NativeStreams* const native_;
};

namespace internal {
extern constinit std::atomic<Port*> running;
inline constinit std::atomic<std::uint64_t> contextsEnded{0};  // counted by the manager
inline constinit std::atomic<bool> openWaits{false};
inline constinit std::atomic<bool> recorded{false};
inline constinit std::atomic<int> captures{0};
inline constinit std::atomic<bool> launchesList{false};
inline constinit std::atomic<std::uint64_t> placesChanged{1};
}  // namespace internal

// The port of this process. A load; works before this library's constructors have run.
inline Port& port() noexcept { return *internal::running.load(std::memory_order_acquire); }
// Replaces the process's port and returns the one before. For the runtime when it is loaded and
// when it has started, and for tests. `port` must live until another one is open.
Port& open(Port& port) noexcept;

// Counts the changes that make a Place stale: of block states, and of the set of objects.
inline std::uint64_t placesChanged() noexcept {
  return internal::placesChanged.load(std::memory_order_acquire);
}
// For the port, under its lock.
inline void notePlacesChanged() noexcept {
  internal::placesChanged.fetch_add(1, std::memory_order_acq_rel);
}

// Length of a prefix of [address, address + bytes), bytes > 0, that is current at one place, and
// which place; at least 1. Only a hint: other threads may change it at once, unless the caller
// holds the bytes (CpuHold) or has device work on them. Takes no lock where this thread has asked
// lately and nothing has changed since. May be called in signal handlers.
std::size_t currentPrefix(const void* address, std::size_t bytes, Current* current) noexcept;

namespace internal {
bool touchesShared(const void* address, std::size_t bytes) noexcept;
}  // namespace internal

// Whether any byte of [address, address + bytes) belongs to a shared object. Takes no lock where
// nothing is shared, nor where currentPrefix() takes none. May be called in signal handlers.
inline bool touchesShared(const void* address, std::size_t bytes) noexcept {
  return bytes > 0 && mayBeShared(address, bytes) && internal::touchesShared(address, bytes);
}

// The application has made a stream wait for a later action of the CPU or of another process. Our
// own work on that stream may then wait for it too, so the CPU must not wait for such work. Never
// revoked; may be called before the runtime starts.
inline void noteOpenWait() noexcept { internal::openWaits.store(true, std::memory_order_relaxed); }
inline bool openWaits() noexcept { return internal::openWaits.load(std::memory_order_relaxed); }

// The application has recorded work that runs later and names shared memory by ranges: a copy or a
// fill in a graph. Call it before captureEnds(). Never revoked.
inline void noteRecorded() noexcept { internal::recorded.store(true); }
inline bool recorded() noexcept { return internal::recorded.load(); }

// From before the application begins to capture work of streams until it has ended that. Streams
// may join a capture meanwhile. Under way for ever where a captured stream was destroyed. May be
// called before the runtime starts.
inline void captureBegins() noexcept { internal::captures.fetch_add(1); }
inline void captureEnds() noexcept { internal::captures.fetch_sub(1); }
inline bool captureUnderWay() noexcept { return internal::captures.load() != 0; }

// Whether it is worth the time to find out which objects a launch may use, and to list them
// (DeviceRange::listed). For the port to say.
inline void letLaunchesList(bool list) noexcept {
  internal::launchesList.store(list, std::memory_order_relaxed);
}
inline bool launchesList() noexcept {
  return internal::launchesList.load(std::memory_order_relaxed);
}

// Which loans are asked for: all of a kind, as the borrower knows no blocks.
enum class Lent { kOnCpu, kOnDevice };
// The borrower (one library of the process) registers the function that asks it to give back all
// loans of a kind that it can, as soon as it can. Any thread may call that function, with no lock
// of ours held; it may call giveBack(), and for kOnDevice submit device work that reads what is
// lent. Never revoked.
void onReclaim(void (*giveBack)(Lent lent)) noexcept;
// Calls that function.
void reclaimLoans(Lent lent);

// How often a context has ended; resources made in it are gone. A load.
inline std::uint64_t contextsEnded() noexcept { return internal::contextsEnded.load(); }

// Keeps a range open on the CPU: while it lives, system calls and libc may read (kWrite: also
// write) every byte without a fault, and no block of it is evicted or invalidated. Calls of other
// threads wait. The bytes are current when the constructor returns. After kWrite the blocks are
// Dirty, whether they were written or not. Ignores parts that are not shared. Keep it short-lived;
// the holder must not call adsmCall or launch a kernel.
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
  Port& port_;  // has the hold; another port may be opened meanwhile
  const void* address_;
  Status status_;
  std::size_t bytes_;
};

}  // namespace gmac::coherence

#endif  // GMAC_COHERENCE_PORT_H_
