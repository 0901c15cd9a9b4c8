// SPDX-License-Identifier: Apache-2.0
//
// Kernels with a host implementation, alone or with a function of the same name in a CUDA image.
#ifndef GMAC_TESTS_API_HOST_KERNEL_H_
#define GMAC_TESTS_API_HOST_KERNEL_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "gmac/api/adsm.h"

namespace gmac::testing {

// Of so many parameters of 8 bytes each.
inline adsmKernel_t hostKernel(const char* name, adsmHostKernel_t body, std::size_t parameters,
                               std::span<const adsmConstant_t> constants = {},
                               const void* cudaImage = nullptr) {
  const std::vector<std::size_t> sizes(parameters, 8);
  adsmKernelDesc_t desc = {};
  desc.name = name;
  desc.paramCount = parameters;
  desc.paramSizes = sizes.data();
  desc.host = body;
  desc.cudaImage = cudaImage;
  desc.cudaName = cudaImage != nullptr ? name : nullptr;
  desc.constantCount = constants.size();
  desc.constants = constants.data();
  adsmKernel_t kernel = nullptr;
  EXPECT_EQ(adsmKernelCreate(&desc, &kernel), adsmSuccess) << adsmLastErrorString();
  return kernel;
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_API_HOST_KERNEL_H_
