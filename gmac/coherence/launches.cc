// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/launches.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gmac/accel/argument_copy.h"
#include "gmac/accel/backoff.h"
#include "gmac/base/thread_number.h"
#include "gmac/coherence/allocation.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/kernel.h"
#include "gmac/coherence/kernels.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/policies/coarsening.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {
namespace {

using coherence::Lent;

Event eventOf(bool writes) { return writes ? Event::kCall : Event::kCallRead; }

}  // namespace

// ---- The one path

// The release, and who may submit. `ready(&waited)` waits for what the work's queue does not order
// by itself. `writesLent()`: whether the work may write what is lent on the device, or moves it;
// asked where anything is lent. `forEachUse(release)` calls `release(object, blocks, event)` for
// all that the work uses, until that is not kDone; it returns that. Objects are released one by
// one; whatever made us let the lock go, start over: what was released stays released.
template <typename Ready, typename WritesLent, typename ForEachUse>
Status Launches::releaseUsed(Lock& lock, Ready ready, WritesLent writesLent, ForEachUse forEachUse,
                             accel::Ticket* stillOpen) {
  for (Step step = Step::kRetry; step == Step::kRetry;) {
    bool waited = false;
    GMAC_TRY(ready(&waited));
    if (waited) {
      continue;
    }
    const auto submitsAlready = [this] {
      return ledger_.submissionUnderWay() && !ledger_.submissionElsewhere();
    };
    if (lock.turns().claimed() && !submitsAlready() && letOthersGoFirst(lock)) {
      continue;
    }
    // Asked anew after every wait: another thread may have come first.
    if (ledger_.submissionElsewhere() || (ledger_.submissionUnderWay() && !paused_)) {
      lock.waitForChange();
      continue;
    }
    if (loans_.any(Lent::kOnDevice) && writesLent()) {
      lock.turnEnds();
      loans_.awaitReturn(lock, Lent::kOnDevice);
      continue;
    }
    auto released = forEachUse([&](Object& object, BlockRange blocks, Event event) {
      return release(lock, object, blocks, event, stillOpen);
    });
    if (!released.ok()) {
      return released.status();
    }
    step = *released;
  }
  blocks_.called();
  return {};
}

// Waits until no access has a claim any more, or all have had their time; whether there was one.
// (The lock is theirs meanwhile.)
bool Launches::letOthersGoFirst(Lock& lock) {
  const CallTimes& times = ledger_.times();
  const CallTimes::Nanoseconds until = lock.letsOthersGoUntil(times.now());
  if (until == 0) {
    return false;
  }
  const TraceSpan span("call", "let accesses go first");
  const AccessTurns& turns = lock.turns();
  const Free free(lock);
  for (accel::Backoff backoff; turns.claimed() && times.now() < until;) {
    backoff.step();
  }
  return true;
}

// `newest`: the newest work of the queue that gets more. Once for each launch.
void Launches::keepQueueShort(Lock& lock, accel::Ticket newest, bool* waited) {
  if (!lock.turns().any()) {
    return;
  }
  const CallTimes& times = ledger_.times();
  const CallTimes::Nanoseconds until = lock.queueUntil(times.now());
  // (A stream may wait for what the program stores next.)
  if (times.now() >= until || accelerator_.done(newest) || coherence::openWaits()) {
    return;
  }
  *waited = true;
  const TraceSpan span("call", "keep the queue short");
  const Free free(lock);
  for (accel::Backoff backoff; !accelerator_.done(newest) && times.now() < until;) {
    backoff.step();
  }
}

// Hands blocks to the accelerator once nobody is using the object.
Result<Step> Launches::release(Lock& lock, Object& object, BlockRange range, Event event,
                               accel::Ticket* stillOpen) {
  if (object.closing || object.open.empty()) {
    return Step::kDone;
  }
  if (object.concurrent) {
    blocks_.endConcurrent(object);
  }
  if (object.inTransit(range)) {
    lock.waitForTransit();
    return Step::kRetry;
  }
  if (object.held(range) && paused_ && !ledger_.submissionElsewhere()) {
    return fail(adsmErrorSystem, "{} is in use", shown(object.address()));
  }
  if (object.held(range)) {
    lock.turnEnds();  // it is the program's business when that ends
    loans_.awaitReturn(lock, Lent::kOnCpu);
    return Step::kRetry;
  }
  const Status closed = blocks_.close(lock, object, range, event, stillOpen);
  return closed.ok() ? Step::kDone : coarsening_.retry(lock, closed);
}

