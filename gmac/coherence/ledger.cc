// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/ledger.h"

#include <algorithm>
#include <new>
#include <utility>

#include "gmac/base/thread_number.h"

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

Ledger::Ledger(accel::Accelerator& accelerator, CallTimes::Clock clock)
    : accelerator_(accelerator),
      native_(accelerator.nativeStreams()),
      devices_(accelerator.devices()),
      deviceCount_(accel::deviceCount(accelerator)),
      times_([&accelerator](accel::Ticket ticket) { return accelerator.done(ticket); },
             std::move(clock)) {}

void Ledger::used(DeviceUses& object, ByteRange bytes, accel::Ticket ticket, bool write) const {
  const std::size_t device = deviceOf(ticket);
  // An earlier call of the same queue on fewer bytes has finished when this one has.
  std::erase_if(object.parts, [&](const PartUse& part) {
    return (deviceOf(part.ticket) == device && part.write == write && bytes.contains(part.bytes)) ||
           accelerator_.done(part.ticket);
  });
  if (object.parts.size() == DeviceUses::kMaxParts) {
    for (const PartUse& part : object.parts) {
      auto& newest = part.write ? object.lastWrite : object.lastRead;
      std::uint64_t& of = newest[deviceOf(part.ticket)];
      of = std::max(of, part.ticket.value);
    }
    object.parts.clear();
  }
  object.parts.push_back({bytes, ticket, write});
  object.lastWork = works_;
  object.lastWriteWork = write ? works_ : object.lastWriteWork;
}

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
    object.lastWork = std::max(object.lastWork, everyCallWork_);
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
  object.bindings.reserve(object.bindings.size() + 1);
  if (object.bindings.empty()) {
    bound_.push_back(&object);
  }
  object.bindings.push_back({kernel, access});
}

void Ledger::unbind(adsmKernel_t kernel) {
  for (DeviceUses* const object : bound_) {
    std::erase_if(object->bindings, [&](const Binding& b) { return b.kernel == kernel; });
  }
  std::erase_if(bound_, [](const DeviceUses* object) { return object->bindings.empty(); });
  times_.forget(kernel);
}

Status Ledger::fence(accel::NativeStream stream) {
  if (native_ == nullptr) {
    return fail(adsmErrorNotSupported, "the {} accelerator has no streams of the application's",
                accelerator_.name());
  }
  const StreamWork* const work = workOf(stream);
  const auto fence =
      native_->fence(stream, work != nullptr ? work->fence : accel::NativeStreams::Fence{});
  if (fence.ok()) {
    fenced_ = {stream, threadOf(stream), *fence};
  }
  return fence.status();
}

Result<Ledger::StreamWork*> Ledger::mark(accel::NativeStream stream) {
  const std::size_t index = entryFor(stream);
  const std::uint64_t thread = threadOf(stream);
  StreamWork& entry = streams_[index];
  const bool same = index < streamCount_ && entry.sameStream(stream, thread);
  const auto ticket = native_->mark(stream, same ? entry.ticket : accel::Ticket{});
  if (!ticket.ok()) {
    // The work has been submitted, and will not be known: it has ended, and may have written all.
    (void)native_->waitForAll();
    streamWork_ = works_;
    return ticket.status();
  }
  streamCount_ = std::max(streamCount_, index + 1);
  if (!same) {
    entry = {};
    entry.id = ++streamIds_;
    entry.stream = stream;
    entry.thread = thread;
  }
  entry.ticket = *ticket;
  entry.number = works_;
  // (A copy of the runtime's own comes after work of its stream, and is not fenced.)
  if (fenced_.stream == stream && fenced_.thread == thread) {
    entry.fence = fenced_.fence;
  }
  return &entry;
}

Result<accel::Ticket> Ledger::submitted(accel::NativeStream stream, bool reads, bool names) {
  const StreamWork* const known = workOf(stream);
  // Asking takes the driver longer than all the rest: only where the answer matters.
  const bool pending = known != nullptr && ((known->reads && !reads) || (known->names && !names)) &&
                       !accelerator_.done(known->unlisted);
  const auto work = mark(stream);
  if (!work.ok()) {
    return work.status();
  }
  streamWork_ = works_;
  StreamWork& entry = **work;
  entry.submitter = threadNumber();
  entry.unlisted = entry.ticket;
  entry.unlistedNumber = works_;
  entry.reads = reads || (pending && entry.reads);
  entry.names = names || (pending && entry.names);
  return entry.ticket;
}

