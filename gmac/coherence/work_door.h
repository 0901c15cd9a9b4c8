// SPDX-License-Identifier: Apache-2.0
//
// What WorkPort asks, done by the parts of the process's objects. A child of fork, which has none,
// is refused device work.
#ifndef GMAC_COHERENCE_WORK_DOOR_H_
#define GMAC_COHERENCE_WORK_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"
#include "gmac/coherence/work_port.h"

namespace gmac {

struct Parts;

// Owned by CoherentMemory, which keeps the parts and the accelerator for longer.
class WorkDoor final : public coherence::WorkPort {
 public:
  WorkDoor(Parts& parts, accel::Accelerator& accelerator) noexcept;

  Status beginDeviceWork(accel::NativeStream stream,
                         std::span<const coherence::DeviceRange> ranges) override;
  Status endDeviceWork(accel::NativeStream stream, bool submitted) override;
  bool mayRepeat(bool names) const noexcept override;
  bool beginRepeated(accel::NativeStream stream, bool names) noexcept override;
  bool fetchesAtWaits() const noexcept override;
  void endRepeated(accel::NativeStream stream, bool submitted) noexcept override;
  void markRepeated() noexcept override;
  void noneRepeats() noexcept override;
  void keepWhole() noexcept override;
  void keepWhole(std::span<const coherence::DeviceRange> ranges) noexcept override;
  coherence::DeviceWait beforeDeviceWait(std::optional<accel::NativeStream> stream,
                                         bool asks) override;
  Status afterDeviceWait(const coherence::DeviceWait& wait) override;
  void hostFunctionQueued() override;
  void hostFunctionEnded() override;
  void streamDestroyed(accel::NativeStream stream) override;
  std::size_t ofOneKind(const void* address, std::size_t bytes) noexcept override;
  Result<accel::Accelerator*> ensureAccelerator() override { return &accelerator_; }
  Status beginOwnWork(std::span<const coherence::DeviceRange> ranges) override;
  Status endOwnWork(std::span<const coherence::DeviceRange> ranges, accel::Ticket ticket) override;
  void otherContextEnds(std::uintptr_t context) noexcept override;
  void endContext(bool workFinished) override;

 private:
  bool joined(std::span<const coherence::DeviceRange> ranges);

  Parts& parts_;
  accel::Accelerator& accelerator_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_WORK_DOOR_H_
