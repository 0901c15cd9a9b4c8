// SPDX-License-Identifier: Apache-2.0
//
// What DeviceMemoryPort asks, answered by the parts of the process's objects. Refuses
// children of fork, which have none.
#ifndef GMAC_COHERENCE_DEVICE_MEMORY_DOOR_H_
#define GMAC_COHERENCE_DEVICE_MEMORY_DOOR_H_

#include <cstddef>
#include <cstdint>

#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"
#include "gmac/coherence/device_memory_port.h"

namespace gmac {

struct CoherenceOptions;
struct Parts;
namespace accel {
class Accelerator;
}

// Owned by CoherentMemory, which keeps the parts, the accelerator and the options for longer.
class DeviceMemoryDoor final : public coherence::DeviceMemoryPort {
 public:
  DeviceMemoryDoor(Parts& parts, const accel::Accelerator& accelerator,
                   const CoherenceOptions& options) noexcept
      : parts_(parts), accelerator_(accelerator), options_(options) {}

  bool placesMemory() const noexcept override;
  Status prefer(const void* address, std::size_t bytes, int device, bool forGood) override;
  Status namedBy(const void* address, int device) override;
  bool makeRoom() override;
  bool makeRoomForOwnWork() override;
  bool isKept(std::uintptr_t device) override;
  std::size_t keptBytes() const noexcept override;
  bool fitsNowhere(std::size_t bytes) override;
  bool managedMode() const noexcept override;
  bool trustsHints() const noexcept override;
  bool reachedByCuda() const noexcept override;
  unsigned waitLimit() const noexcept override;
  Status setUsers(const void* object, coherence::Users users, accel::NativeStream stream) override;
  void setReadMostly(const void* object, bool readMostly) override;

 private:
  Parts& parts_;
  const accel::Accelerator& accelerator_;
  const CoherenceOptions& options_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_DEVICE_MEMORY_DOOR_H_
