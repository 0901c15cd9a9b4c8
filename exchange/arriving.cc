// SPDX-License-Identifier: Apache-2.0
#include "exchange/arriving.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "gmac/base/log.h"

namespace gmac::exchange::internal {
namespace {

using datatype::Layout;
using std::int64_t;

constexpr auto kSlots = static_cast<int64_t>(TransferRecord::kAheadSlots);
// While nothing is unpacked for so long, whether the kernel has ended by itself is asked; the
// answer takes a microsecond of the driver. Nanoseconds.
constexpr int64_t kAskEvery = 100'000;

int64_t now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::unique_ptr<Arriving> Arriving::begin(const DeviceFunctions& device,
                                          const TransferRecord& record, const AheadRing& ring,
                                          const Layout& to, std::byte* target, int64_t bytes) {
  if (device.arrivals == nullptr) {
    return nullptr;
  }
  void* arrival = nullptr;
  if (const adsmError_t code = device.arrivals->begin(
          to, target, bytes, ring.address, ring.fragmentBytes, static_cast<int>(kSlots), &arrival);
      code != adsmSuccess) {
    log(LogLevel::kInfo, "exchange: a message of {} bytes is unpacked in fragments: {}", bytes,
        device.causeOf(code));
    return nullptr;
  }
  return std::unique_ptr<Arriving>(
      new Arriving(device, record, ring.fragmentBytes, bytes, arrival));
}

Arriving::Arriving(const DeviceFunctions& device, const TransferRecord& record,
                   int64_t fragmentBytes, int64_t bytes, void* arrival)
    : device_(device),
      record_(record),
      fragmentBytes_(fragmentBytes),
      bytes_(bytes),
      fragments_((bytes + fragmentBytes - 1) / fragmentBytes),
      arrival_(arrival),
      changed_(now()) {}

Arriving::~Arriving() {
  if (!over()) {
    (void)end();
  }
}

bool Arriving::isThere(int64_t fragment) const {
  return record_.ahead[static_cast<std::size_t>(fragment % kSlots)].load(
             std::memory_order_acquire) == static_cast<std::uint64_t>(fragment) + 1;
}

Status Arriving::end() {
  const adsmError_t code = device_.arrivals->end(std::exchange(arrival_, nullptr), &unpacked_);
  return code == adsmSuccess
             ? Status()
             : fail(code, "exchange: the device has not unpacked a message of {} bytes: {}", bytes_,
                    device_.causeOf(code));
}

Result<int64_t> Arriving::advance() {
  const int64_t before = unpacked_ + there_;
  while (!noMore_ && there_ < std::min(fragments_, unpacked_ + kSlots) && isThere(there_)) {
    ++there_;
  }
  unpacked_ = device_.arrivals->arrived(arrival_, there_);
  const int64_t time = now();
  if (unpacked_ + there_ != before) {
    changed_ = time;
  }
  const int64_t waited = time - changed_;
  if (!noMore_ && there_ == unpacked_ && there_ != fragments_ &&
      waited > (there_ == 0 ? device_.arrivals->mostWaitForFirst : device_.arrivals->mostWait)) {
    noMore_ = true;
    device_.arrivals->noMore(arrival_);
  }
  if (unpacked_ == fragments_) {
    GMAC_TRY(end());
  } else if (noMore_ || waited > kAskEvery) {
    changed_ = noMore_ || there_ == unpacked_ ? changed_ : time;
    if (device_.arrivals->over(arrival_)) {
      GMAC_TRY(end());
      log(LogLevel::kInfo, "exchange: {} of {} fragments of a message are unpacked one by one",
          fragments_ - unpacked_, fragments_);
    }
  }
  return std::min(unpacked_ * fragmentBytes_, bytes_);
}

}  // namespace gmac::exchange::internal
