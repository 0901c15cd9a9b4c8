// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/shared_memory.h"

#include "gmac/coherence/port.h"

int gmacAnythingShared(void) { return gmac::coherence::anythingShared() ? 1 : 0; }

int gmacTouchesShared(const void* address, size_t bytes) {
  return gmac::coherence::touchesShared(address, bytes) ? 1 : 0;
}
