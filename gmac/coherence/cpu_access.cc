// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/cpu_access.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "gmac/base/log.h"
#include "gmac/base/thread_number.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/concurrent_objects.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/listing_policy.h"
#include "gmac/coherence/policies/coarsening.h"
#include "gmac/coherence/prompt_waits.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {

Result<Step> CpuAccess::open(Lock& lock, Object& object, ByteRange bytes, Intent intent) {
  auto room = coarsening_.leaveMappings(lock);
  if (!room.ok() || *room == Step::kRetry) {
    return room;
  }
  auto step = blocks_.open(lock, object, bytes, intent);
  if (!step.ok() && lock.outOfMappings(step.status())) {
    const Result<bool> refused = blocks_.refusePart(lock, object, bytes, intent);
    if (refused.ok() && *refused) {
      return Step::kRetry;
    }
    return coarsening_.retry(lock, refused.ok() ? step.status() : refused.status());
  }
  return step;
}

// ---- Faults

// The lock may have been held by a thread that this process does not have: _Fork() and clone() run
// no fork handlers.
void CpuAccess::tellOfFaultInChild(void* address) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    log(LogLevel::kError,
        "a child of fork touched {}, where shared objects are: children have no shared objects",
        address);
  } else if (const Object* const object = index_.find(address);
             object != nullptr && !object->closing) {
    log(LogLevel::kError,
        "a child of fork touched shared object {} at {}: children have no shared objects",
        shown(object->address()), address);
  }
}

void CpuAccess::found(Fault& fault, Object& object, Intent intent) {
  const std::uint64_t newest = ledger_.newestWorkWith(object);
  fault.counts = newest != object.born;
  if (promptWaits_.on() && object.isZeroCopy() && newest == ledger_.newestWork()) {
    promptWaits_.accesses(fault.begun, threadNumber());
  }
  fault.beside = fault.counts && !listing_.watches() && !listing_.settled() &&
                 ledger_.runningStreamWork().value != 0;
  if (listing_.on() && object.users == Object::Users::kEverybody &&
      ledger_.runningStreamWork().value != 0 && ledger_.writersDone(object) &&
      (intent == Intent::kRead || ledger_.readersDone(object))) {
    listing_.passed(ledger_.newestWork());
  }
}

void CpuAccess::ends(const Fault& fault) {
  if (!fault.counts && !listing_.watches()) {
    return;
  }
  const ListingPolicy::Moment moment{ledger_.times().now(), stats().calls.value()};
  listing_.watches() ? listing_.tick(moment)
                     : listing_.accessed(moment.now - fault.begun, fault.beside, moment);
  coherence::letLaunchesList(listing_.on());
}

bool CpuAccess::onFault(void* address, bool write) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const Timed timed(Phase::kSignal);
  const TraceSpan span("fault", write ? "write fault" : "read fault", {"address", at});
  const Intent intent = write ? Intent::kWrite : Intent::kRead;
  const auto byteOf = [&](const Object& object) {
    const auto offset =
        static_cast<std::size_t>(static_cast<const std::byte*>(address) - object.address());
    return ByteRange{offset, offset + 1};
  };
  const Walk walk(blocks_);
  Fault fault{.begun = ledger_.times().now()};
  Lock lock(mutex_, address);
  Step step = Step::kRetry;
  for (bool first = true; step == Step::kRetry; first = false) {
    Object* object = index_.find(address);
    if (object == nullptr || object->closing) {
      return false;
    }
    if (first) {
      (write ? stats().writeFaults : stats().readFaults).add();
      found(fault, *object, intent);
    } else if (object->usable(byteOf(*object), intent)) {
      break;  // opened by another thread while this one waited
    }
    if (concurrent_.joinAtAccess(lock, *object, promptWaits_.on() && promptWaits_.may())) {
      break;
    }
    std::byte* const base = object->address();
    auto opened = open(lock, *object, byteOf(*object), intent);
    if (!opened.ok()) {
      object = index_.find(base);
      if (object == nullptr) {
        return false;
      }
      endFailedAccess(*object, object->indexOf(address), write ? "a write fault" : "a read fault");
    }
    step = *opened;
  }
  ends(fault);
  residency_.served();
  lock.leaveSignalsToReturn();
  return true;
}

