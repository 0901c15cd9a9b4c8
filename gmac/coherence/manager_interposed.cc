// SPDX-License-Identifier: Apache-2.0
//
// What coherence.h asks: holds for system calls, and device work of the application's own.
#include <algorithm>

#include "gmac/coherence/access_scope.h"
#include "gmac/coherence/manager.h"
#include "gmac/coherence/manager_lock.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {

bool Manager::touchesShared(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + std::min(bytes, UINTPTR_MAX - begin);
  if (bytes == 0 || !shared_ranges::mayBeShared(address, bytes)) {
    return false;
  }
  Lock lock(*this);
  const Object* object = index_.firstEndingAfter(address);
  return object != nullptr && reinterpret_cast<std::uintptr_t>(object->address()) < end;
}

std::size_t Manager::sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept {
  const auto* begin = static_cast<const std::byte*>(address);
  Lock lock(*this);
  const Object* object = index_.firstEndingAfter(address);
  *shared = object != nullptr && object->address() <= begin;
  if (*shared) {
    return std::min(bytes, static_cast<std::size_t>(object->end() - begin));
  }
  return object == nullptr ? bytes
                           : std::min(bytes, static_cast<std::size_t>(object->address() - begin));
}

Status Manager::hold(const void* address, std::size_t bytes, coherence::HoldFor purpose) {
  if (forked() || bytes == 0) {
    return {};
  }
  const bool write = purpose != coherence::HoldFor::kRead;
  const Intent intent = write ? Intent::kWrite : Intent::kRead;
  const auto* const begin = static_cast<const std::byte*>(address);
  const auto* const end = begin + bytes;
  const std::byte* position = begin;
  const AccessScope access(address);
  const Walk walk(*this);
  Lock lock(*this);
  while (position < end) {
    Object* object = index_.firstEndingAfter(position);
    if (object == nullptr || object->address() >= end) {
      return {};
    }
    if (object->closing) {
      position = object->end();
      continue;
    }
    position = std::max<const std::byte*>(position, object->address());
    const BlockIndex index = object->indexOf(position);
    Block& block = (*object)[index];
    const auto offset = static_cast<std::size_t>(position - object->address());
    const ByteRange held{offset, std::min(offset + static_cast<std::size_t>(end - position),
                                          object->offsetOf(index + 1))};
    if (!object->usable(held, intent)) {
      const BlockRange whole =
          wholeBlocks(*object, position, std::min<const std::byte*>(end, object->end()));
      const bool overwrites = purpose == coherence::HoldFor::kOverwrite && index >= whole.begin &&
                              index < whole.end &&
                              (block.state == State::kInvalid || isPart(block.state));
      auto step = overwrites ? openForOverwriting(lock, *object, index)
                             : openBlock(lock, *object, held, write);
      if (!step.ok()) {
        const Status failed = step.status();
        const Free free(lock);
        unhold(begin, static_cast<std::size_t>(position - begin));
        return failed;
      }
      if (*step == Step::kRetry) {
        continue;
      }
    }
    ++block.holds;
    ++object->holds;
    position = object->address() + object->offsetOf(index + 1);
  }
  return {};
}

void Manager::unhold(const void* address, std::size_t bytes) {
  if (forked() || bytes == 0) {
    return;
  }
  const auto* const begin = static_cast<const std::byte*>(address);
  const auto* const end = begin + bytes;
  const std::byte* position = begin;
  const Walk walk(*this);
  Lock lock(*this);
  while (Object* object = position < end ? index_.firstEndingAfter(position) : nullptr) {
    if (object->address() >= end) {
      break;
    }
    position = std::max<const std::byte*>(position, object->address());
    const BlockIndex index = object->indexOf(position);
    Block& block = (*object)[index];
    if (block.holds > 0) {
      --block.holds;
      --object->holds;
    }
    position = object->address() + object->offsetOf(index + 1);
  }
  // An eviction that fails here is tried again at the next fault or call, where its error can be
  // told.
  (void)evictExcess();
  changed();
}

