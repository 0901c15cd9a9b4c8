// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/device.h"

#include "gmac/datatype/devices.h"
#include "gmac/os/memory.h"

namespace gmac::datatype {
namespace {

// Accelerators allocate multiples of it.
constexpr std::size_t kGranule = std::size_t{64} << 10;

}  // namespace

Result<std::unique_ptr<Device>> Device::make(accel::Accelerator& accelerator) {
#if GMAC_HAVE_CUDA
  if (accelerator.name() != "host") {
    return makeCudaDevice(accelerator);
  }
#endif
  return makeHostDevice(accelerator);
}

Result<accel::Ticket> Device::launch(std::optional<accel::NativeStream> stream,
                                     const DeviceLaunch& launch) {
  Commands work([&](DeviceQueue& queue) { return queue.launch(launch); });
  return submit(stream, work);
}

Result<accel::Ticket> Device::copyStrided(std::optional<accel::NativeStream> stream,
                                          const StridedCopy& copy) {
  Commands work([&](DeviceQueue& queue) { return queue.copyStrided(copy); });
  return submit(stream, work);
}

Result<std::uint64_t> Device::allocate(std::size_t bytes) {
  auto memory = accelerator_.allocate(os::roundUp(bytes, kGranule), os::kHugePageBytes,
                                      accel::Placement::kAnywhere);
  if (!memory.ok()) {
    return memory.status();
  }
  return static_cast<std::uint64_t>(*memory);
}

void Device::free(std::uint64_t address, std::size_t bytes) noexcept {
  (void)accelerator_.free(accel::DeviceAddress{address}, os::roundUp(bytes, kGranule));
}

}  // namespace gmac::datatype