Result<accel::Ticket> Ledger::submittedListed(accel::NativeStream stream) {
  const auto work = mark(stream);
  if (!work.ok()) {
    return work.status();
  }
  (*work)->submitter = threadNumber();
  return (*work)->ticket;
}

void Ledger::expectLaunches(DeviceUses& object) noexcept {
  try {
    object.launches.reserve(DeviceUses::kMaxLaunches);
  } catch (const std::bad_alloc&) {
  }
}

void Ledger::launched(DeviceUses& object, accel::NativeStream stream, bool write) {
  const StreamWork& work = *workOf(stream);
  object.lastWork = works_;
  object.lastWriteLaunch = write ? works_ : object.lastWriteLaunch;
  const auto isOlder = [&](const LaunchUse& use) {
    return use.stream == work.id && use.write == write;
  };
  std::erase_if(object.launches, isOlder);
  if (object.launches.size() == object.launches.capacity()) {
    std::erase_if(object.launches,
                  [&](const LaunchUse& use) { return accelerator_.done(use.ticket); });
  }
  if (object.launches.size() < object.launches.capacity()) {
    object.launches.push_back({work.id, work.ticket, write});
    return;
  }
  // From here on it is work that may use every object.
  StreamWork& entry = streams_[static_cast<std::size_t>(&work - begin())];
  entry.unlisted = entry.ticket;
  entry.unlistedNumber = entry.number;
  entry.reads = entry.reads || !write;
  entry.names = true;
  streamWork_ = works_;
}

Result<accel::Ticket> Ledger::copied(accel::NativeStream stream, DeviceUses& object) {
  const std::uint64_t writers = streamWork_;
  const std::uint64_t ofObject = object.lastWriteLaunch;
  submittingListed();
  const auto work = mark(stream);
  if (!work.ok()) {
    return work.status();
  }
  launched(object, stream, true);
  streamWork_ = writers;
  object.lastWriteLaunch = ofObject;
  return (*work)->ticket;
}

void Ledger::repeated(accel::NativeStream stream, bool ended, std::uint64_t thread) noexcept {
  const StreamWork* const known = workOf(stream);
  // What is only recorded runs when its graph is launched.
  if (known == nullptr || native_->capturing(stream)) {
    return;
  }
  StreamWork& work = streams_[static_cast<std::size_t>(known - begin())];
  submitting();
  work.submitter = thread;
  work.number = work.unlistedNumber = streamWork_ = works_;
  if (ended) {
    work.unlisted = work.ticket;
    return;
  }
  if (const auto ticket = native_->mark(stream, work.ticket); ticket.ok()) {
    work.ticket = work.unlisted = *ticket;
  } else {
    (void)native_->waitForAll();
  }
}

void Ledger::streamDestroyed(accel::NativeStream stream) {
  for (std::size_t i = 0; i < streamCount_; ++i) {
    streams_[i].ended = streams_[i].ended || streams_[i].stream == stream;
  }
  if (fenced_.stream == stream) {
    fenced_ = {};
  }
}

NewestCalls Ledger::writersByDevice(const DeviceUses& object, ByteRange bytes) const {
  NewestCalls calls;
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    calls[device] = lastWriter(object, device);
  }
  addParts(object, bytes, true, calls);
  return calls;
}

NewestCalls Ledger::readersOf(const DeviceUses& object, ByteRange bytes) const {
  NewestCalls calls;
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    calls[device].value = object.lastRead[device];
  }
  addParts(object, bytes, false, calls);
  return calls;
}

Tickets Ledger::writersOf(const DeviceUses& object, ByteRange bytes) const {
  Tickets tickets;
  const auto add = [&](accel::Ticket ticket) {
    if (!accelerator_.done(ticket)) {
      tickets.add(ticket);
    }
  };
  const NewestCalls calls = writersByDevice(object, bytes);
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    add(calls[device]);
  }
  for (const StreamWork* work = begin(); work != end(); ++work) {
    if (mayUse(*work, object)) {
      add(work->unlisted);
    }
  }
  for (const LaunchUse& use : object.launches) {
    if (use.write) {
      add(use.ticket);
    }
  }
  return tickets;
}

