// SPDX-License-Identifier: Apache-2.0
//
// What a library that stands between the application and libc or CUDA asks of the runtime. The
// public API is adsm.h; this header is for interpose/ alone.
//
// All functions are thread-safe. Before the runtime has started they cost one load and answer
// "nothing is shared". None may be called while the calling thread is inside the accelerator's
// driver.
#ifndef GMAC_COHERENCE_PORT_H_
#define GMAC_COHERENCE_PORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"
#include "gmac/coherence/shared_ranges.h"

namespace gmac::coherence {

// Whether any byte of [address, address + bytes) belongs to a shared object. Lock-free when nothing
// is shared.
bool touchesShared(const void* address, std::size_t bytes) noexcept;

// Whether anything is shared now. Lock-free.
inline bool anythingShared() noexcept { return shared_ranges::any(); }

// Whether the calling process is a child (of fork, _Fork or clone) of the one whose objects these
// are: it does not have them. For children of vfork and signal handlers too.
bool inChildOfFork() noexcept;

// Length of the prefix of [address, address + bytes) that is all shared (in one object) or all not
// shared; `shared` says which. At least 1 for bytes > 0.
std::size_t sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept;

// Whether a byte of [address, address + bytes), bytes > 0, may be shared: inline, a few
// comparisons, no runtime needed. No means no.
using shared_ranges::mayBeShared;

// The C library's own functions, as these calls need them for what the CPU does: a call of
// gmac's that copies must not come back to gmac.
using MoveFunction = void* (*)(void* to, const void* from, std::size_t bytes);
using SetFunction = void* (*)(void* to, int value, std::size_t bytes);

// memmove and memset for ranges that may be shared in part or as a whole: each part is copied or
// filled on the side where its bytes are current, without a fault per block. On return the bytes
// read as memmove and memset leave them, on both sides; copies on the accelerator may still be
// under way there. They cannot fail: what would end the process in the fault handler ends it here,
// with the same kind of message. `move` and `set` are called with no lock held. Fault path rules:
// nothing is allocated, so a signal handler may call them.
void copy(void* to, const void* from, std::size_t bytes, MoveFunction move) noexcept;
void fill(void* to, int value, std::size_t bytes, SetFunction set) noexcept;

// Keeps a range open on the CPU: while it lives, system calls and libc may read (write: also write)
// every byte of it without a fault, and nothing evicts or invalidates its blocks. Calls by other
// threads wait. The bytes are current when the constructor returns. With write, the blocks are
// Dirty afterwards, whether or not they were written. Parts of the range that are not shared are
// left alone. Keep it short-lived; the holder must not call adsmCall or launch.
//
// kOverwrite is kWrite by a holder that has all the bytes already and writes every one of them:
// blocks that lie wholly in the range are not fetched first, and until then hold bytes of any age.
enum class HoldFor { kRead, kWrite, kOverwrite };

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
  const void* address_;
  std::size_t bytes_;
  Status status_;
};

// How many bytes one piece of a split transfer should have, so that copies of one piece hide behind
// the next.
std::size_t pieceBytes() noexcept;

// How many threads, the caller's included, may make one such transfer. 1 in a child of fork, whose
// shared memory is gone.
std::size_t ioThreads() noexcept;

// Hints that the program is done with a range for now, or is about to use it. They never wait for a
// copy or a kernel, change no byte that anybody sees, and do nothing where the protocol, or a
// thread that is using the block, stands against it; parts of the range that are not shared are
// left alone. An error is the accelerator's or the system's and loses nothing either: the call or
// the access that needs the copy meets it again.
//
// startFlush: begins to copy blocks that the CPU has written and that lie wholly in the range to
// the accelerator; the CPU may go on reading them. For bytes that are next used by a kernel.
// startFetch: begins to bring blocks that the range touches to the CPU, once the kernels that may
// write them have finished; forgotten when a later call may write the object.
Status startFlush(const void* address, std::size_t bytes);
Status startFetch(const void* address, std::size_t bytes);

// Device work that the application submits itself, on a stream of its own.
struct DeviceRange {
  const void* address;  // a shared address, as a device address (identical); NULL: every object
  std::size_t bytes;    // ignored with NULL
  bool write;           // the work may write it; else it only reads it
};

