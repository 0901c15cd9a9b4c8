// SPDX-License-Identifier: Apache-2.0
//
// Calls and syncs: the release and the acquire (Gelado et al., section 3.3).
#include <algorithm>
#include <cstring>
#include <vector>

#include "gmac/coherence/manager.h"
#include "gmac/coherence/manager_lock.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {

namespace {

// A call's arguments, copied: each at an offset that suits any type.
class CallArguments {
 public:
  CallArguments(const adsmKernel_s& kernel, void** args) : pointers_(kernel.paramSizes.size()) {
    std::size_t bytes = 0;
    for (const std::size_t size : kernel.paramSizes) {
      bytes += os::roundUp(size, alignof(std::max_align_t));
    }
    bytes_.resize(bytes);
    std::size_t offset = 0;
    for (std::size_t i = 0; i < pointers_.size(); ++i) {
      pointers_[i] = bytes_.data() + offset;
      std::memcpy(pointers_[i], args[i], kernel.paramSizes[i]);
      offset += os::roundUp(kernel.paramSizes[i], alignof(std::max_align_t));
    }
  }
  void** pointers() { return pointers_.data(); }

 private:
  std::vector<std::byte> bytes_;
  std::vector<void*> pointers_;
};

}  // namespace

// Hands a range's blocks to the accelerator: one protection change per run of neighbours, one copy
// per run of dirty ones. No block of the range is busy or held. Blocks that stay writable
// (batch-update) must have arrived before the caller's thread goes on and writes them: `stillOpen`
// becomes the ticket that it has to wait for, once it has let go of the lock.
Status Manager::releaseBlocks(Object& object, BlockRange range, Event event,
                              accel::Ticket* stillOpen) {
  range = {std::max(range.begin, object.open.begin), std::min(range.end, object.open.end)};
  if (range.empty()) {
    return {};
  }
  // A call takes as long as blocks are open, not as long as there are blocks: groups that are
  // closed, or that have never been used, are looked at once. Whether all blocks of a group stay as
  // they are:
  const auto stays = [&](BlockIndex i) {
    return object.groupClosed(i) ||
           (!object.made(i) &&
            protocol_->on(object.rest(i), event) == Transition{Move::kNone, object.rest(i)});
  };
  const auto nextOf = [&](BlockIndex i) { return protocol_->on(object[i].state, event).next; };
  const bool closesAll = protocol_->on(State::kDirty, event).next == State::kInvalid;
  if (closesAll) {
    Status closed = close(object, range);
    if (!closed.ok() && outOfMappings(closed) && range.begin <= object.open.begin &&
        range.end >= object.open.end) {
      // Closing the whole object never splits a mapping.
      closed = protect(object, object.all(), os::Access::kNone);
    }
    GMAC_TRY(closed);
  } else {
    for (BlockIndex i = range.begin; i < range.end;) {
      if (stays(i)) {
        i = object.groupEnd(i);
        continue;
      }
      const os::Access access = accessOf(nextOf(i));
      if (access == accessOf(object[i].state)) {
        i = i + 1;
        continue;
      }
      if (isPart(object[i].state)) {
        GMAC_TRY(protect(object, object.windowOf(i), access));
        i = i + 1;
        continue;
      }
      BlockIndex end = i + 1;
      while (end < range.end && !stays(end) && !isPart(object[end].state) &&
             accessOf(nextOf(end)) == access) {
        end = end + 1;
      }
      GMAC_TRY(protect(object, BlockRange{i, end}, access));
      i = end;
    }
  }
  for (BlockIndex i = range.begin; i < range.end;) {
    if (stays(i)) {
      i = object.groupEnd(i);
      continue;
    }
    if (!object.made(i) && i == object.groupBegin(i) && object.groupEnd(i) <= range.end) {
      const Transition transition = protocol_->on(object.rest(i), event);
      if (transition.move == Move::kNone) {
        object.setRest(i, transition.next);
        i = object.groupEnd(i);
        continue;
      }
    }
    const Transition transition = protocol_->on(object[i].state, event);
    BlockIndex end = i + 1;
    while (!isPart(object[i].state) && end < range.end && object.made(end) &&
           protocol_->on(object[end].state, event) == transition &&
           object[end].state == object[i].state) {
      end = end + 1;
    }
    if (transition.move == Move::kFlush) {
      GMAC_TRY(flush(object, {i, end}, accel::Ticket{object.lastRead}));
      if (isDirty(transition.next)) {
        stillOpen->value = std::max(stillOpen->value, object[i].flushed);
      }
    }
    for (; i < end; i = i + 1) {
      Block& block = object[i];
      if (block.evicted || isDirty(block.state)) {
        protocol_->released(block);
      }
      setState(object, block, transition.next);
    }
  }
  if (closesAll && range.begin <= object.open.begin && range.end >= object.open.end) {
    setOpen(object, {});
  }
  return {};
}

