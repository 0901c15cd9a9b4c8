// SPDX-License-Identifier: Apache-2.0
//
// The ports of a process in which nothing is shared.
#include "gmac/coherence/port.h"

#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"

namespace gmac::coherence {
namespace {

class NoMemory final : public MemoryPort {
 public:
  constexpr NoMemory() noexcept = default;
};
class NoWork final : public WorkPort {
 public:
  constexpr NoWork() noexcept = default;
};
class NoDeviceMemory final : public DeviceMemoryPort {
 public:
  constexpr NoDeviceMemory() noexcept = default;
};
constinit NoMemory noMemory;
constinit NoWork noWork;
constinit NoDeviceMemory noDeviceMemory;
constinit const Ports kNothingShared{noMemory, noWork, noDeviceMemory};

}  // namespace

constinit std::atomic<const Ports*> internal::runningPorts{&kNothingShared};

const Ports& open(const Ports& ports) noexcept {
  const Ports& before = *internal::runningPorts.exchange(&ports);
  notePlacesChanged();
  return before;
}

}  // namespace gmac::coherence
