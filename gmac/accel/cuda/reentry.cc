// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/reentry.h"

namespace gmac::accel::cuda {

namespace {
__attribute__((tls_model("initial-exec"))) thread_local constinit int insideDepth = 0;
}  // namespace

int& Reentry::depth() noexcept { return insideDepth; }

}  // namespace gmac::accel::cuda
