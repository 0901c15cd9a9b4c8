// SPDX-License-Identifier: Apache-2.0
//
// How the device process tells of failures: into memory that is there already.
#ifndef GMAC_ACCEL_HOST_DEVICE_FAILURE_H_
#define GMAC_ACCEL_HOST_DEVICE_FAILURE_H_

#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "gmac/accel/host/control_block.h"

namespace gmac::accel::host {

template <typename... Args>
Failure failureOf(adsmError_t code, fmt::format_string<Args...> format, Args&&... args) {
  Failure failure{code, {}};
  const auto end = fmt::format_to_n(failure.text.data(), failure.text.size() - 1, format,
                                    std::forward<Args>(args)...);
  *end.out = '\0';
  return failure;
}

// Not strerror(): its translations have locks, which another thread may have held at the fork.
inline const char* errorText(int error) {
  const char* const text = strerrordesc_np(error);
  return text != nullptr ? text : "unknown error";
}

inline Failure success() { return Failure{adsmSuccess, {}}; }

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_DEVICE_FAILURE_H_
