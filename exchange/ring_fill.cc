// SPDX-License-Identifier: Apache-2.0
#include "exchange/ring_fill.h"

#include <algorithm>

namespace gmac::exchange::internal {
namespace {

using datatype::Layout;
using std::int64_t;

// Packed at a time: the next one begins when one ends.
constexpr std::size_t kPacks = 2;

}  // namespace

RingFill::RingFill(const DeviceFunctions& device, TransferRecord& record, const Layout& layout,
                   const std::byte* base, std::byte* ring)
    : device_(device),
      record_(record),
      layout_(layout),
      base_(base),
      ring_(ring),
      ringBytes_(static_cast<int64_t>(record.pinnedBytes)),
      fragmentBytes_(static_cast<int64_t>(record.pinnedFragment)) {}

RingFill::~RingFill() {
  for (const Pack& pack : packs_) {
    (void)device_.end(pack.event);
  }
}

Status RingFill::refuse(adsmError_t code) {
  if (failed_ == adsmSuccess) {
    failed_ = code;
    cause_ = device_.causeOf(code);
  }
  return fail(failed_, "exchange: the device has not packed a message of {} bytes: {}",
              layout_.bytes(), cause_);
}

Status RingFill::advance() {
  if (failed_ != adsmSuccess) {
    return refuse(failed_);
  }
  GMAC_TRY(complete());
  while (packs_.size() < kPacks && submitted_ < layout_.bytes()) {
    const Result<bool> submitted = submit();
    GMAC_TRY(submitted.status());
    if (!*submitted) {
      break;
    }
  }
  return complete();
}

Status RingFill::complete() {
  while (!packs_.empty() && device_.over(packs_.front().event)) {
    const Pack pack = packs_.front();
    packs_.pop_front();
    if (const adsmError_t code = device_.end(pack.event); code != adsmSuccess) {
      return refuse(code);
    }
    produced_ += pack.bytes;
    record_.pinnedProduced.store(static_cast<std::uint64_t>(produced_), std::memory_order_release);
  }
  return {};
}

Result<bool> RingFill::submit() {
  const auto consumed =
      static_cast<int64_t>(record_.pinnedConsumed.load(std::memory_order_acquire));
  if (consumed < 0 || consumed > produced_) {
    return fail(adsmErrorSystem, "exchange: a receiver says that it has {} of {} bytes", consumed,
                produced_);
  }
  const int64_t bytes = std::min(fragmentBytes_, layout_.bytes() - submitted_);
  if (submitted_ + bytes - consumed > ringBytes_) {
    return false;
  }
  const auto line = Layout::make({}, {{-submitted_, submitted_ + bytes}});
  GMAC_TRY(line.status());
  void* event = nullptr;
  if (const adsmError_t code = device_.begin(*line, ring_ + submitted_ % ringBytes_, layout_, base_,
                                             submitted_, bytes, &event);
      code != adsmSuccess) {
    return refuse(code);
  }
  packs_.push_back({event, bytes});
  submitted_ += bytes;
  return true;
}

}  // namespace gmac::exchange::internal