// Before the release of a call of the program's: it passes over what the CPU and kernels use at
// once, or nothing is used so any longer. Whether the call has to wait for its kernel. Asked anew
// after each restart of the release: objects may have joined or left meanwhile.
bool Launches::passesConcurrent(ConcurrentUse::Queue queue, bool unordered,
                                const std::byte** checked) {
  Blocks::OpenList& objects = blocks_.concurrentObjects();
  if (objects.empty()) {
    return false;
  }
  if (concurrent_.submits(ledger_.times().now(), queue, objects.size(),
                          1 + repeated_.takeLaunches())) {
    if (checked != nullptr) {
      *checked = objects.front().address();
    }
    blocks_.endConcurrent(objects.front());
  }
  if (unordered) {
    return false;
  }
  if (promptWaits_.on() && promptWaits_.mayWait()) {
    return !objects.empty();
  }
  endAllConcurrent();
  return false;
}

void Launches::endAllConcurrent() {
  Blocks::OpenList& objects = blocks_.concurrentObjects();
  while (!objects.empty()) {
    blocks_.endConcurrent(objects.front());
  }
}

// Work of the program's names parts of objects: where it has no order with the CPU's accesses, they
// are closed now and then.
void Launches::endConcurrentIn(std::span<const coherence::DeviceRange> ranges) {
  if (blocks_.concurrentObjects().empty()) {
    return;
  }
  for (const coherence::DeviceRange& range : ranges) {
    index_.forEachIn(range.address, range.bytes, [&](Object& object, const auto*, const auto*) {
      if (object.concurrent && (!unordered_ || concurrent_.names())) {
        blocks_.endConcurrent(object);
      }
      return true;
    });
  }
}

// The end of a call of the program's. Until here its thread could not touch what is open.
void Launches::returns(Lock& lock, bool awaited, accel::Ticket ticket,
                       std::optional<accel::NativeStream> stream) {
  countUnwaited(1);
  if (!promptWaits_.on()) {
    return;
  }
  PromptWaits::Call call{.thread = threadNumber()};
  if (awaited) {
    stats().awaitedCalls.add();
    stream ? accelerator_.nativeStreams()->endIsAwaited(*stream, ticket)
           : accelerator_.endIsAwaited(ticket);
    call.awaited = endsWithin(lock, ticket, concurrent_.patience());
    if (!call.awaited) {
      const PromptWaits::Nanoseconds slice = promptWaits_.takeSlice();
      call.sliced = slice != 0;
      call.awaited = call.sliced && endsWithin(lock, ticket, slice);
    }
    if (call.awaited) {
      unwaited_.waited();
      endedInCall();
    } else {
      promptWaits_.inVain(std::exchange(call.sliced, false));
      closeAfterAll(lock, ticket);
    }
  }
  promptWaits_.returns(ledger_.times().now(), call);
}

void Launches::countUnwaited(std::uint64_t calls) {
  const std::uint64_t repeated = repeated_.launches();
  const std::uint64_t before = std::exchange(repeatedBefore_, repeated);
  if (blocks_.anyZeroCopy() || unwaited_.tries()) {
    unwaited_.called(ledger_.times().now(), calls + repeated - before);
  }
  // (Elsewhere accesses of what has one copy wait as well.)
  if (const std::uint64_t turns = blocks_.turns();
      turns != std::exchange(turnsBefore_, turns) && unordered_) {
    blocks_.countStored(unwaited_.turned(ledger_.times().now(), stats().calls.value()) >=
                        kFewTurns);
  }
}

// The program's wait then has nothing to do, unless the policies do, or anything has failed.
void Launches::endedInCall() {
  if (!ledger_.allSucceeded()) {
    return;
  }
  if (concurrent_.ended(ledger_.times().now(), std::nullopt) == ConcurrentUse::Verdict::kBad) {
    suspectAll();
  } else if (blocks_.watchedObjects().empty() && !blocks_.readsBack() &&
             blocks_.toSplit().empty()) {
    ledger_.settle();
  }
}

void Launches::suspectAll() {
  for (Object& object : blocks_.concurrentObjects()) {
    object.zeroCopy.suspect();
  }
  endAllConcurrent();
}

