// SPDX-License-Identifier: Apache-2.0
//
// The random programs on a GPU, alone and beside two devices without one, over the fake driver.
// Needs no GPU.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "tests/cuda/fake_pack_kernels.h"
#include "tests/cuda/fake_program.h"
#include "tests/random_program.h"

namespace gmac::testing {
namespace {

using fake_cuda::argument;
using fake_cuda::device;

const bool kPrepared = fake_cuda::prepare();

CUresult transformOnDevice(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const data = device(argument<std::uint8_t*>(args, 0));
  if (data == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (std::uint64_t i = 0; i < argument<std::uint64_t>(args, 1); ++i) {
    data[i] = static_cast<std::uint8_t>(data[i] * 3 + argument<std::uint64_t>(args, 2) + i);
  }
  return CUDA_SUCCESS;
}

CUresult addOnDevice(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const to = device(argument<std::uint8_t*>(args, 0));
  const auto* const from = device(argument<const std::uint8_t*>(args, 1));
  if (to == nullptr || from == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (std::uint64_t i = 0; i < argument<std::uint64_t>(args, 2); ++i) {
    to[i] = static_cast<std::uint8_t>(to[i] + from[i]);
  }
  return CUDA_SUCCESS;
}

const std::size_t kThreeWords[] = {8, 8, 8};
const fake_cuda::Kernel kKernels[] = {{"transformBytes", transformOnDevice, 3, kThreeWords},
                                      {"addBytes", addOnDevice, 3, kThreeWords}};
const fake_cuda::Image kImage = {"fakecud", kKernels, std::size(kKernels), nullptr, 0};

// All on one stream: a program orders its streams itself.
bool launch(std::size_t kernel, void** args) {
  static const auto functions = [] {
    std::array<CUfunction, std::size(kKernels)> found{};
    CUmodule module = nullptr;
    EXPECT_EQ(DRIVER(cuModuleLoadDataEx)(&module, &kImage, 0, nullptr, nullptr), CUDA_SUCCESS);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(DRIVER(cuModuleGetFunction)(&found[i], module, kKernels[i].name), CUDA_SUCCESS);
    }
    return found;
  }();
  static CUstream const stream = [] {
    CUstream made = nullptr;
    EXPECT_EQ(DRIVER(cuStreamCreate)(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return made;
  }();
  static const auto submit = DRIVER(cuLaunchKernel);
  return submit(functions[kernel], 1, 1, 1, 32, 1, 1, 0, stream, args, nullptr) == CUDA_SUCCESS;
}

}  // namespace

const RandomProgramKit& randomProgramKit() {
  static const RandomProgramKit kit{
      &kImage, {}, [] { fake_cuda::standIn(&fake_cuda::packImage()); }, launch};
  return kit;
}

namespace {

std::vector<Combination> combinations() {
  return {
      {"cuda", "rolling", "64K", "current"},        {"cuda+host:1", "lazy", "64K", "data"},
      {"cuda+host:2", "batch", "64K", "history"},   {"cuda+host:2", "lazy", "64K", "history"},
      {"cuda+host:2", "rolling", "64K", "history"}, {"cuda+host:3", "rolling", "4K", "current"}};
}

INSTANTIATE_TEST_SUITE_P(, RandomProgram, ::testing::ValuesIn(combinations()), combinationName);

}  // namespace
}  // namespace gmac::testing
