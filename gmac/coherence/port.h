// SPDX-License-Identifier: Apache-2.0
//
// The way to shared objects for interpose/, which stands between the application and libc or CUDA,
// for datatype/, and for other libraries. (The public API is adsm.h.)
//
// One interface for each kind of consumer: the CPU's side of shared memory (memory_port.h), device
// work (work_port.h), and what lies in devices' memory (device_memory_port.h). The process's
// objects (coherent_memory.h) implement them once the runtime has started. Until then, and in
// programs without a runtime, nothing is shared.
#ifndef GMAC_COHERENCE_PORT_H_
#define GMAC_COHERENCE_PORT_H_

#include <atomic>

#include "gmac/coherence/shared_ranges.h"

namespace gmac::coherence {

class MemoryPort;
class WorkPort;
class DeviceMemoryPort;

// Whether anything is shared now. A load.
inline bool anythingShared() noexcept { return shared_ranges::any(); }

// Whether a byte of [address, address + bytes), bytes > 0, may be shared. False is certain. Inline:
// a few comparisons; needs no runtime.
using shared_ranges::mayBeShared;

// The interfaces of a process, which belong together: they are replaced at once.
struct Ports {
  MemoryPort& memory;
  WorkPort& work;
  DeviceMemoryPort& deviceMemory;
};

namespace internal {
extern constinit std::atomic<const Ports*> runningPorts;
inline const Ports& ports() noexcept { return *runningPorts.load(std::memory_order_acquire); }
}  // namespace internal

// The interfaces of this process. Two loads; they work before this library's constructors have run,
// and in signal handlers.
inline MemoryPort& memory() noexcept { return internal::ports().memory; }
inline WorkPort& work() noexcept { return internal::ports().work; }
inline DeviceMemoryPort& deviceMemory() noexcept { return internal::ports().deviceMemory; }

// Replaces the process's ports and returns those before. For the runtime when it is loaded and when
// it has started, and for tests. `ports`, and what it refers to, must live until others are open.
const Ports& open(const Ports& ports) noexcept;

}  // namespace gmac::coherence

#endif  // GMAC_COHERENCE_PORT_H_
