// SPDX-License-Identifier: Apache-2.0
#include "exchange/ring_drain.h"

#include <algorithm>

namespace gmac::exchange::internal {
namespace {

using datatype::Layout;
using std::int64_t;

// Copies under way at a time: the next one begins when one ends.
constexpr std::size_t kCopies = 2;

}  // namespace

Result<int64_t> readyInRing(const TransferRecord& record, const PinnedView& ring, int64_t done,
                            int64_t all) {
  const auto produced = static_cast<int64_t>(record.pinnedProduced.load(std::memory_order_acquire));
  const auto consumed = static_cast<int64_t>(record.pinnedConsumed.load(std::memory_order_relaxed));
  if (produced < done || produced > all || produced - consumed > ring.bytes) {
    return fail(adsmErrorInvalidValue,
                "exchange: a sender says that {} bytes of {} are there, of which {} were taken",
                produced, all, consumed);
  }
  return std::min(produced - done, ring.fragmentBytes - done % ring.fragmentBytes);
}

RingDrain::RingDrain(const DeviceFunctions& device, const TransferRecord& record,
                     const PinnedView& ring, const Layout& to, std::byte* target, int64_t bytes)
    : device_(device), record_(record), ring_(ring), to_(to), target_(target), bytes_(bytes) {}

RingDrain::~RingDrain() {
  for (const Copy& copy : copies_) {
    (void)device_.end(copy.event);
  }
}

Status RingDrain::refuse(adsmError_t code, int64_t bytes) const {
  return fail(code, "exchange: the device has not copied {} bytes of a message: {}", bytes,
              device_.causeOf(code));
}

Result<int64_t> RingDrain::advance() {
  Result<int64_t> arrived = complete();
  GMAC_TRY(arrived.status());
  while (copies_.size() < kCopies && submitted_ < bytes_) {
    const Result<bool> submitted = submit();
    GMAC_TRY(submitted.status());
    if (!*submitted) {
      break;
    }
  }
  return *arrived > 0 ? arrived : complete();
}

Result<int64_t> RingDrain::complete() {
  int64_t arrived = 0;
  while (!copies_.empty() && device_.over(copies_.front().event)) {
    const Copy copy = copies_.front();
    copies_.pop_front();
    if (const adsmError_t code = device_.end(copy.event); code != adsmSuccess) {
      return refuse(code, copy.bytes);
    }
    arrived += copy.bytes;
  }
  return arrived;
}

Result<bool> RingDrain::submit() {
  const Result<int64_t> ready = readyInRing(record_, ring_, submitted_, bytes_);
  if (!ready.ok() || *ready == 0) {
    return ready.ok() ? Result<bool>(false) : Result<bool>(ready.status());
  }
  const auto line = Layout::make({}, {{-submitted_, submitted_ + *ready}});
  GMAC_TRY(line.status());
  void* event = nullptr;
  const auto begin = device_.beginUnpack != nullptr ? device_.beginUnpack : device_.begin;
  if (const adsmError_t code = begin(to_, target_, *line, ring_.address + submitted_ % ring_.bytes,
                                     submitted_, *ready, &event);
      code != adsmSuccess) {
    return refuse(code, *ready);
  }
  copies_.push_back({event, *ready});
  submitted_ += *ready;
  return true;
}

}  // namespace gmac::exchange::internal