// An access that waits for a kernel reports the kernel's crash; the access itself is named only as
// the place where the crash was noticed.
void endFailedAccess(const Object& object, BlockIndex index, const char* operation) noexcept {
  if (const adsmError_t error = lastErrorCode();
      error == adsmErrorKernel || error == adsmErrorAcceleratorLost) {
    log(LogLevel::kError, "{} (noticed by {} that waited for it: object {}, {} bytes, block {})",
        lastErrorText(), operation, shown(object.address()), object.bytes(),
        static_cast<std::size_t>(index));
    std::abort();
  }
  log(LogLevel::kError, "object {} ({} bytes), block {}: {} failed: {}", shown(object.address()),
      object.bytes(), static_cast<std::size_t>(index), operation, lastErrorText());
  std::abort();
}

// ---- Holds

Status CpuAccess::hold(const void* address, std::size_t bytes, coherence::HoldFor purpose) {
  if (bytes == 0) {
    return {};
  }
  const Intent intent = purpose != coherence::HoldFor::kRead ? Intent::kWrite : Intent::kRead;
  const auto* const begin = static_cast<const std::byte*>(address);
  const auto* const end = begin + bytes;
  const std::byte* position = begin;
  const Walk walk(blocks_);
  Lock lock(mutex_, address);
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
    const Block& block = (*object)[index];
    const auto offset = static_cast<std::size_t>(position - object->address());
    const ByteRange held{offset, std::min(offset + static_cast<std::size_t>(end - position),
                                          object->offsetOf(index + 1))};
    if (!object->usable(held, intent)) {
      const BlockRange whole =
          object->wholeBlocks(position, std::min<const std::byte*>(end, object->end()));
      const bool overwrites = purpose == coherence::HoldFor::kOverwrite && index >= whole.begin &&
                              index < whole.end &&
                              (block.state == State::kInvalid || isPart(block.state));
      auto step =
          overwrites ? openForOverwriting(lock, *object, index) : open(lock, *object, held, intent);
      if (!step.ok()) {
        const Status failed = step.status();
        {
          const Free free(lock);
          unhold(begin, static_cast<std::size_t>(position - begin));
        }
        // Blocks that it held could not be joined to make room for mappings: try again now.
        if (position > begin && coarsening_.retry(lock, failed).ok()) {
          position = begin;
          continue;
        }
        return failed;
      }
      if (*step == Step::kRetry) {
        continue;
      }
    }
    blocks_.hold(*object, index);
    lock.turnEnds();
    position = object->address() + object->offsetOf(index + 1);
  }
  return {};
}

Result<Step> CpuAccess::openForOverwriting(Lock& lock, Object& object, BlockIndex index) {
  auto room = coarsening_.leaveMappings(lock);
  if (!room.ok() || *room == Step::kRetry) {
    return room;
  }
  auto step = blocks_.openUnfetched(lock, object, index);
  return step.ok() ? step : coarsening_.retry(lock, step.status());
}

void CpuAccess::unhold(const void* address, std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  const Walk walk(blocks_);
  Lock lock(mutex_);
  index_.forEachIn(address, bytes, [&](Object& object, const auto* first, const auto* last) {
    const BlockRange held = object.covering(first, static_cast<std::size_t>(last - first));
    for (BlockIndex i = held.begin; i < held.end; i = i + 1) {
      blocks_.unhold(object, i);
    }
    return true;
  });
  // An eviction that fails here is tried again at the next store that opens a block, or call, where
  // its error can be told.
  (void)blocks_.evictExcess(lock);
  lock.changed();
}

// ---- Loans

bool CpuAccess::lend(const void* address, std::size_t bytes, coherence::Loan* loan) {
  if (bytes == 0) {
    return false;
  }
  const Walk walk(blocks_);
  const Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  Object* const object = index_.find(address);
  if (object == nullptr || object->closing ||
      bytes > static_cast<std::size_t>(object->ownEnd(address) -
                                       static_cast<const std::byte*>(address))) {
    return false;
  }
  const auto begin =
      static_cast<std::size_t>(static_cast<const std::byte*>(address) - object->address());
  const std::optional<os::FilePlace> place = object->mirror->place(begin);
  if (!place) {
    return false;
  }
  const BlockRange range = object->covering(address, bytes);
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    const ByteRange part{std::max(begin, object->offsetOf(i)),
                         std::min(begin + bytes, object->offsetOf(i + 1))};
    if (!object->has(part)) {
      return false;
    }
  }
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    blocks_.hold(*object, i);
  }
  loans_.begins(coherence::Lent::kOnCpu);
  *loan = {place->file, place->fileNumber, place->fileBytes, place->offset,
           object->mirror->copyAddress(begin)};
  return true;
}

void CpuAccess::giveBack(const void* address, std::size_t bytes) {
  {
    const Lock lock(mutex_);
    loans_.ends(coherence::Lent::kOnCpu);
  }
  unhold(address, bytes);
}

}  // namespace gmac
