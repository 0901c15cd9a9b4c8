// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_INTERPOSE_CUDA_HOST_FUNCTIONS_H_
#define GMAC_INTERPOSE_CUDA_HOST_FUNCTIONS_H_

namespace gmac::interpose {

// Whether a function of the CPU that was queued in any stream has yet to run. A load.
bool hostFunctionsPending() noexcept;
// Those so far never will: the context has ended.
void dropHostFunctions() noexcept;

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_HOST_FUNCTIONS_H_
