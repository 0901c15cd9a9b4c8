// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/work_door.h"

#include "gmac/coherence/parts.h"

namespace gmac {

WorkDoor::WorkDoor(Parts& parts, accel::Accelerator& accelerator) noexcept
    : WorkPort(accelerator.nativeStreams()), parts_(parts), accelerator_(accelerator) {}

Status WorkDoor::beginDeviceWork(accel::NativeStream stream,
                                 std::span<const coherence::DeviceRange> ranges) {
  if (parts_.forked()) {
    return fail(adsmErrorForked, "device work in a child of fork");
  }
  // (What a launch lists is for kernels, which reach memory of all kinds.)
  const auto named = !ranges.empty() && ranges.front().listed ? ranges.first(1) : ranges;
  parts_.beforeWork();
  for (;;) {
    const bool whole = joined(named);
    parts_.movedPieces.workBegins();
    GMAC_TRY(parts_.gathering.reaching(stream, ranges, [&] {
      parts_.spilling.beforeWork();
      return parts_.migration.beginDeviceWork(stream, ranges);
    }));
    // (Another thread's wait may have moved a page meanwhile. Where one cannot move back, the
    // driver says so.)
    if (!whole || parts_.zeroCopy.areWhole(named)) {
      return {};
    }
    GMAC_TRY(parts_.launches.endDeviceWork(stream, false));
  }
}

Status WorkDoor::endDeviceWork(accel::NativeStream stream, bool submitted) {
  return parts_.launches.endDeviceWork(stream, submitted);
}

Status WorkDoor::beginOwnWork(std::span<const coherence::DeviceRange> ranges) {
  if (parts_.forked()) {
    return fail(adsmErrorForked, "device work in a child of fork");
  }
  for (;;) {
    const bool whole = joined(ranges);
    GMAC_TRY(parts_.gathering.reachingOn(0, ranges,
                                         [&] { return parts_.migration.beginOwnWork(ranges); }));
    if (!whole || parts_.zeroCopy.areWhole(ranges)) {
      return {};
    }
    GMAC_TRY(parts_.launches.endOwnWork(ranges, accel::Ticket{}));
  }
}

Status WorkDoor::endOwnWork(std::span<const coherence::DeviceRange> ranges, accel::Ticket ticket) {
  return parts_.launches.endOwnWork(ranges, ticket);
}

bool WorkDoor::mayRepeat(bool names) const noexcept {
  return names ? parts_.repeated.mayName() : parts_.repeated.may();
}

bool WorkDoor::beginRepeated(accel::NativeStream stream, bool names) noexcept {
  if (parts_.forked() || parts_.gathering.separate() || parts_.spilling.isDue() ||
      !parts_.repeated.begin(stream, names)) {
    return false;
  }
  parts_.movedPieces.workBegins();
  return true;
}

void WorkDoor::endRepeated(accel::NativeStream stream, bool submitted) noexcept {
  parts_.repeated.end(stream, submitted);
}

void WorkDoor::markRepeated() noexcept {
  if (!parts_.forked() && parts_.repeated.anyToMark()) {
    parts_.repeated.note();
  }
}

void WorkDoor::noneRepeats() noexcept {
  if (!parts_.forked()) {
    parts_.repeated.note();
  }
}

void WorkDoor::keepWhole() noexcept {
  const auto keep = [&] {
    return parts_.gathering.still([&] { return parts_.zeroCopy.keepWhole(); });
  };
  if (!parts_.forked() && !keep() && parts_.makeRoomForOwnWork()) {
    (void)keep();
  }
}

void WorkDoor::keepWhole(std::span<const coherence::DeviceRange> ranges) noexcept {
  if (!parts_.forked()) {
    parts_.zeroCopy.endMoves();
    (void)joined(ranges);
  }
}

// ZeroCopy::joinIn(), for which there may have to be room on the device. (Every device reaches a
// page with one copy, and perhaps not what it is part of: so none moves while work begins.)
bool WorkDoor::joined(std::span<const coherence::DeviceRange> ranges) {
  const auto join = [&] {
    return parts_.gathering.still([&] { return parts_.zeroCopy.joinIn(ranges); });
  };
  return parts_.zeroCopy.areWhole(ranges) || join() || (parts_.makeRoomForOwnWork() && join());
}

coherence::DeviceWait WorkDoor::beforeDeviceWait(std::optional<accel::NativeStream> stream,
                                                 bool asks) {
  if (parts_.forked()) {
    return {};
  }
  // (A wait for a context is not one for the others' streams.)
  const bool whole = !stream && knowsOtherContexts();
  coherence::DeviceWait wait = parts_.repeated.waitBegins(whole ? accel::kForeignStream : stream);
  if (wait.skipped) {
    return wait;
  }
  if (!wait.rounds.atEnd && wait.launches == 0 && parts_.repeated.marksForWait()) {
    parts_.repeated.note();
  }
  if (asks || wait.rounds.atEnd) {
    wait.asks = true;
    wait.stream = stream;
  } else {
    parts_.acquire.beforeDeviceWait(stream, wait);
  }
  return wait;
}

Status WorkDoor::afterDeviceWait(const coherence::DeviceWait& wait) {
  coherence::DeviceWait ended = wait;
  if (parts_.forked() || parts_.repeated.waitEnded(ended)) {
    return {};
  }
  if (wait.asks) {
    parts_.acquire.beforeDeviceWait(wait.stream, ended);
  }
  parts_.listing.waited();
  GMAC_TRY(parts_.placement.afterWait());
  GMAC_TRY(parts_.acquire.afterDeviceWait(ended));
  parts_.afterWait();
  return {};
}

bool WorkDoor::fetchesAtWaits() const noexcept {
  return !parts_.forked() && parts_.blocks.protocol().fetchesAtSync();
}

void WorkDoor::otherContextEnds(std::uintptr_t context) noexcept {
  if (!parts_.forked()) {
    parts_.repeated.note();
    (void)parts_.gathering.leaveApart();
  }
  WorkPort::otherContextEnds(context);
}

void WorkDoor::hostFunctionQueued() { parts_.ledger.hostFunctionQueued(); }

void WorkDoor::hostFunctionEnded() { parts_.ledger.hostFunctionEnded(); }

void WorkDoor::streamDestroyed(accel::NativeStream stream) {
  if (!parts_.forked()) {
    parts_.promises.streamDestroyed(stream);
    parts_.zeroCopy.streamDestroyed(stream);
  }
}

void WorkDoor::endContext(bool workFinished) {
  if (!parts_.forked()) {
    parts_.allocation.endContext(workFinished);
    parts_.gathering.contextEnds();
  }
}

std::size_t WorkDoor::ofOneKind(const void* address, std::size_t bytes) noexcept {
  return parts_.lookup.ofOneKind(address, bytes);
}

}  // namespace gmac
