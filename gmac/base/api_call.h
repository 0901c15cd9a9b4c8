// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BASE_API_CALL_H_
#define GMAC_BASE_API_CALL_H_

#include "gmac/api/adsm.h"
#include "gmac/base/cancellation.h"
#include "gmac/base/guarded.h"

namespace gmac::api {

// Runs one API function's body, which gives a Status: no exception leaves it, and no thread is
// cancelled in it.
template <typename Body>
adsmError_t guarded(const char* function, Body body) noexcept {
  return uncancelled([&]() noexcept { return gmac::guarded(function, body); });
}

}  // namespace gmac::api

#endif  // GMAC_BASE_API_CALL_H_
