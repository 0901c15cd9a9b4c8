// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/arrivals.h"

#include <algorithm>
#include <new>
#include <vector>

#include "gmac/accel/devices.h"
#include "gmac/datatype/engine/placement.h"
#include "gmac/datatype/engine/submit_using.h"
#include "gmac/datatype/layout/touched.h"
#include "gmac/datatype/plan/arrival_plan.h"

namespace gmac::datatype {
namespace {

// How long the kernel waits for the first fragment, which is being packed, and then for another
// one; and whatever is ordered after it with it. Nanoseconds.
constexpr std::uint64_t kFirstPatience = 100'000;
constexpr std::uint64_t kPatience = 1'000'000;

}  // namespace

Arrivals::~Arrivals() {
  if (words_ != nullptr) {
    device_.accelerator().freePinned(words_, sizeof(ArrivalWords));
    device_.free(state_, sizeof(ArrivalState));
  }
}

Status Arrivals::makeMemory() {
  if (words_ != nullptr) {
    return {};
  }
  auto pinned = device_.accelerator().allocatePinned(sizeof(ArrivalWords));
  GMAC_TRY(pinned.status());
  const auto state = device_.allocate(sizeof(ArrivalState));  // reads as 0
  Status made = state.status();
  // (Blocks count there: over a bus that might not be atomic.)
  accel::Devices* const devices = device_.accelerator().devices();
  if (made.ok() && devices != nullptr && devices->homeOf(accel::DeviceAddress{*state}) != 0) {
    device_.free(*state, sizeof(ArrivalState));
    made = fail(adsmErrorNotSupported, "{} has no room for the counters of arriving messages",
                device_.accelerator().deviceName());
  }
  if (!made.ok()) {
    device_.accelerator().freePinned(*pinned, sizeof(ArrivalWords));
    return made;
  }
  words_ = new (*pinned) ArrivalWords{};
  state_ = *state;
  return {};
}

Status Arrivals::begin(const Operation& unpack, std::int64_t fragmentBytes, std::uint32_t slots) {
  if (used_.exchange(true, std::memory_order_acquire)) {
    return fail(adsmErrorNotSupported, "the device unpacks another message while it arrives");
  }
  const Status launched = launch(unpack, fragmentBytes, slots);
  if (!launched.ok() && !abandoned_) {
    used_.store(false, std::memory_order_release);
  }
  return launched;
}

Status Arrivals::launch(const Operation& unpack, std::int64_t fragmentBytes, std::uint32_t slots) {
  const Placement placement(device_, unpack);
  const auto parts = placement.portions();
  const bool onDevice = placement.packedOnDevice() &&
                        std::all_of(parts.begin(), parts.end(),
                                    [&](const Portion& p) { return placement.onDevice(p); });
  ArrivalJob job;
  job.bytes = unpack.bytes;
  if (multiprocessors_ != 0 && onDevice && device_.accelerator().kernelsReachPinned()) {
    job.strided = placement.deviceStrided();
    job.ring = placement.devicePacked(0);
    job.fragmentBytes = fragmentBytes;
    job.slots = slots;
    job.firstPatience = kFirstPatience;
    job.patience = kPatience;
  }
  auto made = makeArrivalLaunch(unpack.prepared->plan(), job);
  if (!made) {
    return fail(adsmErrorNotSupported,
                "no kernel of {} unpacks {} bytes while they arrive in {} slots of {}",
                device_.accelerator().deviceName(), unpack.bytes, slots, fragmentBytes);
  }
  GMAC_TRY(makeMemory());
  made->params.words = reinterpret_cast<std::uint64_t>(words_);
  made->params.state = state_;
  *words_ = ArrivalWords{};
  slots_ = slots;
  fragments_ = made->params.fragments;
  there_ = unpacked_ = 0;
  last_ = false;
  plain_ = placement.stridedPlain();
  std::vector<coherence::DeviceRange> ranges;
  if (placement.stridedShared()) {
    for (const Bounds& range : touched(unpack.layout(), 0, unpack.bytes, kReleaseGap)) {
      ranges.push_back(
          {unpack.strided + range.first, static_cast<std::size_t>(range.last - range.first), true});
    }
  }
  bool submitted = false;
  auto ticket = submitUsing(device_, unpack.stream, ranges, [&](accel::Commands& commands) {
    const Status launched = device_.launch(commands, *made, multiprocessors_ + 1);
    submitted = launched.ok();
    return launched;
  });
  if (!ticket.ok() && submitted) {
    noMore();
    abandoned_ = true;
  }
  GMAC_TRY(ticket.status());
  ticket_ = *ticket;
  return {};
}

std::int64_t Arrivals::countUnpacked() {
  while (unpacked_ < fragments_ &&
         std::atomic_ref(words_->unpacked[unpacked_ % slots_]).load(std::memory_order_acquire) ==
             unpacked_ + 1) {
    ++unpacked_;
  }
  return unpacked_;
}

std::int64_t Arrivals::arrived(std::int64_t fragments) {
  (void)countUnpacked();
  // (A fragment that is said to be there before its slot is free would be counted with another.)
  if (!last_) {
    tell(static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(fragments, 0, std::min(fragments_, unpacked_ + slots_))));
  }
  return unpacked_;
}

void Arrivals::tell(std::uint32_t fragments) {
  there_ = fragments;
  std::atomic_ref(words_->arrived).store(arrivedWord(fragments, last_), std::memory_order_release);
}

void Arrivals::noMore() {
  last_ = true;
  tell(there_);
}

bool Arrivals::over() { return device_.accelerator().done(ticket_); }

Result<std::int64_t> Arrivals::end() {
  // (A kernel that has unpacked all looks at no word any more, and the next one runs after it.
  // Where the CPU or another device has the bytes, only its end says that they are there.)
  Status ended;
  if (countUnpacked() != fragments_ || !plain_) {
    noMore();
    ended = device_.accelerator().wait(ticket_);
  }
  const std::int64_t unpacked = countUnpacked();
  used_.store(false, std::memory_order_release);
  return ended.ok() ? Result<std::int64_t>(unpacked) : Result<std::int64_t>(ended);
}

}  // namespace gmac::datatype
