// SPDX-License-Identifier: Apache-2.0
//
// The CPU's side of shared memory: which bytes are shared and where they are current, copies, holds
// and loans. For interpose/{base,libc,process}, for datatype/, and for other libraries.
#ifndef GMAC_COHERENCE_MEMORY_PORT_H_
#define GMAC_COHERENCE_MEMORY_PORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gmac/base/status.h"
#include "gmac/coherence/port.h"

namespace gmac::coherence {

// The C library's own functions, for the CPU's part of bulk operations: a copy that gmac makes must
// not enter gmac again.
using MoveFunction = void* (*)(void* to, const void* from, std::size_t bytes);
using SetFunction = void* (*)(void* to, int value, std::size_t bytes);

// The purpose of a hold. kOverwrite is kWrite by a holder that writes every byte of the range and
// has them all already: blocks that lie wholly in the range are not fetched, and hold stale bytes
// until they are written.
enum class HoldFor { kRead, kWrite, kOverwrite };

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

// All methods are thread-safe. Do not call them from inside the accelerator's driver. Those that
// are noexcept allocate nothing and may be called in signal handlers. The defaults are the answers
// of a process in which nothing is shared; an implementation overrides what it has.
class MemoryPort {
 public:
  MemoryPort(const MemoryPort&) = delete;
  MemoryPort& operator=(const MemoryPort&) = delete;

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
  Status hold(const void* address, std::size_t bytes, bool write) {
    return hold(address, bytes, write ? HoldFor::kWrite : HoldFor::kRead);
  }
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

  // Hints: the program does not write a range before a kernel uses it, or is about to use it. They
  // never wait for a copy or a kernel and change no visible byte. They do nothing where the
  // protocol forbids it or a thread uses the block, and ignore parts that are not shared. After an
  // error nothing is lost: the call or access that needs the copy meets the error again.
  //
  // startFlush: starts to copy the dirty blocks that lie wholly in the range to the accelerator;
  // the CPU may still read them. For bytes that a kernel uses next.
  // startFetch: starts to fetch the blocks that overlap the range, once the kernels that may write
  // them have finished; cancelled when a later call may write the object.
  virtual Status startFlush(const void* address, std::size_t bytes);
  virtual Status startFetch(const void* address, std::size_t bytes);
  // The same by the calling thread, if no kernel runs that may write the bytes: waits for the copy.
  virtual void fetchIfQuiet(const void* address, std::size_t bytes) noexcept;

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

 protected:
  constexpr MemoryPort() noexcept = default;
  ~MemoryPort() = default;
};

namespace internal {
inline constinit std::atomic<std::uint64_t> placesChanged{1};
}  // namespace internal

// Counts the changes that make a Place stale: of block states, and of the set of objects.
inline std::uint64_t placesChanged() noexcept {
  return internal::placesChanged.load(std::memory_order_acquire);
}
// For the implementation, under the lock of all objects.
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

// Which loans are asked for: all of a kind, as the borrower knows no blocks.
enum class Lent { kOnCpu, kOnDevice };
// The borrower (one library of the process) registers the function that asks it to give back all
// loans of a kind that it can, as soon as it can. Any thread may call that function, with no lock
// of ours held; it may call giveBack(), and for kOnDevice submit device work that reads what is
// lent. Never revoked.
void onReclaim(void (*giveBack)(Lent lent)) noexcept;
// Calls that function.
void reclaimLoans(Lent lent);

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
  MemoryPort& port_;  // has the hold; another port may be opened meanwhile
  const void* address_;
  Status status_;
  std::size_t bytes_;
};

}  // namespace gmac::coherence

#endif  // GMAC_COHERENCE_MEMORY_PORT_H_
