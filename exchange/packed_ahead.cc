// SPDX-License-Identifier: Apache-2.0
#include "exchange/packed_ahead.h"

#include <algorithm>
#include <utility>

#include "gmac/base/log.h"

namespace gmac::exchange::internal {
namespace {

using datatype::Layout;
using std::int64_t;

constexpr auto kSlots = static_cast<int64_t>(TransferRecord::kAheadSlots);

// Pieces from so many bytes on are loaded at nearly the link's rate.
constexpr int64_t kLongPiece = 64;
// Packs under way at a time: the next one begins when one ends.
constexpr std::size_t kPacks = 2;
// The fragments of a pack, where so many slots are free: a shorter one takes the device less time
// than the CPU takes to follow it with the next. The first ones are of one fragment, so that the
// receiver begins soon.
constexpr int64_t kMostOfPack = 2;
static_assert(kSlots % kMostOfPack == 0);

}  // namespace

std::unique_ptr<PackedAhead> PackedAhead::begin(const std::shared_ptr<Outbox>& outbox,
                                                const DeviceFunctions& device,
                                                TransferRecord& record, const Layout& layout,
                                                const std::byte* base, int receiver,
                                                const AheadOptions& options) {
  if (device.begin == nullptr || layout.bytes() < options.least ||
      layout.meanBlockBytes() >= kLongPiece) {
    return nullptr;
  }
  const auto room =
      outbox->takeDeviceRoom(receiver, static_cast<std::size_t>(options.fragment * kSlots));
  if (!room.has_value()) {
    return nullptr;
  }
  return std::unique_ptr<PackedAhead>(
      new PackedAhead(outbox, device, record, layout, base, options.fragment, *room));
}

PackedAhead::PackedAhead(std::shared_ptr<Outbox> outbox, const DeviceFunctions& device,
                         TransferRecord& record, const Layout& layout, const std::byte* base,
                         int64_t fragment, Outbox::DeviceRoom room)
    : outbox_(std::move(outbox)),
      device_(device),
      record_(record),
      layout_(layout),
      base_(base),
      fragmentBytes_(fragment),
      room_(room) {
  record_.aheadPiece = room.piece;
  record_.aheadOffset = room.offset;
  record_.aheadFragment = static_cast<std::uint64_t>(fragment);
  // (One alone, so that the receiver hears of the message soon.)
  (void)submit();
}

PackedAhead::~PackedAhead() {
  if (outbox_->inChild()) {
    return;
  }
  for (const Pack& pack : packs_) {
    (void)device_.end(pack.event);
  }
  outbox_->giveDeviceRoomBack(room_);
}

void PackedAhead::advance() {
  while (!packs_.empty() && device_.over(packs_.front().event)) {
    const Pack pack = packs_.front();
    packs_.pop_front();
    if (const adsmError_t code = device_.end(pack.event); code != adsmSuccess) {
      log(LogLevel::kInfo, "exchange: a message of {} bytes is not packed ahead: {}",
          layout_.bytes(), device_.causeOf(code));
      failed_ = true;
      continue;
    }
    for (std::uint64_t number = pack.first; !failed_ && number < pack.end; ++number) {
      record_.ahead[number % TransferRecord::kAheadSlots].store(number + 1,
                                                                std::memory_order_release);
    }
  }
  while (!failed_ && packs_.size() < kPacks && submit()) {
  }
}

// The next fragments that the receiver needs, if their slots are free.
bool PackedAhead::submit() {
  const auto taken = static_cast<int64_t>(record_.aheadTaken.load(std::memory_order_acquire));
  if (taken < 0 || taken > layout_.bytes()) {
    return false;  // (That is its own harm.)
  }
  // (What it has begun to load itself it goes on to load.)
  next_ =
      std::max(next_, static_cast<std::uint64_t>((taken + fragmentBytes_ - 1) / fragmentBytes_));
  const int64_t offset = static_cast<int64_t>(next_) * fragmentBytes_;
  const auto number = static_cast<int64_t>(next_);
  const int64_t slot = number % kSlots;
  // (Packs begin where they do not pass the ring's end.)
  const int64_t count = std::min(number == 0 ? 1 : kMostOfPack - number % kMostOfPack,
                                 (taken + fragmentBytes_ * kSlots - offset) / fragmentBytes_);
  if (offset >= layout_.bytes() || count <= 0) {
    return false;
  }
  const int64_t bytes = std::min(fragmentBytes_ * count, layout_.bytes() - offset);
  const auto line = Layout::make({}, {{-offset, offset + bytes}});
  void* event = nullptr;
  const auto begin = device_.beginPack != nullptr ? device_.beginPack : device_.begin;
  const adsmError_t code = line.ok() ? begin(*line, room_.address + slot * fragmentBytes_, layout_,
                                             base_, offset, bytes, &event)
                                     : line.status().code();
  if (code != adsmSuccess) {
    log(LogLevel::kInfo, "exchange: a message of {} bytes is not packed ahead: {}", layout_.bytes(),
        line.ok() ? device_.causeOf(code) : lastErrorText());
    failed_ = true;
    return false;
  }
  const std::uint64_t end =
      next_ + static_cast<std::uint64_t>((bytes + fragmentBytes_ - 1) / fragmentBytes_);
  packs_.push_back({event, next_, end});
  next_ = end;
  return true;
}

}  // namespace gmac::exchange::internal
