// SPDX-License-Identifier: Apache-2.0
//
// The seam between the runtime and a device with its own memory. A backend (or a fake) can be
// written from this page.
//
// Preconditions shared by all methods:
//  - Every method is thread-safe. None is called while an app view that it would touch is closed: a
//  backend reads and
//    writes only pinned memory, its own memory, and the arguments.
//  - Copies run on two queues of their own (in: CPU -> accelerator, out: accelerator -> CPU),
//  kernels on a third. Work
//    on one queue runs in the order of submission; between queues only what is said here is
//    ordered.
//  - A Ticket stands for one piece of submitted work and everything submitted to its queue before
//  it. Tickets stay valid
//    for ever; a default-constructed one is complete.
//  - wait(), and what is said to block, may take as long as kernels run: no caller holds a lock
//  then that the fault handler takes.
//  - "fault path" methods are called from the fault handler: they allocate no memory of ours, and
//  take only locks that
//    no thread holds while it touches shared objects.
//  - An error is recorded with gmac::fail and carries the driver's own words; the backend stays
//  usable if the device is.
//    When the device is gone every method returns adsmErrorAcceleratorLost promptly; none hangs.
#ifndef GMAC_ACCEL_ACCELERATOR_H_
#define GMAC_ACCEL_ACCELERATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "gmac/api/adsm.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// An address in the accelerator's memory. Equal to the CPU address of the same byte for
// Placement::kSameAddress.
enum class DeviceAddress : std::uintptr_t {};

// A queue that the application owns (a CUstream / cudaStream_t), as an opaque number.
enum class NativeStream : std::uintptr_t {};

struct Ticket {
  std::uint64_t value = 0;  // 0: complete
};

enum class Placement {
  kSameAddress,  // the CPU's address range of the same numbers must be free, and is reserved for
                 // the caller
  kAnywhere,
};

// CPU memory that copies may name. `fd` is the memory file behind it, or -1 for anonymous memory.
struct HostMemory {
  void* address;
  std::size_t bytes;  // both multiples of the page size
  int fd;
  std::int64_t offset;  // of `address` in that file, bytes
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

class Accelerator {
 public:
  virtual ~Accelerator() = default;

  // "host", "cuda", "cudart". Constant.
  virtual std::string_view name() const noexcept = 0;
  // The device's own words for itself, e.g. "NVIDIA H200". Constant.
  virtual std::string_view deviceName() const noexcept = 0;
  // Whether anonymous pages, pinned by pin() and then moved elsewhere by mremap, stay reachable by
  // copies that name the old address (the moved-pages mirror), for copies of at least 64 KiB.
  // Constant.
  virtual bool copiesReachMovedPages() const noexcept = 0;

  // Whether the device is there: adsmErrorAcceleratorLost, or adsmErrorForked, if it is known not
  // to be. Does not block. Fault path.
  virtual Status usable() { return Status(); }

  // Memory. `bytes` is a multiple of the page size. The contents read as zero by everything
  // submitted afterwards. kSameAddress: aligned to `alignment` (a power of two), and the caller may
  // map over [address, address + bytes) of the CPU's address space with MAP_FIXED until free().
  // Blocks. Errors: adsmErrorAcceleratorMemory, adsmErrorAddressConflict (kSameAddress only),
  // adsmErrorAcceleratorLost.
  virtual Result<DeviceAddress> allocate(std::size_t bytes, std::size_t alignment,
                                         Placement placement) = 0;
  // Gives the memory back. The caller has waited for all work that names it, and has put a private
  // mapping without access back where it mapped over. `bytes` as allocated. Blocks.
  virtual Status free(DeviceAddress address, std::size_t bytes) = 0;

  // Makes CPU memory reachable by copies until unpin(), even while it has no access rights. May
  // populate it. Blocks.
  virtual Status pin(const HostMemory& memory) = 0;
  virtual Status unpin(const HostMemory& memory) = 0;

  // Copies. The CPU side lies inside one pinned range. Asynchronous; ordered after `after` (any
  // queue's ticket) and after earlier copies of the same direction. Fault path.
  virtual Result<Ticket> copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                                Ticket after) = 0;
  virtual Result<Ticket> copyOut(void* to, DeviceAddress from, std::size_t bytes, Ticket after) = 0;
  // Copies inside the accelerator's memory (ranges do not overlap) and fills; on the kernel queue,
  // so ordered with calls.
  virtual Result<Ticket> copyWithin(DeviceAddress to, DeviceAddress from, std::size_t bytes) = 0;
  virtual Result<Ticket> fill(DeviceAddress to, std::byte value, std::size_t bytes) = 0;

  // Whether the work has finished; never blocks. Waits, yielding the CPU, until it has; an error of
  // that work (or of a kernel before it on its queue) is returned once. Fault path.
  virtual bool done(Ticket ticket) noexcept = 0;
  virtual Status wait(Ticket ticket) = 0;

  // Kernels. load: blocks; `desc` stays valid as long as the result; adsmErrorNoImplementation
  // names the kernel and the missing field. launch: asynchronous, after every copyIn submitted
  // before and after earlier launches; `args` are copied. Fault path for at most 8 arguments of 8
  // bytes.
  virtual Result<std::unique_ptr<LoadedKernel>> load(const adsmKernelDesc_t& desc) = 0;
  virtual Result<Ticket> launch(LoadedKernel& kernel, const LaunchShape& shape, void** args) = 0;
  // Submits work of the caller's own to the kernel queue, in order as launch() does: calls `work`
  // once, before it returns, with the queue as the device's own stream. What that fails with is
  // returned. CUDA only; adsmErrorNotSupported elsewhere.
  using StreamWork = Status(void* context, NativeStream stream);
  virtual Result<Ticket> submit(StreamWork* work, void* context) {
    (void)work;
    (void)context;
    return fail(adsmErrorNotSupported, "the {} accelerator has no streams", name());
  }
  // Sets a constant for launches submitted afterwards; `data` is copied before return. Blocks.
  virtual Status setConstant(LoadedKernel& kernel, const adsmConstant_t& constant, const void* data,
                             std::size_t bytes) = 0;

  // The context that streams belong to (a CUcontext), as an opaque number; 0: not known. Constant
  // but for leaveContext().
  virtual std::uintptr_t nativeContext() const noexcept { return 0; }
  // The device (a CUdevice) in whose primary context everything here lives; -1: in another, or
  // none.
  virtual int primaryDevice() const noexcept { return -1; }

  // The application is about to end the context that everything here lives in (CUDA only), and has
  // waited for all that is done there. contextEnds: said first; an accelerator that cannot outlive
  // its context is lost from here on. The caller then frees all memory and unpins everything.
  // leaveContext: nothing is left; tickets so far are complete, and loaded kernels stay valid. What
  // needs a context next finds itself one as a fresh accelerator does; a device that was lost with
  // the old one works again. No other method may be under way.
  virtual void contextEnds() noexcept {}
  virtual void leaveContext() noexcept {}

  // Work that the application submits itself (CUDA only; adsmErrorNotSupported elsewhere). fence:
  // everything submitted to `stream` from now on runs after the copyIns and the kernel queue's work
  // submitted so far. mark: a
  // ticket for all that `stream` holds so far.
  virtual Status fence(NativeStream stream) = 0;
  virtual Result<Ticket> mark(NativeStream stream) = 0;
  // Everything submitted to `stream` from now on runs after the ticket's work.
  virtual Status follow(NativeStream stream, Ticket ticket) {
    (void)stream;
    (void)ticket;
    return fail(adsmErrorNotSupported, "the {} accelerator has no streams", name());
  }
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_ACCELERATOR_H_
