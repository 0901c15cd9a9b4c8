// SPDX-License-Identifier: Apache-2.0
//
// Functions that debuggers call by name: no header declares them.
#include <cstddef>
#include <cstdint>

#include "gmac/api/adsm.h"
#include "gmac/base/api_call.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/session/runtime.h"

// Waits for all kernels and makes every object current on the CPU, where debuggers and core dumps
// look. If it fails, they see the bytes that were current there before.
extern "C" ADSM_API adsmError_t gmacFetchAll() {
  return gmac::api::guarded("gmacFetchAll", []() -> gmac::Status {
    gmac::Runtime* const runtime = gmac::Runtime::started();
    if (runtime == nullptr) {
      return {};
    }
    GMAC_TRY(runtime->memory().sync());
    gmac::coherence::MemoryPort& memory = runtime->memory().memory();
    for (std::uintptr_t position = 0, length = 0; position < UINTPTR_MAX; position += length) {
      const auto* const address = reinterpret_cast<const void*>(position);
      bool shared = false;
      length = memory.sharedPrefix(address, UINTPTR_MAX - position, &shared);
      if (shared) {
        GMAC_TRY(memory.hold(address, length, false));
        memory.unhold(address, length);
      }
    }
    return {};
  });
}
