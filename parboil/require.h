// SPDX-License-Identifier: Apache-2.0
//
// Turns an error of the runtime into a Failure, in one word per call.
#ifndef GMAC_PARBOIL_REQUIRE_H_
#define GMAC_PARBOIL_REQUIRE_H_

#include <cstdlib>
#include <string>

#include "gmac/api/adsm.h"
#include "parboil/benchmark.h"

namespace parboil {

inline void require(adsmError_t error) {
  if (error != adsmSuccess) {
    throw Failure(std::string(adsmErrorName(error)) + ": " + adsmLastErrorString());
  }
}

// The result of adsmAlloc() or malloc(), as what it is for.
template <typename T>
T* requireShared(void* address) {
  if (address == nullptr) require(adsmLastError());
  return static_cast<T*>(address);
}
template <typename T>
T* requireMemory(void* address) {
  if (address == nullptr) throw Failure("out of memory");
  return static_cast<T*>(address);
}

}  // namespace parboil

#endif  // GMAC_PARBOIL_REQUIRE_H_
