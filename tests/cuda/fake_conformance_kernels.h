// SPDX-License-Identifier: Apache-2.0
//
// The conformance suite's kernels as the fake driver runs kernels.
#ifndef GMAC_TESTS_CUDA_FAKE_CONFORMANCE_KERNELS_H_
#define GMAC_TESTS_CUDA_FAKE_CONFORMANCE_KERNELS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "tests/accel/conformance.h"
#include "tests/cuda/fake_library.h"

namespace gmac::accel::conformance::fake {

using fake_cuda::argument;
using fake_cuda::device;

inline CUresult increment(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const data = device(argument<std::uint32_t*>(args, 0));
  if (data == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto count = argument<std::uint64_t>(args, 1);
  const auto value = argument<std::uint32_t>(args, 2);
  for (std::uint64_t i = 0; i < count; ++i) data[i] += value;
  return CUDA_SUCCESS;
}

inline CUresult sumList(const unsigned*, const unsigned*, unsigned, void** args) {
  std::uint64_t sum = 0;
  for (const Node* node = argument<const Node*>(args, 0); node != nullptr;) {
    node = device(node);
    if (node == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    sum += node->value;
    node = node->next;
  }
  *device(argument<std::uint64_t*>(args, 1)) = sum;
  return CUDA_SUCCESS;
}

inline CUresult reverseBlocks(const unsigned* grid, const unsigned* block, unsigned sharedBytes,
                              void** args) {
  auto* const data = device(argument<std::uint32_t*>(args, 0));
  if (sharedBytes < block[0] * sizeof *data) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (unsigned b = 0; b < grid[0]; ++b)
    std::reverse(data + b * block[0], data + (b + 1) * block[0]);
  return CUDA_SUCCESS;
}

inline CUdeviceptr addend;

inline CUresult addConstant(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const data = device(argument<std::uint32_t*>(args, 0));
  std::uint32_t value = 0;
  std::memcpy(&value, fake_cuda::backing(addend), sizeof value);
  const auto count = argument<std::uint64_t>(args, 1);
  for (std::uint64_t i = 0; i < count; ++i) data[i] += value;
  return CUDA_SUCCESS;
}

inline CUresult storeWide(const unsigned*, const unsigned*, unsigned, void** args) {
  const auto wide = argument<Wide>(args, 0);
  std::copy(wide.words.begin(), wide.words.end(), device(argument<std::uint64_t*>(args, 1)));
  return CUDA_SUCCESS;
}

inline CUresult poke(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const address = device(argument<std::uint32_t*>(args, 0));
  if (address == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  *address = 1;
  return CUDA_SUCCESS;
}

inline const std::size_t kPointer = sizeof(void*);
inline const std::size_t kIncrementSizes[] = {kPointer, sizeof(std::uint64_t),
                                              sizeof(std::uint32_t)};
inline const std::size_t kTwoWords[] = {kPointer, sizeof(std::uint64_t)};
inline const std::size_t kWideSizes[] = {sizeof(Wide), kPointer};
inline const adsmConstant_t kAddend[] = {{"addend", sizeof(std::uint32_t), nullptr, nullptr}};

inline const fake_cuda::Kernel kKernels[] = {
    {"increment", increment, 3, kIncrementSizes},   {"sumList", sumList, 2, kTwoWords},
    {"reverseBlocks", reverseBlocks, 1, &kPointer}, {"addConstant", addConstant, 2, kTwoWords},
    {"storeWide", storeWide, 2, kWideSizes},        {"poke", poke, 1, &kPointer},
};
inline const fake_cuda::Global kGlobals[] = {{"addend", sizeof(std::uint32_t), &addend}};
inline const fake_cuda::Image kImage = {"fakecud", kKernels, std::size(kKernels), kGlobals,
                                        std::size(kGlobals)};

inline adsmKernelDesc_t describe(const fake_cuda::Kernel& kernel) {
  adsmKernelDesc_t desc{};
  desc.name = kernel.name;
  desc.cudaName = kernel.name;
  desc.cudaImage = &kImage;
  desc.paramSizes = kernel.paramSizes;
  desc.paramCount = kernel.paramCount;
  desc.constantCount = 1;
  desc.constants = kAddend;
  return desc;
}

inline const adsmKernelDesc_t kIncrement = describe(kKernels[0]);
inline const adsmKernelDesc_t kSumList = describe(kKernels[1]);
inline const adsmKernelDesc_t kReverseBlocks = describe(kKernels[2]);
inline const adsmKernelDesc_t kAddConstant = describe(kKernels[3]);
inline const adsmKernelDesc_t kStoreWide = describe(kKernels[4]);
inline const adsmKernelDesc_t kPoke = describe(kKernels[5]);
inline const adsmKernelDesc_t kMissing = [] {
  adsmKernelDesc_t desc{};
  desc.name = "onlyForOthers";
  return desc;
}();

}  // namespace gmac::accel::conformance::fake

#endif  // GMAC_TESTS_CUDA_FAKE_CONFORMANCE_KERNELS_H_