Status Manager::beginDeviceWork(accel::NativeStream stream,
                                std::span<const coherence::DeviceRange> ranges) {
  const Timed timed(Phase::kLaunch);
  if (forked()) {
    return fail(adsmErrorForked, "device work in a child of fork");
  }
  const Walk walk(*this);
  Lock lock(*this);
  bool onlyReads = false;
  accel::Ticket stillOpen;
  for (bool again = true; again;) {
    again = false;
    // Calls were made before; the application's streams know nothing of their queue.
    GMAC_TRY(waitFor(lock, ledger_.lastCall(), &again));
    if (again) {
      continue;
    }
    if (!ranges.empty()) {
      GMAC_TRY(waitForHostFunctions(lock, &again));
      if (again) {
        continue;
      }
    }
    if (stream != coherence::kForeignStream && !ledger_.hasRoomFor(stream)) {
      GMAC_TRY(waitFor(lock, ledger_.oldestStreamWork(), &again));
      again = true;
      continue;
    }
    // Asked anew after every wait: another thread may have come first.
    if (deviceWork_) {
      waitForChange(lock);
      again = true;
      continue;
    }
    for (auto next = open_.begin(); next != open_.end() && !again;) {
      Object& object = *next;
      ++next;
      for (const coherence::DeviceRange& range : ranges) {
        const auto* begin = static_cast<const std::byte*>(range.address);
        const auto* end = begin + range.bytes;
        if (object.closing ||
            (begin == nullptr ? !object.usedBy(stream)
                              : end <= object.address() || begin >= object.end())) {
          continue;
        }
        if (object.busy > 0 || object.holds > 0) {
          object.busy > 0 ? waitForTransit(lock) : waitForChange(lock);
          again = true;
          break;
        }
        BlockRange blocks = object.all();
        if (begin != nullptr) {
          begin = std::max<const std::byte*>(begin, object.address());
          end = std::min<const std::byte*>(end, object.end());
          blocks = object.covering(begin, static_cast<std::size_t>(end - begin));
        }
        const bool wasOpen = !object.open.empty();
        const bool writes = range.write && (begin != nullptr || !object.onlyRead);
        onlyReads |= !writes;
        const Event event = writes ? Event::kCall : Event::kCallRead;
        const Status released = releaseBlocks(object, blocks, event, &stillOpen);
        if (!released.ok()) {
          object.strict = true;
          if (!outOfMappings(released)) {
            return released;
          }
          GMAC_TRY(coarsen(lock));
          again = true;
          break;
        }
        if (wasOpen && object.open.empty()) {
          break;
        }
      }
    }
    if (!again && stream == coherence::kForeignStream) {
      GMAC_TRY(waitFor(lock, ledger_.lastFlush(), &again));
    }
  }
  if (stream != coherence::kForeignStream) {
    GMAC_TRY(accelerator_.fence(stream));
  }
  protocol_->called();
  deviceWork_ = std::this_thread::get_id();
  deviceStillOpen_ = stillOpen;
  ledger_.submitting();
  deviceReads_ =
      onlyReads || std::any_of(ranges.begin(), ranges.end(),
                               [](const coherence::DeviceRange& range) { return !range.write; });
  deviceNames_ = std::any_of(ranges.begin(), ranges.end(), [](const coherence::DeviceRange& range) {
    return range.address != nullptr;
  });
  return {};
}

Status Manager::endDeviceWork(accel::NativeStream stream, bool submitted) {
  const Walk walk(*this);
  Lock lock(*this);
  Status status;
  accel::Ticket reader;
  if (submitted && stream == coherence::kForeignStream) {
    stats().calls.add();
  } else if (submitted) {
    auto ticket = ledger_.submitted(stream, deviceReads_, deviceNames_);
    if (ticket.ok()) {
      stats().calls.add();
      if (deviceReads_ && protocol_->on(State::kDirty, Event::kCallRead).next == State::kDirty) {
        reader = *ticket;
      }
    } else {
      status = ticket.status();
    }
  }
  const Status ended = endWork(lock, reader);
  return status.ok() ? ended : status;
}

Status Manager::afterDeviceWait() {
  if (forked() || !protocol_->fetchesAtSync()) {
    return {};
  }
  const Walk walk(*this);
  Lock lock(*this);
  const bool pending =
      !accelerator_.done(ledger_.lastCall()) || ledger_.runningStreamWork().value != 0;
  return pending ? Status() : fetchAfterSync(lock);
}

}  // namespace gmac