bool Ledger::writersDone(const DeviceUses& object, ByteRange bytes) const noexcept {
  const NewestCalls calls = writersByDevice(object, bytes);
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    if (!accelerator_.done(calls[device])) {
      return false;
    }
  }
  return std::all_of(begin(), end(),
                     [&](const StreamWork& work) {
                       return !mayUse(work, object) || accelerator_.done(work.unlisted);
                     }) &&
         std::all_of(object.launches.begin(), object.launches.end(), [&](const LaunchUse& use) {
           return !use.write || accelerator_.done(use.ticket);
         });
}

bool Ledger::readersDone(const DeviceUses& object) const noexcept {
  const NewestCalls readers = readersOf(object);
  return std::all_of(readers.begin(), readers.end(),
                     [&](accel::Ticket reader) { return accelerator_.done(reader); }) &&
         accelerator_.done(runningReader(object));
}

bool Ledger::allSucceeded() const noexcept {
  const Tickets work = everything();
  return hostFunctionsRun() && !submissionUnderWay() &&
         std::all_of(work.begin(), work.end(),
                     [&](accel::Ticket ticket) { return accelerator_.succeeded(ticket); });
}

bool Ledger::nothingRuns() const noexcept {
  return accelerator_.done(runningCall()) && accelerator_.done(runningStreamWork()) &&
         hostFunctionsRun();
}

bool Ledger::namedWorkRuns() const noexcept {
  return std::any_of(begin(), end(), [&](const StreamWork& work) {
    return work.names && !accelerator_.done(work.unlisted);
  });
}

bool Ledger::runsOn(std::uintptr_t queue) const noexcept {
  return std::any_of(begin(), end(), [&](const StreamWork& work) {
    return queueOf(work.stream, work.thread) == queue && !work.ended &&
           !accelerator_.done(work.ticket);
  });
}

bool Ledger::onlyOthersRun(std::optional<accel::NativeStream> stream) const noexcept {
  if (!stream) {
    return nothingRuns();
  }
  const StreamWork* const work = workOf(*stream);
  return accelerator_.done(runningCall()) && hostFunctionsRun() &&
         (work == nullptr || accelerator_.done(work->ticket));
}

Writers Ledger::newestWriters(const DeviceUses& object) const {
  const bool unlisted = object.bindings.empty() && everyCallWork_ >= object.born;
  return {.call = std::max(object.lastWriteWork, unlisted ? everyCallWork_ : 0),
          .device = std::max(streamWork_, object.lastWriteLaunch)};
}

WriterQueue Ledger::writerQueue(const DeviceUses& object) const {
  using Kind = WriterQueue::Kind;
  WriterQueue queue;
  const NewestCalls calls = writersByDevice(object, kAllBytes);
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    if (!accelerator_.done(calls[device])) {
      if (device != 0) {
        return {.kind = Kind::kNone};
      }
      queue.kind = Kind::kKernelQueue;
    }
  }
  const auto writes = [&](const StreamWork& work) {
    return (mayUse(work, object) && !accelerator_.done(work.unlisted)) ||
           std::any_of(object.launches.begin(), object.launches.end(), [&](const LaunchUse& use) {
             return use.write && use.stream == work.id && !accelerator_.done(use.ticket);
           });
  };
  for (const StreamWork* work = begin(); work != end(); ++work) {
    if (!writes(*work)) {
      continue;
    }
    const bool ofThisThread = work->thread == kNoThread || work->thread == threadNumber();
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

Tickets Ledger::everything() const {
  Tickets tickets;
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    tickets.add(lastCall(device));
  }
  for (const StreamWork* work = begin(); work != end(); ++work) {
    tickets.add(work->ticket);
  }
  return tickets;
}

Tickets Ledger::callsWith(const DeviceUses& object, ByteRange bytes) const {
  Tickets tickets;
  const NewestCalls writers = writersByDevice(object, bytes);
  const NewestCalls readers = readersOf(object, bytes);
  for (std::size_t device = 0; device < deviceCount_; ++device) {
    const accel::Ticket newest{std::max(writers[device].value, readers[device].value)};
    if (!accelerator_.done(newest)) {
      tickets.add(newest);
    }
  }
  for (const LaunchUse& use : object.launches) {
    if (!accelerator_.done(use.ticket)) {
      tickets.add(use.ticket);
    }
  }
  return tickets;
}

