// SPDX-License-Identifier: Apache-2.0
//
// The seam between the runtime and a device with its own memory. A backend (or a fake) can be
// written from this page. Beside it stand commands.h, for work of the runtime's own, and
// optional capabilities: native_streams.h, movable_memory.h, shared_addresses.h, exported_memory.h
// and devices.h.
//
// Preconditions shared by all methods:
//  - Every method is thread-safe. A backend reads and writes only pinned memory, its own memory and
//    the arguments; no caller passes one that lies in a closed app view.
//  - Copies run on two queues (in: CPU -> accelerator, out: accelerator -> CPU), kernels on a
//    third. Work on one queue runs in the order of submission. Between queues only what is said
//    here is ordered.
//  - A Ticket stands for one piece of submitted work and everything submitted to its queue before
//    it. Tickets stay valid for ever; a default-constructed one is complete.
//  - wait(), and methods that are said to block, may take as long as kernels run. No caller holds a
//    lock then that the fault handler takes.
//  - The fault handler calls the methods that are marked "fault path". They allocate no memory, and
//    take only locks that no thread holds while it touches shared objects.
//  - An error is recorded with gmac::fail and carries the driver's own words; the backend stays
//    usable if the device is. Once the device is gone, every method returns
//    adsmErrorAcceleratorLost promptly; none hangs.
#ifndef GMAC_ACCEL_ACCELERATOR_H_
#define GMAC_ACCEL_ACCELERATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gmac/api/adsm.h"
#include "gmac/base/status.h"

namespace gmac::accel {

struct BuiltInKernels;  // commands.h
class ExportedMemory;   // exported_memory.h
class LoadedKernels;    // commands.h
class MovableMemory;    // movable_memory.h
class Work;             // commands.h
class NativeStreams;    // native_streams.h
class SharedAddresses;  // shared_addresses.h
class Devices;          // devices.h

// An address in the accelerator's memory. Equal to the CPU address of the same byte for
// Placement::kSameAddress.
enum class DeviceAddress : std::uintptr_t {};

struct Ticket {
  std::uint64_t value = 0;  // 0: complete
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

enum class Placement {
  kSameAddress,  // the CPU's range of the same addresses is free, and reserved for the caller
  kAnywhere,
};

// CPU memory that copies may name. `fd` is its memory file, or -1 for anonymous memory.
struct HostMemory {
  void* address;
  std::size_t bytes;  // both multiples of the page size
  int fd;
  std::int64_t offset;  // of `address` in that file, bytes
};

// The kind of memory that an address outside of shared objects points to.
enum class Memory : std::uint8_t {
  kPageable,  // CPU memory that the device cannot access, or unknown memory
  kPinned,    // CPU memory that kernels and copies access, by the same address
  kDevice,    // the device's own memory (or managed memory)
};

// Attributes of a device that the cost of its work follows from. 0: not known, or there is none.
struct DeviceTraits {
  std::uint32_t multiprocessors = 0;
  double cyclesPerMicrosecond = 0;  // of a multiprocessor
  double memoryRate = 0;            // peak bandwidth of its memory, bytes per microsecond
  double linkRate = 0;              // of its link to the CPU, each way, bytes per microsecond
};

// Of a device's own memory, bytes.
struct MemoryRoom {
  std::size_t total = 0;
  std::size_t free = 0;
};

struct LaunchShape {
  adsmDim_t grid;
  adsmDim_t block;
  std::size_t sharedBytes;
};

// The most that any accelerator takes; one may take less, and says so when it launches.
inline constexpr std::size_t kMaxArgumentBytes = std::size_t{32} << 10;  // of a launch, together
inline constexpr std::size_t kMaxConstantBytes = std::size_t{64} << 10;  // of one constant

// A kernel that this accelerator has loaded. Owned by the accelerator that made it.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
};

// Optional abilities of an accelerator. All live as long as it does; NULL: it has no such ability.
struct Capabilities {
  NativeStreams* streams = nullptr;
  MovableMemory* movable = nullptr;
  SharedAddresses* shared = nullptr;
  ExportedMemory* exported = nullptr;
  Devices* devices = nullptr;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;

  // ---- The device. All constant but usable().

  // "host", "cuda", "cudart".
  virtual std::string_view name() const noexcept = 0;
  // The device's own words for itself, e.g. "NVIDIA H200".
  virtual std::string_view deviceName() const noexcept = 0;
  // Its address on the PCI bus, as Linux writes it ("0000:3b:00.0"); empty where it has none.
  virtual std::string busAddress() const { return {}; }
  // True if anonymous pages that pin() has pinned stay reachable by their old address after mremap
  // has moved them (the moved-pages mirror), for copies of at least 64 KiB.
  virtual bool copiesReachMovedPages() const noexcept = 0;
  // True if kernels can read and write pinned CPU memory.
  virtual bool kernelsReachPinned() const noexcept { return false; }
  // Asks the driver and the operating system; up to a millisecond.
  virtual DeviceTraits traits() const noexcept { return {}; }
  // adsmErrorAcceleratorLost or adsmErrorForked if the device is known to be gone. Does not block.
  // Fault path.
  virtual Status usable() { return Status(); }
  // Its memory. Blocks. adsmErrorNotSupported where it cannot tell.
  virtual Result<MemoryRoom> memoryRoom() {
    return fail(adsmErrorNotSupported, "the {} accelerator cannot tell how much memory it has",
                name());
  }
  // The application's own streams and contexts; nullptr where the device has no such thing.
  NativeStreams* nativeStreams() const noexcept { return capabilities_.streams; }
  // Memory that may lie on either side of the bus; nullptr where it cannot.
  MovableMemory* movableMemory() const noexcept { return capabilities_.movable; }
  // Addresses that other accelerators have, too; nullptr where it shares none.
  SharedAddresses* sharedAddresses() const noexcept { return capabilities_.shared; }
  // Memory that other processes can use; nullptr where they cannot.
  ExportedMemory* exportedMemory() const noexcept { return capabilities_.exported; }
  // The several devices of which it consists; nullptr where it is one.
  Devices* devices() const noexcept { return capabilities_.devices; }