// Whether a call of `kernel` that lists nothing uses the object, and how.
bool Manager::usesObject(const Object& object, adsmKernel_t kernel, Event* event) const {
  *event = Event::kCall;
  if (object.bindings.empty()) {
    return true;
  }
  for (const Binding& binding : object.bindings) {
    if (binding.kernel == kernel) {
      *event = (binding.access & adsmWrite) != 0 ? Event::kCall : Event::kCallRead;
      return true;
    }
  }
  return false;
}

Status Manager::call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                     std::optional<std::span<const adsmUse_t>> uses) {
  const Timed timed(Phase::kLaunch);
  const TraceSpan span("call", "call");
  if (forked()) {
    return fail(adsmErrorForked, "adsmCall({}) in a child of fork", kernel->name);
  }
  // Arguments and uses may themselves lie in shared objects: they are read before the lock is
  // taken.
  CallArguments arguments(*kernel, args);
  const std::vector<adsmUse_t> list =
      uses ? std::vector<adsmUse_t>(uses->begin(), uses->end()) : std::vector<adsmUse_t>();
  if (uses) {
    uses = std::span<const adsmUse_t>(list);
    for (const adsmUse_t& use : *uses) {
      GMAC_TRY(checkSmall("adsmCallUsing", use.object));
    }
  }
  const Walk walk(*this);
  Lock lock(*this);
  GMAC_TRY(load(lock, kernel));
  accel::Ticket stillOpen;
  const auto listed = [&](const Object& object, Event* event) {
    unsigned access = 0;
    for (const adsmUse_t& use : *uses) {
      if (use.object >= object.address() && use.object < object.end()) {
        access |= use.access;
      }
    }
    *event = (access & adsmWrite) != 0 ? Event::kCall : Event::kCallRead;
    return access != 0;
  };
  if (uses) {
    for (const adsmUse_t& use : *uses) {
      const Object* object = index_.find(use.object);
      if (object == nullptr || object->closing) {
        return fail(adsmErrorInvalidPointer, "adsmCallUsing({}): {} is in no shared object",
                    kernel->name, use.object);
      }
      if (use.access < adsmRead || use.access > adsmReadWrite) {
        return fail(
            adsmErrorInvalidValue,
            "adsmCallUsing({}): access {} of {}; allowed are adsmRead, adsmWrite, adsmReadWrite",
            kernel->name, static_cast<int>(use.access), use.object);
      }
    }
  }
  // Released one by one; whatever made us let the lock go, start over: what was released stays
  // released.
  for (bool again = true; again;) {
    again = false;
    // Work on the application's own streams was submitted before; the accelerator's queue knows
    // nothing of them.
    GMAC_TRY(waitFor(lock, ledger_.runningStreamWork(), &again));
    if (again) {
      continue;
    }
    if (deviceWork_) {
      waitForChange(lock);
      again = true;
      continue;
    }
    for (auto next = open_.begin(); next != open_.end();) {
      Object& object = *next;
      ++next;
      Event event{};
      if (object.closing || !(uses ? listed(object, &event) : usesObject(object, kernel, &event))) {
        continue;
      }
      if (object.busy > 0 || object.holds > 0) {
        object.busy > 0 ? waitForTransit(lock) : waitForChange(lock);
        again = true;
        break;
      }
      const Status released = releaseBlocks(object, object.all(), event, &stillOpen);
      if (!released.ok()) {
        object.strict = true;
        if (!outOfMappings(released)) {
          return released;
        }
        GMAC_TRY(coarsen(lock));
        again = true;
        break;
      }
    }
  }
  protocol_->called();
  auto launched = [&] {
    const Timed launching(Phase::kCudaLaunch);
    return accelerator_.launch(*kernel->loaded, shape, arguments.pointers());
  }();
  if (!launched.ok()) {
    return launched.status();
  }
  stats().calls.add();
  ledger_.called(*launched);
  const auto note = [&](Object& object, Event event) {
    (event == Event::kCall ? object.lastWrite : object.lastRead) = launched->value;
  };
  if (uses) {
    for (const adsmUse_t& use : *uses) {
      // Gone where the application freed it in another thread while the call waited.
      if (Object* object = index_.find(use.object)) {
        Event event{};
        (void)listed(*object, &event);
        note(*object, event);
      }
    }
  } else {
    ledger_.calledUnlisted(*launched);
    for (Object* object : bound_) {
      Event event{};
      if (usesObject(*object, kernel, &event)) {
        note(*object, event);
      }
    }
  }
  return waitForArrival(lock, stillOpen);
}

