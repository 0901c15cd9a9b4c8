// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/shared_memory.h"

#include "gmac/coherence/port.h"

int gmacAnythingShared(void) { return gmac::coherence::anythingShared() ? 1 : 0; }

int gmacTouchesShared(const void* address, size_t bytes) {
  return gmac::coherence::touchesShared(address, bytes) ? 1 : 0;
}

int gmacLend(const void* address, size_t bytes, gmacLoan* loan) {
  gmac::coherence::Loan lent{};
  if (!gmac::coherence::port().lend(address, bytes, &lent)) {
    return 0;
  }
  *loan = {lent.file, lent.fileNumber, lent.fileBytes, lent.offset, lent.view};
  return 1;
}

void gmacGiveBack(const void* address, size_t bytes) {
  gmac::coherence::port().giveBack(address, bytes);
}

void gmacOnReclaim(void (*giveBack)(void)) { gmac::coherence::onReclaim(giveBack); }
