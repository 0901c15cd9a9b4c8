// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/device.h"

#include <string>

#include "gmac/accel/devices.h"
#include "gmac/base/round_up.h"
#include "gmac/coherence/device_memory_port.h"

namespace gmac::datatype {
namespace {

constexpr std::size_t kGranule = std::size_t{64} << 10;
constexpr std::size_t kAlignment = std::size_t{2} << 20;

}  // namespace

Status Device::checkStream(accel::NativeStream stream) const {
  if (streams_ == nullptr) {
    return fail(adsmErrorNotSupported,
                "options.stream: the {} accelerator has no streams of the application's; NULL is "
                "the runtime's own",
                accelerator_.name());
  }
  if (const Status checked = streams_->check(stream); !checked.ok()) {
    const std::string text = lastErrorText();
    return fail(checked.code(), "options.stream: {}", text);
  }
  return {};
}

Device::Stream Device::aside() {
  if (streams_ == nullptr) {
    return std::nullopt;
  }
  const auto stream = streams_->sideStream();
  return stream.ok() ? Stream(*stream) : std::nullopt;
}

Result<accel::Ticket> Device::submit(Stream stream, accel::Work& work) {
  if (!stream) {
    return accelerator_.submit(work);
  }
  GMAC_TRY(streams_->submit(*stream, work));
  return accel::Ticket{};
}

Result<accel::Ticket> Device::launch(Stream stream, const DeviceLaunch& launch) {
  if (!stream) {
    accel::WorkOf work([&](accel::Commands& commands) { return this->launch(commands, launch); });
    return accelerator_.submit(work);
  }
  GMAC_TRY(streams_->launch(*stream, *kernels_, ofPlan(launch)));
  return accel::Ticket{};
}

Result<accel::DeviceAddress> Device::allocateHere(std::size_t bytes) {
  auto memory = accelerator_.allocate(bytes, kAlignment, accel::Placement::kAnywhere);
  accel::Devices* const devices = accelerator_.devices();
  if (memory.ok() && devices != nullptr && !devices->reachEachOther() &&
      devices->homeOf(*memory) != 0) {
    (void)accelerator_.free(*memory, bytes);
    return fail(adsmErrorAcceleratorMemory, "device 0, where packs run, has no room for {} bytes",
                bytes);
  }
  return memory;
}

Result<std::uint64_t> Device::allocate(std::size_t bytes) {
  const std::size_t whole = roundUp(bytes, kGranule);
  auto memory = allocateHere(whole);
  while (memory.status().code() == adsmErrorAcceleratorMemory) {
    const std::string full = lastErrorText();
    if (!coherence::deviceMemory().makeRoomForOwnWork()) {
      recordError(adsmErrorAcceleratorMemory, full);
      break;
    }
    memory = allocateHere(whole);
  }
  return memory.ok() ? Result<std::uint64_t>(static_cast<std::uint64_t>(*memory)) : memory.status();
}

void Device::free(std::uint64_t address, std::size_t bytes) noexcept {
  (void)accelerator_.free(accel::DeviceAddress{address}, roundUp(bytes, kGranule));
}

}  // namespace gmac::datatype