Status Manager::bind(const void* address, adsmKernel_t kernel, adsmAccess_t access) {
  if (access < adsmRead || access > adsmReadWrite) {
    return fail(adsmErrorInvalidValue,
                "adsmBind: access {}; allowed are adsmRead, adsmWrite, adsmReadWrite",
                static_cast<int>(access));
  }
  if (forked()) {
    return fail(adsmErrorForked, "adsmBind({}) in a child of fork", address);
  }
  Lock lock(*this);
  Object* object = index_.find(address);
  if (object == nullptr || object->closing) {
    return fail(adsmErrorInvalidPointer, "adsmBind: {} is in no shared object", address);
  }
  if (object->sharedBySmallObjects) {
    return fail(
        adsmErrorNotSupported,
        "adsmBind: {} is an object of at most {} bytes, which shares its pages with others; "
        "list it per call (adsmCallUsing) instead",
        address, SmallHeap::kLargestObject);
  }
  // Calls made before counted it among all objects.
  object->lastWrite =
      std::max(object->lastWrite, object->bindings.empty() ? ledger_.unlistedCall().value : 0);
  for (Binding& binding : object->bindings) {
    if (binding.kernel == kernel) {
      binding.access = static_cast<adsmAccess_t>(binding.access | access);
      return {};
    }
  }
  object->bindings.push_back({kernel, access});
  if (object->bindings.size() == 1) {
    bound_.push_back(object);
  }
  return {};
}

// Loads the kernel unless that has been done. A driver may take seconds to compile it, and may wait
// for the kernels that run.
Status Manager::load(Lock& lock, adsmKernel_t kernel) {
  while (kernel->loading) {
    waitForChange(lock);
  }
  if (kernel->loaded) {
    return {};
  }
  kernel->loading = true;
  auto loaded = [&] {
    const FreeForWork free(lock);
    return accelerator_.load(kernel->desc);
  }();
  kernel->loading = false;
  changed();
  if (!loaded.ok()) {
    return loaded.status();
  }
  kernel->loaded = std::move(*loaded);
  return {};
}

Status Manager::setConstant(adsmKernel_t kernel, const adsmConstant_t& constant, const void* data,
                            std::size_t bytes) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmSetConstant({}) in a child of fork", kernel->name);
  }
  // The data may lie in a shared object, which must not be touched by the driver or under the lock.
  const auto* begin = static_cast<const std::byte*>(data);
  const std::vector<std::byte> copy(begin, begin + bytes);
  Lock lock(*this);
  GMAC_TRY(load(lock, kernel));
  const FreeForWork free(lock);
  return accelerator_.setConstant(*kernel->loaded, constant, copy.data(), bytes);
}

Status Manager::forget(adsmKernel_t kernel) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmKernelDestroy({}) in a child of fork", kernel->name);
  }
  Lock lock(*this);
  for (Object* object : bound_) {
    std::erase_if(object->bindings, [&](const Binding& b) { return b.kernel == kernel; });
  }
  std::erase_if(bound_, [](const Object* object) { return object->bindings.empty(); });
  return kernel->loaded ? waitForPending(lock) : Status();
}

Status Manager::sync() {
  const Timed timed(Phase::kSync);
  const TraceSpan span("call", "sync");
  if (forked()) {
    return fail(adsmErrorForked, "adsmSync in a child of fork");
  }
  stats().syncs.add();
  const Walk walk(*this);
  Lock lock(*this);
  const Status status = waitForPending(lock);
  const Status fetched = fetchAfterSync(lock);
  return status.ok() ? fetched : status;
}

// The acquire of a protocol that fetches at a sync (batch-update).
Status Manager::fetchAfterSync(Lock& lock) {
  if (!protocol_->fetchesAtSync()) {
    return {};
  }
  const Transition transition = protocol_->on(State::kInvalid, Event::kSync);
  const std::byte* position = nullptr;
  while (Object* object = index_.firstEndingAfter(position)) {
    if (object->closing) {
      position = object->end();
      continue;
    }
    BlockIndex begin = object->all().begin;
    while (begin < object->all().end &&
           (object->blocks[static_cast<std::size_t>(begin)].state != State::kInvalid)) {
      begin = begin + 1;
    }
    if (begin == object->all().end) {
      position = object->end();
      continue;
    }
    if (object->busy > 0) {
      waitForChange(lock);
      continue;
    }
    BlockIndex end = begin;
    while (end < object->all().end && (*object)[end].state == State::kInvalid) {
      end = end + 1;
    }
    bool waited = false;
    GMAC_TRY(waitForWriters(lock, *object, &waited));
    if (waited) {
      continue;
    }
    const Status fetched = fetch(lock, *object, {begin, end}, transition.next);
    if (!fetched.ok()) {
      if (!outOfMappings(fetched)) {
        return fetched;
      }
      GMAC_TRY(coarsen(lock));
    }
  }
  return {};
}

}  // namespace gmac
