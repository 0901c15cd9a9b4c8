// SPDX-License-Identifier: Apache-2.0
//
// The programs on several devices, on a real GPU and two devices without one.
#include <unistd.h>

#include <cstdio>

#include "tests/api/devices_programs.h"
#include "tests/api/gpu_group_devices_fatbin.h"

namespace gmac::testing {
namespace {

// Only a missing GPU excuses.
void begin() {
  int count = 0;
  const adsmError_t error = adsmDeviceCount(&count);
  if (tests_api_gpu_group_devices_fatbin == nullptr || error == adsmErrorNoAccelerator) {
    std::printf("needs an NVIDIA GPU: %s\n", adsmLastErrorString());
    std::fflush(stdout);
    _exit(kCannotRun);
  }
}

}  // namespace

const DevicesKit& devicesKit() {
  static const DevicesKit kit{.accelerator = "cuda+host:2",
                              .firstKind = "cuda",
                              .firstUnit = std::size_t{2} << 20,
                              .hostMemory = "128M",
                              .cudaImage = tests_api_gpu_group_devices_fatbin,
                              .begin = begin};
  return kit;
}

}  // namespace gmac::testing
