// SPDX-License-Identifier: Apache-2.0
//
// An optional capability of an accelerator: it consists of several devices with one set of
// addresses. Each allocation lies on one of them, its home, and moves under its address. Devices
// may reach each other's memory: then kernels of each use an allocation wherever it lies.
#ifndef GMAC_ACCEL_DEVICES_H_
#define GMAC_ACCEL_DEVICES_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"

namespace gmac::accel {

inline constexpr std::size_t kMaxDevices = 16;

struct DeviceDescription {
  std::string_view kind;  // as Accelerator::name
  std::string_view name;  // as Accelerator::deviceName
  MemoryRoom memory;
  std::string bus;  // as Accelerator::busAddress
};

// Bytes of an allocation.
struct Part {
  std::size_t offset;
  std::size_t bytes;
};

// The same, and a device that has them.
struct PlacedPart {
  Part part;
  std::size_t device;
};

// Devices are numbered from 0. What an Accelerator's own functions say of "the kernel queue" is
// that of device 0; each other device has one, too, and nothing is ordered between two of them.
// Where the devices do not reach each other's memory, copies and fills run on the one where the
// memory lies, and so must kernels that use it; else copies and fills run on device 0. Thread-safe.
class Devices {
 public:
  virtual ~Devices() = default;

  // Constant, all three.
  virtual std::size_t count() const noexcept = 0;
  virtual bool reachEachOther() const noexcept { return false; }
  // Where they do: how many of them, the first. Each of the others is apart: it reaches what
  // MovableMemory has put into its own memory, or into the CPU's.
  virtual std::size_t together() const noexcept { return count(); }
  // adsmErrorAcceleratorLost: that device is gone.
  virtual Result<DeviceDescription> describe(std::size_t device) = 0;
  // As Accelerator::usable(), of one device.
  virtual Status usable(std::size_t device) = 0;
  // Where work runs; where an allocation lies. Fault path.
  virtual std::size_t deviceOf(Ticket ticket) const noexcept = 0;
  virtual std::size_t homeOf(DeviceAddress address) noexcept = 0;

  // Moves an allocation, with what `parts` of it hold, in order and apart from each other; the rest
  // is not copied, and reads as anything. Where it is there already, does nothing. `bytes` as
  // allocated. The caller has waited for all work that names the allocation, and submits none until
  // this returns. After an error it is where it was. Blocks. adsmErrorAcceleratorMemory,
  // adsmErrorAcceleratorLost.
  virtual Status move(DeviceAddress address, std::size_t bytes, std::size_t device,
                      std::span<const Part> parts) = 0;
  // Where the devices reach each other's memory, also for a part of an allocation: whole pages of
  // 2 MiB.
  // The same for an allocation that holds nothing yet: it reads as zero there. Quick: no bytes are
  // copied.
  virtual Status place(DeviceAddress address, std::size_t bytes, std::size_t device) = 0;

  // As Accelerator::allocate(), where the devices reach each other's memory: pages of 2 MiB lie on
  // these devices in turn, of which there are two or more. Copies between the allocation and the
  // CPU's memory run on all of them at once, after earlier ones of the same pages and direction.
  // Also adsmErrorNotSupported.
  virtual Result<DeviceAddress> allocateStriped(std::size_t bytes, std::size_t alignment,
                                                Placement placement,
                                                std::span<const std::size_t> devices) {
    (void)alignment, (void)placement;
    return fail(adsmErrorNotSupported, "{} bytes over {} devices", bytes, devices.size());
  }

  // ---- Several copies of an allocation, where the devices do not reach each other's memory. Which
  // has which bytes is known to the caller.

  // Makes memory for an allocation on one more device, where it has none: it reads as zero. Copies
  // `parts` there from devices that have memory for it. The caller has waited for all work that
  // writes those parts, or uses them on `device`, and submits none until this returns. After an
  // error the copy holds anything. Blocks. Errors as of move().
  virtual Status addCopy(DeviceAddress address, std::size_t bytes, std::size_t device,
                         std::span<const PlacedPart> parts) {
    (void)parts;
    return fail(adsmErrorNotSupported, "no copy of the {} bytes at {:#x} on device {}", bytes,
                static_cast<std::uintptr_t>(address), device);
  }
  // Frees all copies but that of one device, which is the allocation's home then. The caller has
  // waited for all work that names it. Blocks.
  virtual void dropOtherCopies(DeviceAddress address, std::size_t device) {
    (void)address, (void)device;
  }
  // As Accelerator's, for the copy of one device. Fault path.
  virtual Result<Ticket> copyIn(std::size_t device, DeviceAddress to, const void* from,
                                std::size_t bytes, Ticket after) {
    (void)to, (void)from, (void)bytes, (void)after;
    return fail(adsmErrorNotSupported, "a copy to device {} alone", device);
  }
  virtual Result<Ticket> copyOut(std::size_t device, void* to, DeviceAddress from,
                                 std::size_t bytes, Ticket after) {
    (void)to, (void)from, (void)bytes, (void)after;
    return fail(adsmErrorNotSupported, "a copy from device {} alone", device);
  }

  // As the accelerator's functions of these names, for one device.
  virtual Result<std::unique_ptr<LoadedKernel>> load(std::size_t device,
                                                     const adsmKernelDesc_t& desc) = 0;
  // `after`: other devices' work that comes first, where they reach each other's memory.
  virtual Result<Ticket> launch(std::size_t device, LoadedKernel& kernel, const LaunchShape& shape,
                                void** args, std::span<const Ticket> after) = 0;
  // As Accelerator::launchAwaited(); the caller says endIsAwaited() as well.
  virtual Result<Ticket> launchAwaited(std::size_t device, LoadedKernel& kernel,
                                       const LaunchShape& shape, void** args,
                                       std::span<const Ticket> after) {
    return launch(device, kernel, shape, args, after);
  }
  virtual Status setConstant(std::size_t device, LoadedKernel& kernel,
                             const adsmConstant_t& constant, const void* data,
                             std::size_t bytes) = 0;

  // Where they reach each other's memory: copies to the accelerator that are submitted from now on
  // run after that work. Fault path.
  virtual Status copiesFollow(Ticket ticket) {
    (void)ticket;
    return {};
  }
};

inline std::size_t deviceCount(const Accelerator& accelerator) noexcept {
  return accelerator.devices() != nullptr ? accelerator.devices()->count() : 1;
}
// How many of them reach each other's memory, or all where none does.
inline std::size_t devicesTogether(const Accelerator& accelerator) noexcept {
  return accelerator.devices() != nullptr ? accelerator.devices()->together() : 1;
}

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_DEVICES_H_
