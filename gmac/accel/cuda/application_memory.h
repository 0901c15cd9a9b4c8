// SPDX-License-Identifier: Apache-2.0
//
// Memory of devices that the application has allocated itself, as the CUDA driver in this process
// knows it: with or without a runtime, and on any device. All functions are thread-safe.
#ifndef GMAC_ACCEL_CUDA_APPLICATION_MEMORY_H_
#define GMAC_ACCEL_CUDA_APPLICATION_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "gmac/base/status.h"

namespace gmac::accel::cuda {

// Whether the process has loaded a CUDA driver, so that such memory may exist. Loads nothing. A
// load once there is one, before that some 20 ns; libraries that are loaded later are seen.
bool driverLoaded() noexcept;

struct ApplicationMemory {
  bool ofDevice = false;       // managed memory included; else nothing here means anything
  std::uintptr_t context = 0;  // a CUcontext; 0: of all contexts of the device
  int device = 0;              // a CUdevice
};
// The driver's answer about an address; it calls a shared object its own. Before the application
// has initialised the driver, nothing is of a device: this call does not initialise it. Some
// hundred nanoseconds.
ApplicationMemory applicationMemoryAt(const void* address) noexcept;

// The allocation that an address is of, as the driver says; no bytes: of none. The id is given once
// in the life of the process.
struct ApplicationAllocation {
  std::uintptr_t start = 0;
  std::size_t bytes = 0;
  std::uint64_t id = 0;
};
ApplicationAllocation allocationAt(const void* address) noexcept;

// Copies between `device`, memory as just asked about, and private memory of the CPU, and returns
// when it is done. Ordered with no stream.
Status copyFromApplication(const ApplicationMemory& memory, void* to, const void* device,
                           std::size_t bytes);
Status copyToApplication(const ApplicationMemory& memory, void* device, const void* from,
                         std::size_t bytes);

// The same, of few bytes, by the default stream of all: after what waitForDefaultStreams() waits
// for, and in much less time than both. False, and nothing is done, while a stream of that context
// is captured, as such a copy would end the capture.
inline constexpr std::size_t kMaxBytesInOrder = std::size_t{16} << 10;
Result<bool> copyFromApplicationInOrder(const ApplicationMemory& memory, void* to,
                                        const void* device, std::size_t bytes);
Result<bool> copyToApplicationInOrder(const ApplicationMemory& memory, void* device,
                                      const void* from, std::size_t bytes);
// The same from memory that the same context has: another process's, imported. Of any length.
Result<bool> copyOnDeviceInOrder(const ApplicationMemory& memory, void* device, const void* from,
                                 std::size_t bytes);

// Frees what starts there, which is of no pool.
Status freeOfApplication(void* start);

// Waits for what was submitted to the default streams in the context of that memory (the thread's
// own, and the one of all), and so for copies that have returned to the program while the device
// still makes them (CUDA's of pageable memory to the device do); or for all of that context's work.
Status waitForDefaultStreams(const ApplicationMemory& memory);
Status waitForApplication(const ApplicationMemory& memory);

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_APPLICATION_MEMORY_H_