void Ledger::addConflicts(const DeviceUses& object, ByteRange bytes, std::size_t device,
                          bool writes, NewestCalls& before) const {
  const NewestCalls writers = writersByDevice(object, bytes);
  const NewestCalls readers = writes ? readersOf(object, bytes) : NewestCalls{};
  for (std::size_t other = 0; other < deviceCount_; ++other) {
    if (other != device) {
      before[other].value =
          std::max({before[other].value, writers[other].value, readers[other].value});
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

Tickets Ledger::streamWork() const {
  Tickets tickets;
  for (const StreamWork* work = begin(); work != end(); ++work) {
    tickets.add(work->ticket);
  }
  return tickets;
}

std::optional<accel::NativeStream> Ledger::onlyStream() const noexcept {
  const StreamWork* only = nullptr;
  for (const StreamWork* work = begin(); work != end(); ++work) {
    if (accelerator_.succeeded(work->ticket) && work->number != newestWork_) {
      continue;
    }
    if (only != nullptr || work->ended || work->thread != threadOf(work->stream)) {
      return std::nullopt;
    }
    only = work;
  }
  return only == nullptr || runningCall().value != 0 ? std::nullopt : std::optional(only->stream);
}

accel::Ticket Ledger::newestOn(accel::NativeStream stream) const noexcept {
  const StreamWork* const work = workOf(stream);
  return work == nullptr ? accel::Ticket() : work->ticket;
}

accel::Ticket Ledger::runningStreamWork() const noexcept {
  const StreamWork* const running = std::find_if(
      begin(), end(), [&](const StreamWork& work) { return !accelerator_.done(work.ticket); });
  return running == end() ? accel::Ticket() : running->ticket;
}

accel::Ticket Ledger::runningReader(const DeviceUses& object) const noexcept {
  const StreamWork* const running = std::find_if(begin(), end(), [&](const StreamWork& work) {
    return work.reads && mayUse(work, object) && !accelerator_.done(work.unlisted);
  });
  if (running != end()) {
    return running->unlisted;
  }
  const auto use = std::find_if(
      object.launches.begin(), object.launches.end(),
      [&](const LaunchUse& launch) { return !launch.write && !accelerator_.done(launch.ticket); });
  return use == object.launches.end() ? accel::Ticket() : use->ticket;
}

accel::Ticket Ledger::oldestStreamWork() const {
  const StreamWork* const oldest = std::min_element(
      begin(), end(), [](const StreamWork& a, const StreamWork& b) { return a.number < b.number; });
  return oldest == end() ? accel::Ticket() : oldest->ticket;
}

std::uint64_t Ledger::threadOf(accel::NativeStream stream) const noexcept {
  return native_ != nullptr && native_->perThread(stream) ? threadNumber() : kNoThread;
}

const Ledger::StreamWork* Ledger::workOf(accel::NativeStream stream) const noexcept {
  const std::uint64_t thread = threadOf(stream);
  const StreamWork* const work = std::find_if(
      begin(), end(), [&](const StreamWork& each) { return each.sameStream(stream, thread); });
  return work == end() ? nullptr : work;
}

std::size_t Ledger::entryFor(accel::NativeStream stream) const noexcept {
  // A few streams keep their places when their work has ended: who loses its own launches anew.
  constexpr std::size_t kFew = 16;
  const StreamWork* entry = workOf(stream);
  if (entry == nullptr) {
    entry = end();
  }
  if (entry == end() && streamCount_ >= std::min(kFew, streams_.size())) {
    entry = std::find_if(begin(), end(), [&](const StreamWork& work) {
      return accelerator_.succeeded(work.ticket);
    });
  }
  // The device is asked only where no place is free.
  if (entry == end() && streamCount_ == streams_.size()) {
    entry = std::find_if(begin(), end(),
                         [&](const StreamWork& work) { return accelerator_.done(work.ticket); });
  }
  const auto index = static_cast<std::size_t>(entry - begin());
  return index < streams_.size() ? index : kNone;
}

}  // namespace gmac
