// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/exit_fetch.h"

#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/memory_port.h"

namespace gmac {

void ExitFetch::run() noexcept {
  const std::byte* position = nullptr;
  for (std::size_t left = kMost;;) {
    const std::byte* address = nullptr;
    std::size_t bytes = 0;
    {
      const Lock lock(mutex_);
      blocks_.stopEvicting();
      Object* object = index_.firstEndingAfter(position);
      while (object != nullptr &&
             (object->closing || object->bytes() > left || !ledger_.writersDone(*object) ||
              !object->pagesReady(0, object->bytes()))) {
        object = index_.firstEndingAfter(object->end());
      }
      if (object == nullptr) {
        return;
      }
      address = object->address();
      bytes = object->bytes();
      position = object->end();
    }
    left -= bytes;
    if (access_.hold(address, bytes, coherence::HoldFor::kRead).ok()) {
      access_.unhold(address, bytes);
    }
  }
}

}  // namespace gmac
