// SPDX-License-Identifier: Apache-2.0
//
// What lies in devices' memory, and what programs written for managed memory say of it. For
// interpose/cuda/ and datatype/.
#ifndef GMAC_COHERENCE_DEVICE_MEMORY_PORT_H_
#define GMAC_COHERENCE_DEVICE_MEMORY_PORT_H_

#include <cstddef>
#include <cstdint>

#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"
#include "gmac/coherence/port.h"

namespace gmac::coherence {

// Which of the application's streams have kernels that use an object: all, none, or one.
enum class Users : std::uint8_t { kEverybody, kCpu, kOneStream };

// All methods are thread-safe. Do not call them from inside the accelerator's driver. Those that
// are noexcept allocate nothing and may be called in signal handlers. The defaults are the answers
// of a process in which nothing is shared; an implementation overrides what it has.
class DeviceMemoryPort {
 public:
  DeviceMemoryPort(const DeviceMemoryPort&) = delete;
  DeviceMemoryPort& operator=(const DeviceMemoryPort&) = delete;

  // ---- Several devices that reach each other's memory, by their CUdevice

  // Whether objects may lie in the memory of several devices. Constant while a context lasts.
  virtual bool placesMemory() const noexcept;
  // prefer: these bytes should lie in the memory of that device, `forGood` or until the program
  // says something else. namedBy: a kernel there gets an address as an argument. Hints: pages move
  // while no device work is in flight, at once or after a later wait of the program.
  virtual Status prefer(const void* address, std::size_t bytes, int device, bool forGood);
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
  // Whether no device has room now for an object of that size, even if all other objects left it.
  // Asks the devices; gives back what is kept of freed objects if that may change the answer.
  virtual bool fitsNowhere(std::size_t bytes);

  // ---- Programs written for managed memory (GMAC_MANAGED)

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
  constexpr DeviceMemoryPort() noexcept = default;
  ~DeviceMemoryPort() = default;
};

}  // namespace gmac::coherence

#endif  // GMAC_COHERENCE_DEVICE_MEMORY_PORT_H_