// Release: flushes what the work will read or partly overwrite and invalidates what it may write,
// and makes `stream` wait for the flushes. Call immediately before submitting the work; on success
// exactly one endDeviceWork follows in the same thread. `ranges` that are not shared are ignored.
// Between the two, other threads' accesses to shared objects wait.
Status beginDeviceWork(accel::NativeStream stream, const DeviceRange* ranges, std::size_t count);
// The work has been submitted (or failed to be: submitted = false). Later CPU accesses to what it
// may write wait for it.
Status endDeviceWork(accel::NativeStream stream, bool submitted);

// The runtime's accelerator; the runtime starts if it had not.
Result<accel::Accelerator*> accelerator();

// Where the bytes of a range are current.
enum class Current { kNotShared, kAccelerator, kCpu, kBoth };

// Length of the prefix of [address, address + bytes) that is current at one place, and which; at
// least 1 for bytes > 0. A hint as soon as it is given: other threads may be at work. What is held
// (CpuHold) or under device work is what its holder knows it to be.
std::size_t currentPrefix(const void* address, std::size_t bytes, Current* current) noexcept;

// How much further on than its CPU address the accelerator knows the byte at a shared address: 0
// but for objects of adsmSafeAlloc().
std::ptrdiff_t deviceDistance(const void* address) noexcept;

// Device work of the runtime's own, on the accelerator's kernel queue: release, as
// beginDeviceWork() does for a stream; the caller submits there, and the ticket of what it has
// submitted (none: nothing was) ends it. The same ranges for both; every one has an address.
Status beginOwnWork(const DeviceRange* ranges, std::size_t count);
Status endOwnWork(const DeviceRange* ranges, std::size_t count, accel::Ticket ticket);

// The stream of work in another context than the runtime's (see nativeContext()), which the runtime
// can neither make wait nor ask: beginDeviceWork() then waits for the flushes, and the caller has
// waited for the work before endDeviceWork().
inline constexpr accel::NativeStream kForeignStream{UINTPTR_MAX};

// The context (a CUcontext) that streams belong to; 0 while it is not known. Constant once known,
// until contextEnds().
std::uintptr_t nativeContext() noexcept;
// The device (a CUdevice) in whose primary context shared objects live; -1: in another, or none.
int primaryDevice() noexcept;
// The application ends that context, or resets that device, next: all objects are freed. It has
// waited for the work there; `workFinished`: with success. The next allocation finds the runtime
// another context.
void contextEnds(bool workFinished);
namespace internal {
inline constinit std::atomic<std::uint64_t> contextsEnded{0};  // the manager counts
}  // namespace internal
// How often that has happened: what was made in a context is gone with it. A load.
inline std::uint64_t contextsEnded() noexcept { return internal::contextsEnded.load(); }

// A function of the CPU has been queued in a stream, between beginDeviceWork() without ranges and
// endDeviceWork(submitted = false); and it has run, or never will. Device work waits for it to have
// run, so that what it writes is released and it never waits for what comes after it.
void hostFunctionQueued();
void hostFunctionEnded();

// The CPU's address of the byte that the accelerator knows at `device`; another number for objects
// of adsmSafeAlloc() alone. `device` where that is no shared object's.
std::uintptr_t cpuAddress(std::uintptr_t device) noexcept;

// ---- Programs written for managed memory (GMAC_MANAGED) ----

// Whether CUDA's managed-memory calls are to give shared objects. Constant.
bool managedMode() noexcept;
// Whether the program's hints are promises (GMAC_MANAGED=trust). After the runtime has started.
bool trustsHints() noexcept;
// Whether the application's CUDA kernels reach shared objects. After the runtime has started.
bool reachedByCuda() noexcept;

// Whose kernels on the application's streams use the object at `address`: everybody's, nobody's, or
// one stream's. A promise of the application's: other kernels neither get the CPU's writes nor are
// they waited for. Waits for what was submitted before. No effect on objects that share their
// pages.
enum class Users { kEverybody, kCpu, kOneStream };
Status setUsers(const void* address, Users users, accel::NativeStream stream);
// The application says that kernels seldom write the object. Where hints are promises, they do not
// write it, and launches leave it open for reading; otherwise this has no effect. Nor has it on
// objects that share their pages.
void setReadMostly(const void* address, bool readMostly);
// The application destroys a stream: what only that stream used is everybody's again.
void streamDestroyed(accel::NativeStream stream);

// Acquire: the application has waited for device work (a stream, an event, the context). What
// batch-update fetches at a sync is fetched here, once every pending call has finished.
Status afterDeviceWait();

}  // namespace gmac::coherence

#endif  // GMAC_COHERENCE_PORT_H_
