// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/shared_memory.h"

#include <atomic>
#include <cstdint>

#include "gmac/base/api_call.h"
#include "gmac/base/status.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"

int gmacAnythingShared(void) { return gmac::coherence::anythingShared() ? 1 : 0; }

int gmacTouchesShared(const void* address, size_t bytes) {
  return gmac::coherence::touchesShared(address, bytes) ? 1 : 0;
}

uint64_t gmacFreedObjects(void) { return gmac::stats().frees.value(); }

int gmacLend(const void* address, size_t bytes, gmacLoan* loan) {
  gmac::coherence::Loan lent{};
  if (!gmac::coherence::memory().lend(address, bytes, &lent)) {
    return 0;
  }
  *loan = {lent.file, lent.fileNumber, lent.fileBytes, lent.offset, lent.view};
  return 1;
}

void gmacGiveBack(const void* address, size_t bytes) {
  gmac::coherence::memory().giveBack(address, bytes);
}

adsmError_t gmacLendOnDevice(const void* address, size_t bytes, gmacDeviceLoan* loan, int* lent) {
  return gmac::api::guarded("gmacLendOnDevice", [&]() -> gmac::Status {
    gmac::coherence::DeviceLoan made{};
    const auto is = gmac::coherence::memory().lendOnDevice(address, bytes, &made);
    GMAC_TRY(is.status());
    *lent = *is ? 1 : 0;
    *loan = {reinterpret_cast<void*>(made.start), made.bytes, made.number,
             reinterpret_cast<void*>(made.address), made.object};
    return {};
  });
}

void gmacGiveBackOnDevice(const void* address, size_t bytes, const gmacDeviceLoan* loan) {
  gmac::coherence::memory().giveBackOnDevice(
      address, bytes,
      {reinterpret_cast<std::uintptr_t>(loan->start), loan->bytes, loan->number,
       reinterpret_cast<std::uintptr_t>(loan->address), loan->object});
}

void gmacOnReclaim(void (*giveBack)(int)) {
  static std::atomic<void (*)(int)> borrower{nullptr};
  borrower = giveBack;
  gmac::coherence::onReclaim([](gmac::coherence::Lent lent) {
    if (auto* const asked = borrower.load()) {
      asked(lent == gmac::coherence::Lent::kOnDevice ? 1 : 0);
    }
  });
}