  // ---- Memory

  // `bytes` is a multiple of the page size. The contents read as zero by everything submitted
  // afterwards. kSameAddress: aligned to `alignment` (a power of two), and the caller may map over
  // [address, address + bytes) of the CPU's address space with MAP_FIXED until free(). Blocks.
  // Errors: adsmErrorAcceleratorMemory, adsmErrorAddressConflict (kSameAddress only),
  // adsmErrorAcceleratorLost.
  virtual Result<DeviceAddress> allocate(std::size_t bytes, std::size_t alignment,
                                         Placement placement) = 0;
  // Frees it; `bytes` as allocated. The caller has waited for all work that names it, and has put a
  // private mapping without access back where it mapped over. Blocks.
  virtual Status free(DeviceAddress address, std::size_t bytes) = 0;

  // Makes CPU memory reachable by copies until unpin(), even while it has no access rights. May
  // populate it. Blocks.
  virtual Status pin(const HostMemory& memory) = 0;
  virtual Status unpin(const HostMemory& memory) = 0;

  // Pinned CPU memory of the accelerator's own; children of fork do not have it. Blocks.
  // adsmErrorHostMemory. freePinned: `bytes` as allocated; all work that names it is over.
  virtual Result<void*> allocatePinned(std::size_t bytes) = 0;
  virtual void freePinned(void* address, std::size_t bytes) noexcept = 0;

  // The kind of memory at an address outside of shared objects. Asks the driver; some hundred
  // nanoseconds.
  virtual Memory memoryOf(const void* address) const noexcept {
    (void)address;
    return Memory::kPageable;
  }

  // ---- Copies

  // The CPU side lies inside one pinned range. Asynchronous; ordered after `after` (any queue's
  // ticket) and after earlier copies of the same direction. Fault path.
  virtual Result<Ticket> copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                                Ticket after) = 0;
  virtual Result<Ticket> copyOut(void* to, DeviceAddress from, std::size_t bytes, Ticket after) = 0;
  // Copies inside the accelerator's memory (the ranges do not overlap) and fills. They run on the
  // kernel queue, so they are ordered with calls.
  virtual Result<Ticket> copyWithin(DeviceAddress to, DeviceAddress from, std::size_t bytes) = 0;
  virtual Result<Ticket> fill(DeviceAddress to, std::byte value, std::size_t bytes) = 0;

  // done: true if the work has finished; never blocks. wait: yields the CPU until it has; an error
  // of that work (or of a kernel before it on its queue) is returned once. succeeded: true if the
  // work is known to have finished without an error; asks the device nothing, so false says little.
  // Fault path.
  virtual bool done(Ticket ticket) noexcept = 0;
  virtual Status wait(Ticket ticket) = 0;
  virtual bool succeeded(Ticket ticket) noexcept {
    (void)ticket;
    return false;
  }
  // The caller is about to ask done() about that work until it has finished: a hint, which lets the
  // device tell of its end. Fault path.
  virtual void endIsAwaited(Ticket ticket) noexcept { (void)ticket; }

  // ---- Kernels

  // Blocks. `desc` stays valid as long as the result. adsmErrorNoImplementation names the kernel
  // and the missing field.
  virtual Result<std::unique_ptr<LoadedKernel>> load(const adsmKernelDesc_t& desc) = 0;
  // Asynchronous; after every copyIn submitted before, and after earlier launches. `args` are
  // copied. Fault path for at most 8 arguments of 8 bytes.
  virtual Result<Ticket> launch(LoadedKernel& kernel, const LaunchShape& shape, void** args) = 0;
  // As launch(), and endIsAwaited() for its ticket, which may be less work than both.
  virtual Result<Ticket> launchAwaited(LoadedKernel& kernel, const LaunchShape& shape,
                                       void** args) {
    const Result<Ticket> launched = launch(kernel, shape, args);
    if (launched.ok()) {
      endIsAwaited(*launched);
    }
    return launched;
  }
  // Sets a constant for launches submitted afterwards; `data` is copied before return. Blocks.
  virtual Status setConstant(LoadedKernel& kernel, const adsmConstant_t& constant, const void* data,
                             std::size_t bytes) = 0;

  // ---- Work of the runtime's own (commands.h)

  // Loads nothing yet: each kernel is loaded by its first launch.
  virtual std::unique_ptr<LoadedKernels> loadBuiltIn(const BuiltInKernels& kernels) = 0;
  // Calls `work` once, before it returns, with commands that run on the kernel queue, ordered as a
  // launch is. The ticket completes with the last of them. Returns the error of `work`; commands
  // that it had submitted before may run.
  virtual Result<Ticket> submit(Work& work) = 0;

 protected:
  explicit Accelerator(const Capabilities& capabilities = Capabilities())
      : capabilities_(capabilities) {}

 private:
  const Capabilities capabilities_;
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_ACCELERATOR_H_
