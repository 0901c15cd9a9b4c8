// SPDX-License-Identifier: Apache-2.0
//
// A kernel that makes bytes of bytes, and whose bytes are where.
#ifndef GMAC_TESTS_TRANSFORM_KERNEL_H_
#define GMAC_TESTS_TRANSFORM_KERNEL_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "gmac/api/adsm.h"
#include "gmac/coherence/memory_port.h"
#include "tests/random_program_fatbin.h"

namespace gmac::testing {

// data[i] becomes data[i] * 3 + key + i; the arguments are data, their number and the key.
inline void transformBytes(const adsmThreadBlock_t* block, void** args) {
  auto* data = *static_cast<std::uint8_t**>(args[0]);
  const auto count = *static_cast<std::uint64_t*>(args[1]);
  const auto key = *static_cast<std::uint64_t*>(args[2]);
  for (std::uint64_t i = block->blockIdx.x; i < count; i += block->gridDim.x) {
    data[i] = static_cast<std::uint8_t>(data[i] * 3 + key + i);
  }
}

// The same on whatever accelerator is here. It must end before the runtime does.
class TransformKernel {
 public:
  TransformKernel() {
    static const std::size_t kSizes[] = {8, 8, 8};
    adsmKernelDesc_t desc = {};
    desc.name = "transformBytes";
    desc.paramCount = 3;
    desc.paramSizes = kSizes;
    desc.host = &transformBytes;
    desc.cudaImage = tests_random_program_fatbin;
    desc.cudaName = tests_random_program_fatbin != nullptr ? desc.name : nullptr;
    EXPECT_EQ(adsmKernelCreate(&desc, &kernel_), adsmSuccess) << adsmLastErrorString();
  }
  ~TransformKernel() { EXPECT_EQ(adsmKernelDestroy(kernel_), adsmSuccess); }
  TransformKernel(const TransformKernel&) = delete;
  TransformKernel& operator=(const TransformKernel&) = delete;

  // Does not wait for it.
  void call(void* data, std::uint64_t bytes, std::uint64_t key) const {
    void* args[] = {&data, &bytes, &key};
    ASSERT_EQ(adsmCall(kernel_, {64, 1, 1}, {32, 1, 1}, 0, args), adsmSuccess)
        << adsmLastErrorString();
  }

 private:
  adsmKernel_t kernel_ = nullptr;
};

// How many of some bytes are not where `where` says.
inline std::size_t bytesNot(const void* data, std::size_t bytes, coherence::Current where) {
  const auto* const begin = static_cast<const std::byte*>(data);
  std::size_t other = 0;
  for (std::size_t done = 0; done < bytes;) {
    coherence::Current current{};
    const std::size_t length = coherence::currentPrefix(begin + done, bytes - done, &current);
    other += current == where ? 0 : length;
    done += length;
  }
  return other;
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_TRANSFORM_KERNEL_H_