// adsmSync reports failures.
bool Launches::endsWithin(Lock& lock, accel::Ticket ticket, std::uint64_t nanoseconds) {
  const FreeForWork free(lock);
  const Timed timed(Phase::kGpu);
  accel::Backoff backoff;
  while (!accelerator_.done(ticket)) {
    if (static_cast<std::uint64_t>(backoff.waited().count()) > nanoseconds) {
      return false;
    }
    backoff.step();
  }
  return true;
}

// Closes what the kernel that still runs may use; where that fails, waits for its end.
void Launches::closeAfterAll(Lock& lock, accel::Ticket ticket) {
  concurrent_.tookTooLong() == ConcurrentUse::Verdict::kBad ? suspectAll() : endAllConcurrent();
  Blocks::OpenList& open = blocks_.openObjects();
  Result<Step> closed = Step::kRetry;
  while (closed.ok() && *closed == Step::kRetry) {
    closed = Step::kDone;
    for (auto next = open.begin(); next != open.end() && closed.ok() && *closed == Step::kDone;) {
      Object& object = *next;
      ++next;
      accel::Ticket none;  // nothing of it is copied
      if (object.isZeroCopy()) {
        closed = release(lock, object, object.all(), Event::kCall, &none);
      }
    }
  }
  if (!closed.ok()) {
    const Free free(lock);
    (void)waits_.await(free, ticket);
  }
}

Status Launches::order(const void* address, std::size_t bytes, bool held) {
  if (!blocks_.anyZeroCopy()) {
    return {};
  }
  const Walk walk(blocks_);
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  Result<Step> step = Step::kRetry;
  while (step.ok() && *step == Step::kRetry) {
    step = Step::kDone;
    index_.forEachIn(address, bytes, [&](Object& object, const auto*, const auto*) {
      if (object.concurrent && held) {
        blocks_.endConcurrent(object);
      }
      if (object.isZeroCopy() && !(ledger_.writersDone(object) && ledger_.readersDone(object))) {
        accel::Ticket none;
        step = release(lock, object, object.all(), Event::kCall, &none);
        if (step.ok() && *step == Step::kDone) {
          object.zeroCopy.ordered();
        }
      }
      return step.ok() && *step == Step::kDone;
    });
  }
  return step.ok() ? Status() : step.status();
}

// The calling thread submits next, after it has let go of the lock.
void Launches::begins(Lock& lock, const Submission& submission) {
  submission_ = submission;
  submitterBlocked_.emplace(lock.keepBlocked());
  ledger_.submissionBegins();
}

// For the thread that has submitted; to be destroyed after its lock.
std::optional<os::SignalsBlocked> Launches::takeBlocked() {
  std::optional<os::SignalsBlocked> blocked(std::move(submitterBlocked_));
  submitterBlocked_.reset();
  return blocked;
}

// Other threads may go on; the caller's waits for what its writes, which go undetected
// (batch-update), would reach: the copies of what it released, and the work that reads.
Status Launches::ends(Lock& lock, accel::Ticket reader) {
  const accel::Ticket stillOpen = std::exchange(submission_, {}).stillOpen;
  if (!paused_) {
    ledger_.submissionEnds();
  }
  lock.changed();
  const Status arrived = waits_.forArrival(lock, stillOpen);
  const Status read = waits_.forArrival(lock, reader);
  return arrived.ok() ? read : arrived;
}

// ---- Calls

// Releases what a call uses: releaseUsed()'s forEachUse. Ends early where an object has gone away.
template <typename Release>
Result<Step> Launches::releaseForCall(const UsedObjects& used, adsmKernel_t kernel,
                                      std::size_t device, Away* away, bool& awaited,
                                      Release release) {
  Result<Step> step = Step::kDone;
  awaited = passesConcurrent(ConcurrentUse::kOwnQueue, false);
  const auto releaseAll = [&](Object& object, BlockRange blocks, unsigned access) {
    if (object.spread()) {
      // It may have changed while the call waited: what is released goes to this device.
      if (used.isAway(object, blocks, away)) {
        return true;
      }
      if (!object.inTransit(blocks) && !object.held(blocks)) {
        Blocks::sends(object, blocks, device);
      }
    }
    step = object.concurrent ? Step::kDone
                             : release(object, blocks, eventOf((access & adsmWrite) != 0));
    return !step.ok() || *step == Step::kRetry;
  };
  if (used.listed()) {
    (void)used.any(releaseAll);
    return step;
  }
  Blocks::OpenList& open = blocks_.openObjects();
  for (auto next = open.begin(); next != open.end();) {
    Object& object = *next;
    ++next;
    const auto access = object.accessBy(kernel);
    if (access && releaseAll(object, object.all(), static_cast<unsigned>(*access))) {
      break;
    }
  }
  return step;
}

