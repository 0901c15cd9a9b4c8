// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/ledger.h"

#include <algorithm>

namespace gmac {

std::optional<adsmAccess_t> DeviceUses::accessBy(adsmKernel_t kernel) const {
  if (bindings.empty()) {
    return adsmReadWrite;
  }
  for (const Binding& binding : bindings) {
    if (binding.kernel == kernel) {
      return binding.access;
    }
  }
  return std::nullopt;
}

Ledger::Ledger(accel::Accelerator& accelerator)
    : accelerator_(accelerator),
      native_(accelerator.nativeStreams()),
      devices_(accelerator.devices()),
      deviceCount_(accel::deviceCount(accelerator)),
      times_([&accelerator](accel::Ticket ticket) { return accelerator.done(ticket); }) {}

void Ledger::flushed(accel::Ticket ticket) { lastFlush_ = std::max(lastFlush_, ticket.value); }

void Ledger::calledBound(adsmKernel_t kernel, accel::Ticket ticket) {
  for (DeviceUses* const object : bound_) {
    if (const auto access = object->accessBy(kernel)) {
      used(*object, ticket, (*access & adsmWrite) != 0);
    }
  }
}

void Ledger::bind(DeviceUses& object, adsmKernel_t kernel, adsmAccess_t access) {
  // Calls made before counted it among all objects.
  if (object.bindings.empty()) {
    object.lastWriteWork = newestWriters(object).call;
    for (std::size_t device = 0; device < deviceCount_; ++device) {
      if (const accel::Ticket every = unlistedCall(object, device); !accelerator_.done(every)) {
        object.lastWrite[device] = lastWriter(object, device).value;
      }
    }
  }
  for (Binding& binding : object.bindings) {
    if (binding.kernel == kernel) {
      binding.access = static_cast<adsmAccess_t>(binding.access | access);
      return;
    }
  }
  object.bindings.push_back({kernel, access});
  if (object.bindings.size() == 1) {
    bound_.push_back(&object);
  }
}

void Ledger::unbind(adsmKernel_t kernel) {
  for (DeviceUses* const object : bound_) {
    std::erase_if(object->bindings, [&](const Binding& b) { return b.kernel == kernel; });
  }
  std::erase_if(bound_, [](const DeviceUses* object) { return object->bindings.empty(); });
  times_.forget(kernel);
}

Status Ledger::fence(accel::NativeStream stream) const {
  if (native_ == nullptr) {
    return fail(adsmErrorNotSupported, "the {} accelerator has no streams of the application's",
                accelerator_.name());
  }
  return native_->fence(stream);
}

Result<accel::Ticket> Ledger::submitted(accel::NativeStream stream, bool reads, bool names) {
  const std::size_t index = entryFor(stream);
  const std::thread::id thread = threadOf(stream);
  StreamWork& entry = streams_[index];
  const bool same = index < streamCount_ && entry.sameStream(stream, thread);
  auto ticket = native_->mark(stream, same ? entry.ticket : accel::Ticket{});
  if (!ticket.ok()) {
    return ticket;
  }
  streamCount_ = std::max(streamCount_, index + 1);
  streamWork_ = works_;
  // Asking takes the driver longer than all the rest: only where the answer matters.
  const bool pending = same && ((entry.reads && !reads) || (entry.names && !names)) &&
                       !accelerator_.done(entry.ticket);
  entry = {.stream = stream,
           .ticket = *ticket,
           .reads = reads || (pending && entry.reads),
           .names = names || (pending && entry.names),
           .number = works_,
           .thread = thread};
  return ticket;
}

void Ledger::streamDestroyed(accel::NativeStream stream) {
  for (std::size_t i = 0; i < streamCount_; ++i) {
    streams_[i].ended = streams_[i].ended || streams_[i].stream == stream;
  }
}

Ledger::Tickets Ledger::writersOf(const DeviceUses& object) const {
  Tickets tickets;
  const auto add = [&](accel::Ticket ticket) {
    if (!accelerator_.done(ticket)) {
      tickets.add(ticket);
    }
  };
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    add(lastWriter(object, device));
  }
  for (const StreamWork* work = begin(); work != end(); ++work) {
    if (mayWrite(*work, object)) {
      add(work->ticket);
    }
  }
  return tickets;
}

bool Ledger::writersDone(const DeviceUses& object) const noexcept {
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    if (!accelerator_.done(lastWriter(object, device))) {
      return false;
    }
  }
  return std::all_of(begin(), end(), [&](const StreamWork& work) {
    return !mayWrite(work, object) || accelerator_.done(work.ticket);
  });
}

