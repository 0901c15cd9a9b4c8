// SPDX-License-Identifier: Apache-2.0
//
// Keeps exceptions inside the C API.
#ifndef GMAC_BASE_GUARDED_H_
#define GMAC_BASE_GUARDED_H_

#include <exception>
#include <new>

#include "gmac/base/status.h"

namespace gmac {

// Runs one API function's body, which gives a Status.
template <typename Body>
adsmError_t guarded(const char* function, Body body) noexcept {
  try {
    return body().code();
  } catch (const std::bad_alloc&) {
    return fail(adsmErrorHostMemory, "{}: the CPU's memory is exhausted", function).code();
  } catch (const std::exception& error) {
    return fail(adsmErrorSystem, "{}: {}", function, error.what()).code();
  }
}

}  // namespace gmac

#endif  // GMAC_BASE_GUARDED_H_
