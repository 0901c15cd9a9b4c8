// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/device.h"

#include <string>

#include "gmac/base/round_up.h"

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

Result<std::uint64_t> Device::allocate(std::size_t bytes) {
  auto memory =
      accelerator_.allocate(roundUp(bytes, kGranule), kAlignment, accel::Placement::kAnywhere);
  if (!memory.ok()) {
    return memory.status();
  }
  return static_cast<std::uint64_t>(*memory);
}

void Device::free(std::uint64_t address, std::size_t bytes) noexcept {
  (void)accelerator_.free(accel::DeviceAddress{address}, roundUp(bytes, kGranule));
}

}  // namespace gmac::datatype
