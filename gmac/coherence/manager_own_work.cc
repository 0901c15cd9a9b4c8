// SPDX-License-Identifier: Apache-2.0
//
// Device work of the runtime's own (datatype engines): where bytes are current, and the release and
// the tickets of work on the kernel queue.
#include <algorithm>
#include <utility>

#include "gmac/coherence/manager.h"
#include "gmac/coherence/manager_lock.h"
#include "gmac/observe/stats.h"

namespace gmac {

std::size_t Manager::currentPrefix(const void* address, std::size_t bytes,
                                   coherence::Current* current) noexcept {
  using coherence::Current;
  const auto* const begin = static_cast<const std::byte*>(address);
  Lock lock(*this);
  Object* const object = index_.firstEndingAfter(begin);
  if (object == nullptr || object->address() > begin) {
    *current = Current::kNotShared;
    return object == nullptr ? bytes
                             : std::min(bytes, static_cast<std::size_t>(object->address() - begin));
  }
  const auto most = std::min(bytes, static_cast<std::size_t>(object->end() - begin));
  const auto first = static_cast<std::size_t>(begin - object->address());
  // Where the bytes from an offset on are current, and where that may change.
  const auto currentAt = [&](std::size_t offset, std::size_t* end) {
    const BlockIndex i{offset / object->blockBytes};
    const State state = (*object)[i].state;
    const ByteRange onCpu = object->currentOf(i);
    if (onCpu.begin <= offset && offset < onCpu.end) {
      *end = onCpu.end;
      return isDirty(state) ? Current::kCpu : Current::kBoth;
    }
    *end = offset < onCpu.begin ? onCpu.begin : object->offsetOf(i + 1);
    return Current::kAccelerator;
  };
  std::size_t stop = 0;
  // Outside `open` all are Invalid: an object that the CPU has not touched takes one step.
  if (object->open.empty() || object->indexOf(begin) >= object->open.end) {
    *current = Current::kAccelerator;
    return most;
  }
  *current = currentAt(first, &stop);
  if (object->indexOf(begin) < object->open.begin) {
    stop = object->offsetOf(object->open.begin);
  }
  for (std::size_t next = 0; stop < first + most && currentAt(stop, &next) == *current;) {
    stop = next;
  }
  return std::min(most, stop - first);
}

std::ptrdiff_t Manager::deviceDistance(const void* address) noexcept {
  if (safeObjects_.load() == 0) {
    return 0;
  }
  Lock lock(*this);
  const Object* const object = index_.find(address);
  return object == nullptr
             ? 0
             : static_cast<std::ptrdiff_t>(static_cast<std::uintptr_t>(object->device) -
                                           reinterpret_cast<std::uintptr_t>(object->address()));
}

// Releases what the work will use of the range, object by object.
Result<Manager::Step> Manager::releaseRange(Lock& lock, const coherence::DeviceRange& range,
                                            accel::Ticket* stillOpen) {
  const auto* position = static_cast<const std::byte*>(range.address);
  const auto* const end = position + range.bytes;
  while (position < end) {
    Object* const object = index_.firstEndingAfter(position);
    if (object == nullptr || object->address() >= end) {
      break;
    }
    position = std::max<const std::byte*>(position, object->address());
    const std::byte* const stop = std::min<const std::byte*>(end, object->end());
    if (!object->closing && !object->open.empty()) {
      if (object->busy > 0 || object->holds > 0) {
        object->busy > 0 ? waitForTransit(lock) : waitForChange(lock);
        return Step::kRetry;
      }
      const BlockRange blocks =
          object->covering(position, static_cast<std::size_t>(stop - position));
      const Status released =
          releaseBlocks(*object, blocks, range.write ? Event::kCall : Event::kCallRead, stillOpen);
      if (!released.ok()) {
        object->strict = true;
        if (!outOfMappings(released)) {
          return released;
        }
        GMAC_TRY(coarsen(lock));
        return Step::kRetry;
      }
    }
    position = stop;
  }
  return Step::kDone;
}

Status Manager::beginOwnWork(std::span<const coherence::DeviceRange> ranges) {
  const Timed timed(Phase::kLaunch);
  if (forked()) {
    return fail(adsmErrorForked, "device work in a child of fork");
  }
  const Walk walk(*this);
  Lock lock(*this);
  accel::Ticket stillOpen;
  for (bool again = true; again;) {
    again = false;
    // Work on the application's own streams was submitted before; the kernel queue knows nothing of
    // it.
    GMAC_TRY(waitFor(lock, ledger_.runningStreamWork(), &again));
    if (!again) {
      GMAC_TRY(waitForHostFunctions(lock, &again));
    }
    if (!again && deviceWork_) {
      waitForChange(lock);
      again = true;
    }
    for (std::size_t i = 0; i < ranges.size() && !again; ++i) {
      auto step = releaseRange(lock, ranges[i], &stillOpen);
      if (!step.ok()) {
        return step.status();
      }
      again = *step == Step::kRetry;
    }
  }
  protocol_->called();
  deviceWork_ = std::this_thread::get_id();
  deviceStillOpen_ = stillOpen;
  return {};
}

Status Manager::endOwnWork(std::span<const coherence::DeviceRange> ranges, accel::Ticket ticket) {
  const Walk walk(*this);
  Lock lock(*this);
  bool reads = false;
  if (ticket.value != 0) {
    ledger_.called(ticket);
    for (const coherence::DeviceRange& range : ranges) {
      const auto* position = static_cast<const std::byte*>(range.address);
      const auto* const end = position + range.bytes;
      for (Object* object = index_.firstEndingAfter(position);
           object != nullptr && object->address() < end;
           object = index_.firstEndingAfter(object->end())) {
        (range.write ? object->lastWrite : object->lastRead) = ticket.value;
        reads |= !range.write;
      }
    }
  }
  const bool undetected =
      reads && protocol_->on(State::kDirty, Event::kCallRead).next == State::kDirty;
  return endWork(lock, undetected ? ticket : kDone);
}

// Other threads may go on; the caller's waits for what its writes, which go undetected
// (batch-update), would reach: the copies of what it released, and the work that reads.
Status Manager::endWork(Lock& lock, accel::Ticket reader) {
  const accel::Ticket stillOpen = std::exchange(deviceStillOpen_, {});
  deviceWork_.reset();
  changed();
  const Status arrived = waitForArrival(lock, stillOpen);
  const Status read = waitForArrival(lock, reader);
  return arrived.ok() ? read : arrived;
}

}  // namespace gmac
