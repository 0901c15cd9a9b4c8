// SPDX-License-Identifier: Apache-2.0
#include "exchange/device_reads.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace gmac::exchange::internal {
namespace {

using datatype::Layout;
using std::int64_t;

constexpr auto kSlots = static_cast<int64_t>(TransferRecord::kAheadSlots);
// Copies under way at a time: the next one begins when one ends.
constexpr std::size_t kCopies = 2;
// The longest wait for a sender that packs nothing: a fifth of the time of the shortest such
// message. Nanoseconds.
constexpr int64_t kMostWait = 30'000;

int64_t now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

DeviceReads::DeviceReads(const DeviceFunctions& device, TransferRecord& record,
                         const std::optional<AheadRing>& ring, const Layout& to, std::byte* target,
                         const Layout& from, const std::byte* source, int64_t arrivalLeast)
    : device_(device),
      record_(record),
      ring_(ring),
      to_(to),
      target_(target),
      from_(from),
      source_(source),
      mayArrive_(ring.has_value() && from.bytes() >= arrivalLeast) {}

DeviceReads::~DeviceReads() { drain(); }

void DeviceReads::drain() {
  arriving_.reset();
  for (const Copy& copy : copies_) {
    (void)device_.end(copy.event);
  }
  copies_.clear();
}

Result<int64_t> DeviceReads::advance() {
  if (std::exchange(mayArrive_, false)) {
    arriving_ = Arriving::begin(device_, record_, *ring_, to_, target_, from_.bytes());
  }
  if (arriving_ != nullptr) {
    return advanceArriving();
  }
  Result<int64_t> arrived = complete();
  GMAC_TRY(arrived.status());
  while (copies_.size() < kCopies && submitted_ < from_.bytes()) {
    const Result<bool> submitted = ring_.has_value() ? submitFragment() : submitAll();
    GMAC_TRY(submitted.status());
    if (!*submitted) {
      break;
    }
  }
  return *arrived > 0 ? arrived : complete();
}

Result<int64_t> DeviceReads::advanceArriving() {
  const int64_t before = arrived_;
  const Result<int64_t> unpacked = arriving_->advance();
  if (!unpacked.ok()) {
    arriving_.reset();
    return unpacked;
  }
  note(*unpacked - before);
  if (arriving_->over()) {
    arriving_.reset();
    submitted_ = arrived_;
    waited_ = kMostWait;  // for the sender, as that has
    arrivedByOneKernel_ = arrived_ == from_.bytes();
  }
  return arrived_ - before;
}

// So many more bytes have arrived.
void DeviceReads::note(int64_t arrived) {
  arrived_ += arrived;
  if (arrived != 0) {
    record_.aheadTaken.store(static_cast<std::uint64_t>(arrived_), std::memory_order_release);
  }
}

// Ends copies that are over.
Result<int64_t> DeviceReads::complete() {
  int64_t arrived = 0;
  while (!copies_.empty() && device_.over(copies_.front().event)) {
    const Copy copy = copies_.front();
    copies_.pop_front();
    if (const adsmError_t code = device_.end(copy.event); code != adsmSuccess) {
      return fail(code, "exchange: the device has not copied {} bytes of a message: {}", copy.bytes,
                  device_.causeOf(code));
    }
    arrived += copy.bytes;
  }
  note(arrived);
  return arrived;
}

Result<bool> DeviceReads::submitAll() {
  GMAC_TRY(copy(from_, source_, from_.bytes()));
  return true;
}

Result<bool> DeviceReads::submitFragment() {
  const int64_t number = submitted_ / ring_->fragmentBytes;
  const int64_t end = std::min((number + 1) * ring_->fragmentBytes, from_.bytes());
  const int64_t slot = number % kSlots;
  if (record_.ahead[static_cast<std::size_t>(slot)].load(std::memory_order_acquire) ==
      static_cast<std::uint64_t>(number) + 1) {
    waitsSince_.reset();
    const int64_t bytes = end - submitted_;
    const auto line = Layout::make({}, {{-submitted_, submitted_ + bytes}});
    GMAC_TRY(line.status());
    GMAC_TRY(copy(*line, ring_->address + slot * ring_->fragmentBytes, bytes));
    return true;
  }
  // While one copy is under way there is time; and a little more, in all.
  if (!copies_.empty() && waited_ < kMostWait) {
    return false;
  }
  if (waited_ < kMostWait) {
    const int64_t time = now();
    waited_ += time - waitsSince_.value_or(time);
    waitsSince_ = time;
    if (waited_ < kMostWait) {
      return false;
    }
  }
  GMAC_TRY(copy(from_, source_, end - submitted_));
  return true;
}

Status DeviceReads::copy(const Layout& from, const std::byte* source, int64_t bytes) {
  void* event = nullptr;
  if (const adsmError_t code = device_.begin(to_, target_, from, source, submitted_, bytes, &event);
      code != adsmSuccess) {
    return fail(code, "exchange: the device has not copied {} bytes of a message: {}", bytes,
                device_.causeOf(code));
  }
  copies_.push_back({event, bytes});
  submitted_ += bytes;
  return {};
}

}  // namespace gmac::exchange::internal