// A call that runs: to the ledger, and to the policies that learn from it.
void Launches::noteCall(const UsedObjects& used, adsmKernel_t kernel, std::size_t device,
                        accel::Ticket ticket) {
  stats().called(device);
  ledger_.called(ticket, kernel);
  if (!used.listed()) {
    ledger_.calledUnlisted(ticket);
    ledger_.calledBound(kernel, ticket);
    return;
  }
  (void)used.any([&](Object& object, BlockRange blocks, unsigned access) {
    const ByteRange bytes = object.bytesOf(blocks);
    const bool writes = (access & adsmWrite) != 0;
    bytes.length() == object.bytes() ? ledger_.used(object, ticket, writes)
                                     : ledger_.used(object, bytes, ticket, writes);
    if (object.guest.used(bytes.length(), object.bytes(), object.home == accel::Home::kCpu)) {
      guestsAreDue_.store(true, std::memory_order_relaxed);
    }
    if (writes && object.spread()) {
      Blocks::writes(object, blocks, device);
    }
    return false;
  });
}

Status Launches::call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                      const std::optional<CallUses>& uses, std::size_t device, Away* away) {
  const Timed timed(Phase::kLaunch);
  const TraceSpan span("call", "call", {"device", device});
  // Arguments may themselves lie in shared objects: they are read before the lock is taken.
  accel::ArgumentCopy arguments(kernel->paramSizes, args);
  if (uses) {
    for (const adsmRangeUse_t& use : uses->list) {
      GMAC_TRY(allocation_.checkSmall(uses->function, use.address, use.bytes));
    }
  }
  const Walk walk(blocks_);
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  GMAC_TRY(kernels_.load(lock, kernel, device));
  accel::Devices* const devices = accelerator_.devices();
  const UsedObjects used(index_, ledger_, devices, kernel, uses, device);
  GMAC_TRY(used.check());
  // Before anything is copied to where it lies.
  if (used.findAway(away)) {
    return {};
  }
  accel::Ticket stillOpen;
  bool awaited = false;
  GMAC_TRY(releaseUsed(
      lock,
      // Work on the application's own streams was submitted before; the accelerator's queue knows
      // nothing of them.
      [&, queueWaits = true](bool* waited) mutable -> Status {
        GMAC_TRY(waits_.forWork(lock, ledger_.runningStreamWork(), waited));
        if (!*waited && std::exchange(queueWaits, false)) {
          keepQueueShort(lock, ledger_.lastCall(device), waited);
        }
        return {};
      },
      [&] { return used.writesLent(); },
      [&](auto release) { return releaseForCall(used, kernel, device, away, awaited, release); },
      &stillOpen));
  if (away->address != nullptr || used.findAway(away)) {
    return {};  // it has moved while the call waited
  }
  const NewestCalls before = used.conflicts();
  if (used.parts()) {
    (void)used.any([&](Object& object, BlockRange, unsigned) {
      Ledger::expectParts(object);
      return false;
    });
  }
  const Result<accel::Ticket> launched = [&] {
    const Timed launching(Phase::kCudaLaunch);
    accel::LoadedKernel& loaded = *kernel->loaded[device];
    if (devices != nullptr) {
      return awaited ? devices->launchAwaited(device, loaded, shape, arguments.get(), before)
                     : devices->launch(device, loaded, shape, arguments.get(), before);
    }
    return awaited ? accelerator_.launchAwaited(loaded, shape, arguments.get())
                   : accelerator_.launch(loaded, shape, arguments.get());
  }();
  if (!launched.ok()) {
    return launched.status();
  }
  noteCall(used, kernel, device, *launched);
  returns(lock, awaited, *launched, std::nullopt);
  return waits_.forArrival(lock, stillOpen);
}

// ---- Work on the application's own streams

