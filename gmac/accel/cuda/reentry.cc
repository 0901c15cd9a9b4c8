// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/reentry.h"

namespace gmac::accel::cuda::internal {

thread_local constinit int insideDepth = 0;

}  // namespace gmac::accel::cuda::internal
