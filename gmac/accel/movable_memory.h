// SPDX-License-Identifier: Apache-2.0
//
// An optional capability of an accelerator: the pages of an allocation may lie in the CPU's memory,
// or in that of several devices, and move between them, under one address.
#ifndef GMAC_ACCEL_MOVABLE_MEMORY_H_
#define GMAC_ACCEL_MOVABLE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// Where the accelerator's copy of an allocation lies. What copies and kernels do with it is the
// same; how fast they are is not.
enum class Home : std::uint8_t {
  kDevice,  // the device's own memory
  kCpu,     // pinned memory of the CPU's, which kernels reach over the bus
  kMirror,  // the very pages that the CPU has at the same addresses, reached over the bus: there is
            // one copy, and nothing to be copied
  kApart,   // the memory of a device that the accelerator's own does not reach: only that one's
            // kernels and copies do (MovableMemory::gatherIn())
};

// Thread-safe. Every function blocks.
class MovableMemory {
 public:
  virtual ~MovableMemory() = default;

  // Accelerator::allocate, but in the CPU's memory. Besides its errors: adsmErrorHostMemory.
  virtual Result<DeviceAddress> allocateOnCpu(std::size_t bytes, std::size_t alignment,
                                              Placement placement) = 0;
  // Moves an allocation's pages, with what they hold; where they are there already, does nothing.
  // `bytes` as allocated. The caller has waited for all work that names the allocation, and submits
  // none until this returns. After an error the pages lie where they lay, or some of them where
  // they were to go. Errors:
  // adsmErrorNotSupported (this allocation cannot move), adsmErrorAcceleratorMemory,
  // adsmErrorHostMemory, adsmErrorAcceleratorLost.
  //
  // To Home::kMirror: `bytes` may have a margin (marginOf()), and what lies after that in the last
  // page of 2 MiB is nowhere until the memory has moved back. What the accelerator's pages hold is
  // lost, and the CPU's pages, all of those bytes' there, are readable
  // and writable until this returns; from then on their protection is the
  // caller's affair, and they stay mapped there until the memory has moved back. Besides the
  // errors: adsmErrorNotSupported (the accelerator cannot reach these pages).
  virtual Status move(DeviceAddress address, std::size_t bytes, Home home) = 0;
  // As move(), of a page of the device's inside an allocation, of 2 MiB at a multiple of that: to
  // Home::kMirror, or back to the home that the rest has, in the memory of `device` (the driver's
  // own number) where that is kDevice or kApart. While it is there, what moves the allocation
  // passes over it, and the driver refuses copies and fills of which a part lies in it and a part
  // does not.
  virtual Status movePage(DeviceAddress address, std::size_t bytes, Home home, int device) {
    (void)home, (void)device;
    return fail(adsmErrorNotSupported, "{} bytes at {:#x} cannot move alone", bytes,
                static_cast<std::uintptr_t>(address));
  }
  // How many bytes after an allocation nothing else has the addresses of, so that the CPU's pages
  // may lie there, too, when it moves to Home::kMirror: what kernels overrun an array by. 0 where
  // it cannot move there.
  virtual std::size_t marginOf(DeviceAddress address, std::size_t bytes) const {
    (void)address, (void)bytes;
    return 0;
  }

  // Between true and false, the CPU's pages that one allocation leaves are there for the next of
  // the same size that comes: the driver takes half a second to make a GiB of them.
  virtual void keepPages(bool keep) noexcept { (void)keep; }

  // ---- Devices that do not reach each other's memory, but the CPU's. They have the driver's own
  // numbers.

  // Whether the process sees such devices, so that memory has to be gathered where the device at
  // work reaches it. Constant.
  virtual bool separateDevices() const noexcept { return false; }
  // Whether a device reaches what lies on the accelerator's own devices.
  virtual bool reachesOwn(int device) const noexcept {
    (void)device;
    return true;
  }
  // From now on memory is made in that home, which is meant by move() to Home::kDevice, too; what
  // is there already is moved by the caller. kDevice: on the accelerator's own devices, as at the
  // start. kCpu: all devices reach what lies there. kApart: on `device`, whose primary context must
  // be there. One that the accelerator's own devices do not reach has kApart, the others kDevice.
  // Until the context ends. adsmErrorNotSupported, and the errors of opening a device.
  virtual Status gatherIn(Home home, int device) {
    (void)home, (void)device;
    return fail(adsmErrorNotSupported, "memory lies on the device");
  }
  // Where memory is made now. A load.
  virtual Home gatheredIn() const noexcept { return Home::kDevice; }
  // On which device, where that is kApart.
  virtual int gatheredOn() const noexcept { return -1; }
  // The driver's number of a device that has that number in devices.h.
  virtual int numberOf(std::size_t device) const noexcept { return static_cast<int>(device); }
  // As move(), but one allocation alone goes there, wherever memory is gathered: to the CPU's
  // memory (kCpu), or that of `device` (kApart, and it is opened; or kDevice). `holds`: anything;
  // else it reads as zero there, and nothing is copied.
  virtual Status moveAlone(DeviceAddress address, std::size_t bytes, Home home, int device,
                           bool holds) {
    (void)home, (void)device, (void)holds;
    return fail(adsmErrorNotSupported, "{} bytes at {:#x} lie on the device", bytes,
                static_cast<std::uintptr_t>(address));
  }

  // ---- Several devices that reach each other's memory. They have the driver's own numbers.

  // Whether memory may lie on several.
  virtual bool severalDevices() const noexcept { return false; }
  // Where Accelerator::allocate() puts memory for the calling thread, if there is room: on the
  // device that the thread works with, if others reach it.
  virtual int deviceHere() const noexcept { return 0; }
  // The devices in whose memory allocations may lie, the accelerator's own first.
  virtual std::vector<int> devicesWithMemory() const { return {0}; }
  // As Accelerator::memoryRoom(), of one of them; it is opened, where nothing has used it yet.
  virtual Result<MemoryRoom> roomOn(int device) {
    return fail(adsmErrorNotSupported, "how much memory device {} has", device);
  }
  // As Accelerator::allocate(), in the memory of one of them.
  virtual Result<DeviceAddress> allocateOn(std::size_t bytes, std::size_t alignment,
                                           Placement placement, int device) {
    (void)alignment, (void)placement;
    return fail(adsmErrorNotSupported, "{} bytes on device {}", bytes, device);
  }
  // How many bytes of an allocation lie in a device's memory.
  virtual std::size_t bytesOn(DeviceAddress address, std::size_t bytes, int device) const {
    (void)address, (void)device;
    return bytes;
  }
  // Whether the pages of a part of an allocation all lie there.
  virtual bool liesOn(DeviceAddress address, std::size_t bytes, int device) const {
    (void)address, (void)bytes, (void)device;
    return true;
  }
  // As move(), for whole pages and to a device: those that begin in [address, address + bytes), a
  // part of an allocation. adsmErrorNotSupported: that device does not reach all others' memory.
  virtual Status moveTo(DeviceAddress address, std::size_t bytes, int device) {
    return fail(adsmErrorNotSupported, "{} bytes at {:#x} cannot move to device {}", bytes,
                static_cast<std::uintptr_t>(address), device);
  }
  // As move(), to the memory of that device. Errors of both.
  virtual Status moveAllTo(DeviceAddress address, std::size_t bytes, int device) {
    return moveTo(address, bytes, device);
  }
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_MOVABLE_MEMORY_H_