// Whether work on a stream may write what is lent on the device.
bool Launches::writesLent(accel::NativeStream stream, const coherence::DeviceRange& range) {
  if (!range.write) {
    return false;
  }
  if (range.address == nullptr) {
    return std::any_of(index_.all().begin(), index_.all().end(), [&](const Object& object) {
      return !object.lent.empty() && object.usedBy(stream) && !object.onlyRead;
    });
  }
  bool writes = false;
  index_.forEachIn(
      range.address, range.bytes, [&](const Object& object, const auto* first, const auto* last) {
        const auto offset = static_cast<std::size_t>(first - object.address());
        writes = object.isLent({offset, offset + static_cast<std::size_t>(last - first)});
        return !writes;
      });
  return writes;
}

// Whether a launch lists its objects, which are told then.
bool Launches::list(accel::NativeStream stream, std::span<const coherence::DeviceRange> ranges,
                    List& listed) {
  // (An address in front of such an object, or past its end, is none of its CPU's addresses.)
  if (allocation_.safeObjects() != 0) {
    return false;
  }
  for (const coherence::DeviceRange& range : ranges.subspan(1)) {
    bool room = true;
    index_.forEachIn(range.address, range.bytes, [&](Object& part, const auto*, const auto*) {
      Object& object = part.allocation();
      // (A neighbour, or an object that the program has promised not to use.)
      if (!object.usedBy(stream)) {
        return true;
      }
      const bool writes = range.write && !object.onlyRead;
      if (const Listed* const known = find(listed, object); known != nullptr) {
        listed[static_cast<std::size_t>(known - listed.begin())].write |= writes;
        return true;
      }
      room = !listed.full();
      if (room) {
        listed.add({object.address(), writes});
        object.withPages([](Object& one) { Ledger::expectLaunches(one); });
      }
      return room;
    });
    if (!room) {
      return false;
    }
  }
  return true;
}

const Launches::Listed* Launches::find(const List& listed, const Object& object) {
  const auto* const found = std::find_if(listed.begin(), listed.end(), [&](const Listed& one) {
    return one.object == object.allocation().address();
  });
  return found == listed.end() ? nullptr : found;
}

bool Launches::mayListNow() {
  if (listing_.watches()) {
    listing_.tick({ledger_.times().now(), stats().calls.value()});
    coherence::letLaunchesList(listing_.on());
  }
  return listing_.on();
}

// The work is the newest of the stream.
void Launches::noteListed(accel::NativeStream stream, const List& listed) {
  for (const Listed& one : listed) {
    if (Object* const object = index_.findAllocation(one.object); object != nullptr) {
      object->withPages([&](Object& part) { ledger_.launched(part, stream, one.write); });
    }
  }
}

// Waits for what the order of a stream's work does not cover; `uses`: the work uses something.
// `queueWaits`: the queue has not been kept short yet.
Status Launches::readyForWork(Lock& lock, accel::NativeStream stream, bool uses, bool& queueWaits,
                              bool* waited) {
  const bool foreign = stream == accel::kForeignStream;
  // Calls were made before; the application's streams know nothing of their queue.
  GMAC_TRY(waits_.forWork(lock, ledger_.runningCall(), waited));
  if (!*waited && uses) {
    GMAC_TRY(waits_.forHostFunctions(lock, waited));
  }
  if (!*waited && !foreign && !ledger_.hasRoomFor(stream)) {
    GMAC_TRY(waits_.forWork(lock, ledger_.oldestStreamWork(), waited));
    *waited = true;
  }
  if (!*waited && !foreign && uses && std::exchange(queueWaits, false)) {
    keepQueueShort(lock, ledger_.newestOn(stream), waited);
  }
  return {};
}

// Releases what work on a stream uses of an object: what it lists, and the object that is to be
// checked; where it lists nothing, what a range of it says.
template <typename Release>
Result<Step> Launches::releaseForWork(Object& object, accel::NativeStream stream,
                                      const coherence::DeviceRange& range, Submission& submission,
                                      Release release) {
  if (submission.lists) {
    const Listed* const listed = find(submission.listed, object);
    if (listed != nullptr) {
      return release(object, object.all(), eventOf(listed->write));
    }
    return object.address() == submission.checked ? release(object, object.all(), Event::kCall)
                                                  : Result<Step>(Step::kDone);
  }
  if (range.address == nullptr) {
    if (!object.usedBy(stream)) {
      return Step::kDone;
    }
    const bool writes = range.write && !object.onlyRead;
    submission.reads |= !writes;
    return release(object, object.all(), eventOf(writes));
  }
  const auto* const begin =
      std::max<const std::byte*>(static_cast<const std::byte*>(range.address), object.address());
  const auto* const end = std::min<const std::byte*>(
      static_cast<const std::byte*>(range.address) + range.bytes, object.end());
  if (end <= begin) {
    return Step::kDone;
  }
  return release(object, object.covering(begin, static_cast<std::size_t>(end - begin)),
                 eventOf(range.write));
}

