// SPDX-License-Identifier: Apache-2.0
//
// The GPU of a build that has no CUDA toolkit.
#if !GMAC_HAVE_CUDA
#include "datatypes/gpu.h"

namespace datatypes {

std::unique_ptr<Gpu> openGpu(std::string& whyNot) {
  whyNot = "this build has no CUDA toolkit";
  return nullptr;
}

}  // namespace datatypes
#endif
