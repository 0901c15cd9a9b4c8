// SPDX-License-Identifier: Apache-2.0
//
// The runtime's own digest kernel on fakes of an accelerator.
#ifndef GMAC_TESTS_SUPPORT_DIGEST_KERNEL_H_
#define GMAC_TESTS_SUPPORT_DIGEST_KERNEL_H_

#include <cstddef>
#include <functional>

#include "gmac/api/adsm.h"

namespace gmac::testing {

class FakeAccelerator;

// The kernel's name in messages and logs.
inline constexpr const char* kDigestKernel = "gmac.digest";

// Runs one launch of the kernel's `host` implementation here. `follow` says where the accelerator
// keeps the byte of a device address.
void runDigestKernel(const adsmDim_t& grid, void** args, const std::function<void*(void*)>& follow);

// From now on the fake has an implementation of it.
void giveDigestKernel(FakeAccelerator& fake);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_DIGEST_KERNEL_H_