Ledger::Writers Ledger::newestWriters(const DeviceUses& object) const {
  const bool unlisted = object.bindings.empty() && everyCallWork_ >= object.born;
  return {.call = std::max(object.lastWriteWork, unlisted ? everyCallWork_ : 0),
          .device = streamWork_};
}

Ledger::WriterQueue Ledger::writerQueue(const DeviceUses& object) const {
  using Kind = WriterQueue::Kind;
  WriterQueue queue;
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    if (!accelerator_.done(lastWriter(object, device))) {
      if (device != 0) {
        return {.kind = Kind::kNone};
      }
      queue.kind = Kind::kKernelQueue;
    }
  }
  for (const StreamWork* work = begin(); work != end(); ++work) {
    if (!mayWrite(*work, object) || accelerator_.done(work->ticket)) {
      continue;
    }
    const bool ofThisThread =
        work->thread == std::thread::id() || work->thread == std::this_thread::get_id();
    if (queue.kind != Kind::kAny || work->ended || !ofThisThread) {
      return {.kind = Kind::kNone};
    }
    queue = {.kind = Kind::kStream, .stream = work->stream};
  }
  return queue;
}

// Where a stream's work is known no more, all of it counts: that an object was used a moment ago is
// the safe answer.
std::uint64_t Ledger::newestWorkWith(const DeviceUses& object) const {
  std::uint64_t newest = std::max(object.born, object.lastWork);
  if (object.bindings.empty()) {
    newest = std::max(newest, everyCallWork_);
  }
  return object.users == DeviceUses::Users::kCpu ? newest : std::max(newest, streamWork_);
}

Ledger::Tickets Ledger::everything() const {
  Tickets tickets;
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    tickets.add(lastCall(device));
  }
  for (const StreamWork* work = begin(); work != end(); ++work) {
    tickets.add(work->ticket);
  }
  return tickets;
}

Ledger::Tickets Ledger::callsWith(const DeviceUses& object) const {
  Tickets tickets;
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    const accel::Ticket newest{std::max(lastWriter(object, device).value, object.lastRead[device])};
    if (!accelerator_.done(newest)) {
      tickets.add(newest);
    }
  }
  return tickets;
}

void Ledger::addConflicts(const DeviceUses& object, std::size_t device, bool writes,
                          NewestCalls& before) const {
  for (std::size_t other = 0; other < deviceCount_; ++other) {
    if (other != device) {
      before[other].value = std::max({before[other].value, lastWriter(object, other).value,
                                      writes ? object.lastRead[other] : std::uint64_t{0}});
    }
  }
}

bool Ledger::callsElsewhere(std::size_t device) const noexcept {
  for (std::size_t other = 0; other < deviceCount_; ++other) {
    if (other != device && !accelerator_.done(lastCall(other))) {
      return true;
    }
  }
  return false;
}

accel::Ticket Ledger::runningCall() const noexcept {
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    if (!accelerator_.done(lastCall(device))) {
      return lastCall(device);
    }
  }
  return {};
}

Ledger::Tickets Ledger::streamWork() const {
  Tickets tickets;
  for (const StreamWork* work = begin(); work != end(); ++work) {
    tickets.add(work->ticket);
  }
  return tickets;
}

accel::Ticket Ledger::runningStreamWork() const noexcept {
  const StreamWork* const running = std::find_if(
      begin(), end(), [&](const StreamWork& work) { return !accelerator_.done(work.ticket); });
  return running == end() ? accel::Ticket() : running->ticket;
}

accel::Ticket Ledger::runningReader() const noexcept {
  const StreamWork* const running = std::find_if(begin(), end(), [&](const StreamWork& work) {
    return work.reads && !accelerator_.done(work.ticket);
  });
  return running == end() ? accel::Ticket() : running->ticket;
}

accel::Ticket Ledger::oldestStreamWork() const {
  const StreamWork* const oldest = std::min_element(
      begin(), end(), [](const StreamWork& a, const StreamWork& b) { return a.number < b.number; });
  return oldest == end() ? accel::Ticket() : oldest->ticket;
}

std::thread::id Ledger::threadOf(accel::NativeStream stream) const noexcept {
  return native_ != nullptr && native_->perThread(stream) ? std::this_thread::get_id()
                                                          : std::thread::id();
}

std::size_t Ledger::entryFor(accel::NativeStream stream) const noexcept {
  const std::thread::id thread = threadOf(stream);
  const StreamWork* entry = std::find_if(
      begin(), end(), [&](const StreamWork& work) { return work.sameStream(stream, thread); });
  if (entry == end()) {
    entry = std::find_if(begin(), end(),
                         [&](const StreamWork& work) { return accelerator_.done(work.ticket); });
  }
  const auto index = static_cast<std::size_t>(entry - begin());
  return index < streams_.size() ? index : kNone;
}

}  // namespace gmac