Status Launches::beginDeviceWork(accel::NativeStream stream,
                                 std::span<const coherence::DeviceRange> ranges) {
  repeated_.submissionBegins();
  const Status begun = beginStreamWork(stream, ranges);
  if (!begun.ok()) {
    repeated_.submissionEnds();
  }
  return begun;
}

Status Launches::beginStreamWork(accel::NativeStream stream,
                                 std::span<const coherence::DeviceRange> ranges) {
  const Timed timed(Phase::kLaunch);
  const Walk walk(blocks_);
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  const bool foreign = stream == accel::kForeignStream;
  Submission submission;
  const bool usesAll =
      std::any_of(ranges.begin(), ranges.end(),
                  [](const coherence::DeviceRange& range) { return range.address == nullptr; });
  submission.lists = usesAll && mayListNow() && !foreign && ranges.front().listed &&
                     list(stream, ranges, submission.listed);
  if (usesAll && ranges.front().listed) {
    ranges = ranges.first(1);
  }
  const auto ready = [&, queueWaits = true](bool* waited) mutable {
    return readyForWork(lock, stream, !ranges.empty(), queueWaits, waited);
  };
  GMAC_TRY(releaseUsed(
      lock, ready,
      [&] {
        return std::any_of(ranges.begin(), ranges.end(), [&](const coherence::DeviceRange& range) {
          return writesLent(stream, range);
        });
      },
      [&](auto release) -> Result<Step> {
        submission.awaited = false;
        if (foreign) {
          endAllConcurrent();
        } else if (usesAll) {
          submission.awaited =
              passesConcurrent(ledger_.queueOf(stream), unordered_, &submission.checked);
        } else {
          endConcurrentIn(ranges);
        }
        Blocks::OpenList& open = blocks_.openObjects();
        for (auto next = open.begin(); next != open.end();) {
          Object& object = *next;
          ++next;
          for (const coherence::DeviceRange& range : ranges) {
            auto step = releaseForWork(object, stream, range, submission, release);
            if (!step.ok() || *step == Step::kRetry) {
              return step;
            }
          }
        }
        bool waited = false;
        if (foreign) {
          GMAC_TRY(waits_.forWork(lock, ledger_.lastFlush(), &waited));
        }
        return waited ? Step::kRetry : Step::kDone;
      },
      &submission.stillOpen));
  if (!foreign) {
    GMAC_TRY(ledger_.fence(stream));
  }
  for (const coherence::DeviceRange& range : ranges) {
    submission.reads |= !range.write;
    submission.names |= range.address != nullptr;
  }
  submission.usesAll = usesAll;
  if (usesAll && !foreign) {
    if (blocks_.anyReadBacks() || blocks_.anyZeroCopy()) {
      concurrent_.begins(ledger_.times().now(), ledger_.queueOf(stream));
    }
    concurrent_.submitted(ledger_.queueOf(stream));
  }
  submission.lists ? ledger_.submittingListed() : ledger_.submitting(foreign);
  begins(lock, submission);
  return {};
}

