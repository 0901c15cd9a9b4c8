// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/staged_steps.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "gmac/coherence/memory_port.h"
#include "gmac/datatype/engine/plain_copy.h"

namespace gmac::datatype {

using coherence::CpuHold;
using coherence::HoldFor;

Status StagedSteps::run(const Portion& portion) {
  constexpr auto kSlotBytes = static_cast<std::int64_t>(Staging::kSlotBytes);
  for (std::int64_t done = 0; done < portion.bytes; done += kSlotBytes) {
    GMAC_TRY(drain(Staging::kSlotsEach - 1));
    const std::int64_t bytes = std::min(kSlotBytes, portion.bytes - done);
    auto slot = staging_.take();
    if (!slot.ok()) {
      return slot.status();
    }
    GMAC_TRY(op_.packs() ? pack(std::move(*slot), portion.offset + done, bytes)
                         : unpack(std::move(*slot), portion.offset + done, bytes));
  }
  // The copies run in order: when the last is over, all are. (An earlier wait would make the next
  // step's kernel wait for this one's copy.)
  if (op_.packs() && op_.stream && placement_.packedAt() == Placement::Packed::kPinned) {
    return submissions_.device().follow(*op_.stream, outcome_.ticket);
  }
  return {};
}

Status StagedSteps::pack(StagingSlot slot, std::int64_t offset, std::int64_t bytes) {
  auto packed = submissions_.launch(offset, bytes, slot.device());
  if (!packed.ok()) {
    return packed.status();
  }
  GMAC_TRY(submissions_.noteUse(slot, *packed));
  const bool direct = placement_.packedAt() == Placement::Packed::kPinned;
  auto copied = submissions_.device().accelerator().copyOut(
      direct ? op_.packedAt(offset) : slot.pinned(), accel::DeviceAddress{slot.device()},
      static_cast<std::size_t>(bytes), slot.ticket());
  if (!copied.ok()) {
    return copied.status();
  }
  ++outcome_.report.launches;
  slot.usedUntil(*copied);
  if (direct) {
    outcome_.ticket = *copied;
    return {};
  }
  steps_.push_back({std::move(slot), offset, bytes});
  return {};
}

Status StagedSteps::unpack(StagingSlot slot, std::int64_t offset, std::int64_t bytes) {
  const std::byte* from = op_.packedAt(offset);
  if (placement_.packedAt() == Placement::Packed::kPageable) {
    std::optional<CpuHold> hold;
    if (placement_.packedShared()) {
      hold.emplace(from, static_cast<std::size_t>(bytes), HoldFor::kRead);
      GMAC_TRY(hold->status());
    }
    plainCopy(slot.pinned(), from, static_cast<std::size_t>(bytes));
    from = slot.pinned();
  }
  Device& device = submissions_.device();
  auto copied = device.accelerator().copyIn(accel::DeviceAddress{slot.device()}, from,
                                            static_cast<std::size_t>(bytes), {});
  if (!copied.ok()) {
    return copied.status();
  }
  ++outcome_.report.launches;
  slot.usedUntil(*copied);
  if (op_.stream) {
    GMAC_TRY(device.follow(*op_.stream, *copied));
  }
  auto unpacked = submissions_.launch(offset, bytes, slot.device());
  if (!unpacked.ok()) {
    return unpacked.status();
  }
  return submissions_.noteUse(slot, *unpacked);
}

Status StagedSteps::drain(std::size_t left) {
  while (steps_.size() > left) {
    Step step = std::move(steps_.front());
    steps_.pop_front();
    GMAC_TRY(submissions_.device().accelerator().wait(step.slot.ticket()));
    std::byte* const to = op_.packedAt(step.offset);
    std::optional<CpuHold> hold;
    if (placement_.packedShared()) {
      hold.emplace(to, static_cast<std::size_t>(step.bytes), HoldFor::kOverwrite);
      GMAC_TRY(hold->status());
    }
    plainCopy(to, step.slot.pinned(), static_cast<std::size_t>(step.bytes));
  }
  return {};
}

}  // namespace gmac::datatype
