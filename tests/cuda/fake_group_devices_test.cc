// SPDX-License-Identifier: Apache-2.0
//
// The programs on several devices, on a GPU and two devices without one, over the fake driver.
// Needs no GPU.
#include <cstdint>
#include <cstring>
#include <iterator>

#include "tests/api/devices_programs.h"
#include "tests/cuda/fake_pack_kernels.h"
#include "tests/cuda/fake_program.h"

namespace gmac::testing {
namespace {

const bool kPrepared = fake_cuda::prepare();

CUdeviceptr deviceAddend;

// Where the program has set nothing, its own value is what a real module begins with.
constexpr std::uint32_t kFresh = 0xA5A5A5A5;  // in the driver's new memory
CUresult addOnDevice(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const data = fake_cuda::device(fake_cuda::argument<std::uint32_t*>(args, 0));
  if (data == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  std::uint32_t more = 0;
  std::memcpy(&more, fake_cuda::backing(deviceAddend), sizeof more);
  if (more == kFresh) more = 1;
  for (std::uint64_t i = 0; i < fake_cuda::argument<std::uint64_t>(args, 1); ++i) data[i] += more;
  return CUDA_SUCCESS;
}

CUresult crashOnDevice(const unsigned*, const unsigned*, unsigned, void**) {
  return CUDA_ERROR_LAUNCH_FAILED;
}

const fake_cuda::Kernel kKernels[] = {{"addTo", addOnDevice, 2, fake_cuda::kSizes},
                                      {"crash", crashOnDevice, 0, nullptr}};
const fake_cuda::Global kGlobals[] = {{"addend", sizeof(std::uint32_t), &deviceAddend}};
const fake_cuda::Image kImage = {"fakecud", kKernels, std::size(kKernels), kGlobals,
                                 std::size(kGlobals)};

}  // namespace

const DevicesKit& devicesKit() {
  static const DevicesKit kit{.accelerator = "cuda+host:2",
                              .firstKind = "cuda",
                              .firstUnit = std::size_t{2} << 20,
                              .hostMemory = "128M",
                              .cudaImage = &kImage,
                              .begin = [] { fake_cuda::standIn(&fake_cuda::packImage()); }};
  return kit;
}

}  // namespace gmac::testing