Status Launches::endDeviceWork(accel::NativeStream stream, bool submitted) {
  const auto blocked = takeBlocked();
  const Walk walk(blocks_);
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  Status status;
  accel::Ticket reader;
  accel::Ticket work;
  const bool awaited = submission_.awaited;
  const bool usesAll = submission_.usesAll;
  const bool mayRepeat = !submission_.lists && submission_.stillOpen.value == 0 && !awaited;
  if (submitted && stream == accel::kForeignStream) {
    stats().called(0);
  } else if (submitted) {
    auto ticket = submission_.lists
                      ? ledger_.submittedListed(stream)
                      : ledger_.submitted(stream, submission_.reads, submission_.names);
    if (ticket.ok()) {
      stats().called(0);
      work = *ticket;
      if (submission_.lists) {
        stats().listedCalls.add();
        noteListed(stream, submission_.listed);
      } else if (submission_.reads && blocks_.readsLeaveWritable()) {
        reader = *ticket;
      }
    } else {
      status = ticket.status();
    }
  }
  const Status ended = ends(lock, reader);
  if (work.value != 0) {
    returns(lock, awaited, work, stream);
    if (mayRepeat && reader.value == 0) {
      repeated_.allow(lock, usesAll);
    } else {
      repeated_.refuse();
    }
  }
  repeated_.submissionEnds();
  return status.ok() ? ended : status;
}

// ---- Work of the runtime's own

bool Launches::pause(Lock& lock, std::uint64_t nanoseconds) {
  accel::Backoff backoff;
  const auto waits = [&](const auto& condition) {
    while (condition() && static_cast<std::uint64_t>(backoff.waited().count()) <= nanoseconds) {
      const FreeForWork free(lock);
      backoff.step();
    }
    return !condition();
  };
  if (!waits([&] { return ledger_.submissionUnderWay(); })) {
    return false;
  }
  ledger_.submissionBegins();
  paused_ = true;
  if (waits([&] { return !ledger_.nothingRuns(); })) {
    return true;
  }
  resume(lock);
  return false;
}

void Launches::resume(Lock& lock) {
  paused_ = false;
  ledger_.submissionEnds();
  lock.changed();
}

// It runs on device 0.
Status Launches::waitForOtherDevices(Lock& lock, std::span<const coherence::DeviceRange> ranges,
                                     bool* waited) {
  if (!ledger_.callsElsewhere(0)) {
    return {};
  }
  NewestCalls before;
  for (const coherence::DeviceRange& range : ranges) {
    index_.forEachIn(
        range.address, range.bytes, [&](Object& object, const auto* first, const auto* last) {
          const BlockRange blocks = object.covering(first, static_cast<std::size_t>(last - first));
          ledger_.addConflicts(object, object.bytesOf(blocks), 0, range.write, before);
          return true;
        });
  }
  return waits_.forWork(lock, before, waited);
}

Status Launches::beginOwnWork(std::span<const coherence::DeviceRange> ranges, const void* moves) {
  const Timed timed(Phase::kLaunch);
  const Walk walk(blocks_);
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  Submission submission;
  GMAC_TRY(releaseUsed(
      lock,
      // Work on the application's own streams was submitted before; the kernel queue knows nothing
      // of it.
      [&](bool* waited) -> Status {
        GMAC_TRY(waits_.forWork(lock, ledger_.runningStreamWork(), waited));
        if (!*waited) {
          GMAC_TRY(waits_.forHostFunctions(lock, waited));
        }
        return *waited ? Status() : waitForOtherDevices(lock, ranges, waited);
      },
      [&] {
        const Object* const moved = index_.findAllocation(moves);
        return moved != nullptr && !moved->lent.empty();
      },
      [&](auto release) -> Result<Step> {
        Result<Step> step = Step::kDone;
        for (const coherence::DeviceRange& range : ranges) {
          const auto released = [&](Object& object, const auto* first, const auto* last) {
            step = release(object, object.covering(first, static_cast<std::size_t>(last - first)),
                           eventOf(range.write));
            return step.ok() && *step == Step::kDone;
          };
          index_.forEachIn(range.address, range.bytes, released);
          if (!step.ok() || *step == Step::kRetry) {
            break;
          }
        }
        return step;
      },
      &submission.stillOpen));
  submission.own = true;
  begins(lock, submission);
  return {};
}

Status Launches::endOwnWork(std::span<const coherence::DeviceRange> ranges, accel::Ticket ticket) {
  const auto blocked = takeBlocked();
  const Walk walk(blocks_);
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  bool reads = false;
  if (ticket.value != 0) {
    ledger_.called(ticket);
    for (const coherence::DeviceRange& range : ranges) {
      index_.forEachIn(range.address, range.bytes, [&](Object& object, const auto*, const auto*) {
        ledger_.used(object, ticket, range.write);
        reads |= !range.write;
        return true;
      });
    }
  }
  return ends(lock, reads && blocks_.readsLeaveWritable() ? ticket : kDone);
}

}  // namespace gmac
