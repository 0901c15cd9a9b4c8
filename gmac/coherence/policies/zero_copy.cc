// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/zero_copy.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "gmac/base/log.h"
#include "gmac/base/thread_number.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"
#include "gmac/os/signal_mask.h"

namespace gmac {
namespace {

// As the ledger tells streams apart.
std::optional<ConcurrentUse::Queue> queueOf(const Ledger& ledger,
                                            const coherence::DeviceWait& wait) {
  return wait.stream ? std::optional(ledger.queueOf(*wait.stream)) : std::nullopt;
}

// (Of small objects together, a kernel reads a few.)
std::size_t kernelsMayRead(const Object& object) {
  return object.sharedBySmallObjects ? 0 : object.bytes();
}

}  // namespace

ZeroCopy::ZeroCopy(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
                   Waits& waits, ObjectIndex& index, Residency& residency, Blocks& blocks,
                   Launches& launches, PromptWaits& promptWaits, UnwaitedCalls& unwaited,
                   ConcurrentUse& concurrent, ConcurrentObjects& joins, bool unordered,
                   const ZeroCopyOptions& options)
    : mutex_(mutex),
      accelerator_(accelerator),
      // Devices that do not reach each other's memory have a copy each. A protocol that leaves
      // blocks open during calls has no rounds to save.
      memory_(options.allowed && blocks.callsClose() &&
                      (accelerator.devices() == nullptr || accelerator.devices()->reachEachOther())
                  ? accelerator.movableMemory()
                  : nullptr),
      ledger_(ledger),
      waits_(waits),
      index_(index),
      blocks_(blocks),
      launches_(launches),
      promptWaits_(promptWaits),
      unwaited_(unwaited),
      concurrent_(concurrent),
      joins_(joins),
      unordered_(unordered),
      options_(options),
      pages_(ledger, residency, blocks, options.pageBytes) {}

void ZeroCopy::noteAny() {
  const bool any = !blocks_.watchedObjects().empty() || !blocks_.concurrentObjects().empty();
  if (const bool watches = any && !unordered_; watches != promptWaits_.on()) {
    promptWaits_.watch(watches);
  }
  any_.store(any || unwaited_.isOpen(), std::memory_order_relaxed);
}

bool ZeroCopy::mayMove(const Object& object) const {
  // (Where the program, or a call on a part, has chosen a device, the object stays there.)
  return object.isZeroCopy() ||
         (object.home == accel::Home::kDevice && object.homes.empty() && !object.striped &&
          !object.sent && object.sameAddress && object.bytes() <= options_.mostBytes &&
          object.pagesReady(0, object.bytes()));
}

bool ZeroCopy::mayPageMove(const Object& object, const std::byte* page) const {
  return memory_ != nullptr && !coherence::recorded() && !coherence::captureUnderWay() &&
         !coherence::openWaits() && pages_.mayLeave(object, page);
}

// (Of a large object, for a page at that address.)
void ZeroCopy::setDue(const Known& known) {
  const auto same = [&](const Known& other) {
    return other.number == known.number && other.address == known.address;
  };
  if (std::none_of(moves_.begin(), moves_.end(), same)) {
    moves_.push_back(known);
    due_.store(true, std::memory_order_relaxed);
    launches_.waitTakesLock();
  }
}

Object* ZeroCopy::find(const Known& known) {
  Object* const object = index_.find(known.address);
  return object != nullptr && object->number == known.number && !object->closing ? object : nullptr;
}

void ZeroCopy::waits(WaitingThreads& waiting) {
  const std::uint64_t thread = threadNumber();
  for (Object& object : blocks_.watchedObjects()) {
    // (The thread that comes for the object may pause, and launch nothing either; or have ended.)
    const std::optional<ConcurrentUse::Queue> queue = object.zeroCopy.queue();
    if (!waiting.concerns(thread, object.comers.newest()) ||
        (object.comers.newest() != thread && waiting.others(thread) &&
         (!waiting.now(kOthersWaits) ||
          (queue && !concurrent_.begunOn(*queue) && !waiting.now(kLongPause))))) {
      continue;
    }
    const bool idle = object.zeroCopy.waits() == ZeroCopyPolicy::Advice::kMove;
    if (idle && object.zeroCopy.checked()) {
      concurrent_.checked(false, blocks_.concurrentObjects().size());
    }
    if (idle || object.sent) {
      setDue(object);
    }
  }
  constexpr std::uint64_t kNowAndThen = 64;
  if (concurrent_.unwaited() && waiting.now(kNowAndThen)) {
    noteUnwaited();
  }
  noteAny();
}

std::optional<std::uint64_t> ZeroCopy::roundTook(const coherence::DeviceWait& wait,
                                                 std::uint64_t now, bool contended,
                                                 std::size_t beside) {
  kernels_ = {.contended = contended, .turns = std::max(turns_, 1U), .calls = takeCalls()};
  streams_ = 0;
  if (!wait.begun) {
    if (wait.ofOwn) {
      (void)concurrent_.roundEnds(now, queueOf(ledger_, wait));
    }
    return std::nullopt;
  }
  // (The launches of some of the threads may be held up.)
  streams_ = std::max(concurrent_.roundsBegun(), beside + 1);
  const std::optional<ConcurrentUse::Queue> queue = queueOf(ledger_, wait);
  const std::uint64_t newest = concurrent_.sinceNewest(now, queue);
  const std::optional<std::uint64_t> took = concurrent_.roundEnds(now, queue);
  if (took) {
    // (Of a stream that nobody waits for, only the driver knows whether its work has ended.)
    if (concurrent_.longestRound(now) > options_.limits.longest) {
      concurrent_.forgetIf([this](ConcurrentUse::Queue other) { return !ledger_.runsOn(other); });
    }
    const std::uint64_t others = concurrent_.longestUnderWay(now);
    kernels_.round = *took;
    // (Between the launches of one thread are those of others.)
    kernels_.newest = std::max(streams_ > 1 || contended ? newest : *took, others);
  }
  if (took && queue && blocks_.concurrentObjects().empty()) {
    concurrent_.tookBefore(now, *queue, *took);
  }
  return took;
}

void ZeroCopy::waitEnded(Lock& lock, const coherence::DeviceWait& wait, const Round& round) {
  if (const UnlockedRounds::Judged judged = launches_.judgeRepeated(); judged.bad) {
    judged.queue ? leaveSlow(*judged.queue) : launches_.suspectAll();
    return;
  }
  if (round.took && !round.disturbed && !blocks_.concurrentObjects().empty() &&
      concurrent_.took(round.ended, *round.took, queueOf(ledger_, wait), round.contended,
                       kernels_.calls) == ConcurrentUse::Verdict::kBad) {
    if (round.contended && wait.stream) {
      leaveSlow(ledger_.queueOf(*wait.stream));
    } else {
      launches_.suspectAll();
    }
    return;
  }
  if (blocks_.watchedObjects().empty() || (!unordered_ && !promptWaits_.may())) {
    return;
  }
  // (Kernels that the program has not waited for may use at once with the CPU what has one copy, if
  // the program is one for managed memory.)
  if (unordered_ && wait.begun ? !launches_.ownWorkUnderWay() && ledger_.onlyOthersRun(wait.stream)
                               : ledger_.quiet()) {
    beginConcurrent(lock);
  }
}

// The rounds of that queue have become slow: its objects move back; where it has none, all do, if
// that lasts.
void ZeroCopy::leaveSlow(ConcurrentUse::Queue queue) {
  Blocks::OpenList& objects = blocks_.concurrentObjects();
  const bool any = std::any_of(objects.begin(), objects.end(), [&](const Object& object) {
    return object.zeroCopy.queue() == queue;
  });
  if (!any && !concurrent_.failsLong(queue)) {
    return;
  }
  for (auto next = objects.begin(); next != objects.end();) {
    Object& object = *next;
    ++next;
    if (!any || object.zeroCopy.queue() == queue) {
      blocks_.endConcurrent(object);
      object.zeroCopy.suspect();
      setDue(object);
    }
  }
}

void ZeroCopy::beginConcurrent(Lock& lock) {
  Blocks::WatchList& watched = blocks_.watchedObjects();
  for (auto next = watched.begin(); next != watched.end();) {
    Object& object = *next;
    ++next;
    if (ConcurrentObjects::mayJoin(object) && !joins_.join(lock, object).ok()) {
      return;
    }
  }
}

bool ZeroCopy::restsUnlocked() const {
  return unordered_ && !concurrent_.unwaited() && !blocks_.concurrentObjects().empty() &&
         blocks_.watchedObjects().empty() && moves_.empty();
}

bool ZeroCopy::launchedOn(accel::NativeStream stream) const {
  return concurrent_.begunOn(ledger_.queueOf(stream));
}

void ZeroCopy::round(Object& object) {
  if (memory_ != nullptr && mayMove(object)) {
    turns_ += object.zeroCopy.round();
  }
}

void ZeroCopy::rounds(Object& object, WaitingThreads& waiting, bool ofTurns) {
  const std::uint64_t thread = threadNumber();
  if (!isLarge(object)) {
    if (object.isZeroCopy() || object.zeroCopy.inRound() ||
        !waiting.concerns(thread, object.comers)) {
      return;
    }
    if (ofTurns) {
      object.zeroCopy.countsStored();
    }
    // (Where it comes once in a round, now here, now there, one copy gains little. And where calls
    // close what has one copy, nobody would know whether such rounds are slow.)
    if (unordered_ && memory_ != nullptr && mayMove(object) && object.zeroCopy.turns() > 1) {
      round(object);
    } else {
      object.zeroCopy.passes();
    }
    return;
  }
  object.pageRounds->forEachTaken([&](PageRounds::Page& page) {
    // (Another thread's wait may have announced it.)
    if (page.policy.inRound() || !waiting.concerns(thread, page.comers)) {
      return;
    }
    if (ofTurns) {
      page.policy.countsStored();
    }
    if (page.policy.turns() > 0 && object.pageRounds->counts(page) &&
        mayPageMove(object, pages_.at(object, page.number))) {
      page.policy.movedBack(object.pageRounds->returnsOf(page.number));
      turns_ += page.policy.round();
    } else {
      page.policy.passes();
      object.pageRounds->ended(page);
    }
  });
}

void ZeroCopy::waited(Object& object, const coherence::DeviceWait& wait) {
  if (object.isZeroCopy() && unordered_ && kernels_.contended && object.zeroCopy.trusted()) {
    // It is judged with the others of its queue, once all of them are used at once.
    object.zeroCopy.isOn(queueOf(ledger_, wait));
    return;
  }
  // (A copy on the same queue would have told that its kernel has finished.)
  if ((!object.isZeroCopy() || ledger_.writersDone(object)) &&
      finished(object.zeroCopy, wait, kernelsMayRead(object)) == ZeroCopyPolicy::Advice::kMove) {
    setDue(object);
  }
}

void ZeroCopy::interrupted(Object& object) {
  if (!isLarge(object)) {
    object.zeroCopy.interrupted();
  } else {
    object.pageRounds->forEachTaken([](PageRounds::Page& page) { page.policy.interrupted(); });
  }
}

bool ZeroCopy::waitedForRounds(Object& object, WaitingThreads& waiting,
                               const coherence::DeviceWait& wait) {
  const std::uint64_t thread = threadNumber();
  if (!isLarge(object)) {
    if (hasRound(object) && object.zeroCopy.inRound() && waiting.concerns(thread, object.comers)) {
      waited(object, wait);
    }
    return hasRound(object);
  }
  object.pageRounds->forEachTaken([&](PageRounds::Page& page) {
    if (!page.policy.inRound() || !waiting.concerns(thread, page.comers)) {
      return;
    }
    object.pageRounds->ended(page);
    if (finished(page.policy, wait, options_.pageBytes) == ZeroCopyPolicy::Advice::kMove) {
      setDue({pages_.at(object, page.number), object.number});
    }
  });
  return object.pageRounds->anyTaken();
}

ZeroCopyPolicy::Advice ZeroCopy::finished(ZeroCopyPolicy& policy, const coherence::DeviceWait& wait,
                                          std::size_t bytes) const {
  return policy.finished(ledger_.times().now(), options_.limits,
                         std::max({turns_, static_cast<std::uint32_t>(streams_), 1U}), kernels_,
                         queueOf(ledger_, wait), bytes);
}

void ZeroCopy::streamDestroyed(accel::NativeStream stream) {
  const Lock lock(mutex_);
  const ConcurrentUse::Queue queue = ledger_.queueOf(stream);
  concurrent_.forget(queue);
  launches_.forget(queue);
  const auto leaves = [queue](Object& object) { object.zeroCopy.isOnNoMore(queue); };
  std::ranges::for_each(blocks_.watchedObjects(), leaves);
  std::ranges::for_each(blocks_.concurrentObjects(), leaves);
}

void ZeroCopy::leave(const void* address) {
  Known known{};
  {
    const Lock lock(mutex_);
    Object* const object = index_.findAllocation(address);
    if (object == nullptr || object->closing) {
      return;
    }
    object->sent |= object->isZeroCopy() || !object->pages.empty();
    if (object->isZeroCopy()) {
      known = {object->address(), object->number};
    }
    for (const std::unique_ptr<Object>& page : object->pages) {
      page->sent = true;
      setDue(*page);
    }
  }
  if (known.address != nullptr) {
    move(known);
  } else {
    afterWait();
  }
}

bool ZeroCopy::joinPages() {
  // Those that stay, as there is no memory for them, are not tried again.
  std::uint64_t newest = 0;
  bool all = true;
  for (;;) {
    Known next{};
    {
      const Lock lock(mutex_);
      for (const Object& object : index_.all()) {
        if (object.whole != nullptr && !object.closing && object.number > newest &&
            (next.address == nullptr || object.number < next.number)) {
          next = {object.address(), object.number};
        }
      }
    }
    if (next.address == nullptr) {
      return all;
    }
    newest = next.number;
    move(next);
    const Lock lock(mutex_);
    all = all && find(next) == nullptr;
  }
}

ZeroCopy::Known ZeroCopy::pageAcross(std::span<const coherence::DeviceRange> ranges) {
  const Lock lock(mutex_);
  Known page{};
  for (const coherence::DeviceRange& range : ranges) {
    const auto* const begin = static_cast<const std::byte*>(range.address);
    const auto look = [&](const Object& object, const auto* first, const auto* last) {
      const bool alone = first == begin && last == begin + range.bytes;
      if (object.whole != nullptr && !alone) {
        page = {object.address(), object.number};
      }
      return page.address == nullptr;
    };
    const auto isWhole = [&] {
      return !range.inParts || !index_.inOneAllocation(begin, range.bytes);
    };
    if (begin != nullptr && page.address == nullptr && isWhole()) {
      index_.forEachIn(begin, range.bytes, look);
    }
  }
  return page;
}

bool ZeroCopy::areWhole(std::span<const coherence::DeviceRange> ranges) {
  return !index_.anyPages() ||
         std::all_of(
             ranges.begin(), ranges.end(),
             [](const coherence::DeviceRange& range) { return range.address == nullptr; }) ||
         pageAcross(ranges).address == nullptr;
}

bool ZeroCopy::joinIn(std::span<const coherence::DeviceRange> ranges) {
  std::uint64_t last = 0;
  for (Known next = pageAcross(ranges); next.address != nullptr; next = pageAcross(ranges)) {
    if (next.number == last) {
      return false;
    }
    last = next.number;
    move(next);
  }
  return true;
}

void ZeroCopy::endMoves() {
  Lock lock(mutex_);
  while (pageMoves_ || launches_.paused()) {
    lock.waitForChange();
  }
}

// (A kernel that does not end may itself wait for what the program does next. From here on nobody
// else moves a page: captureUnderWay().)
bool ZeroCopy::keepWhole() {
  endMoves();
  const os::SignalsBlocked blocked;
  bool paused = false;
  {
    Lock lock(mutex_);
    if (!index_.anyPages()) {
      return true;
    }
    paused = launches_.pause(lock, kMostPauseToRecord);
  }
  if (!paused) {
    endMoves();
    return true;
  }
  const bool joined = joinPages();
  Lock lock(mutex_);
  launches_.resume(lock);
  return joined;
}

void ZeroCopy::moveDue(bool paused) {
  // A move takes about a millisecond: the others come at the next waits.
  constexpr int kMostAtOnce = 16;
  const os::SignalsBlocked blocked;
  for (int i = 0; i < kMostAtOnce; ++i) {
    Known next{};
    {
      Lock lock(mutex_);
      std::erase_if(moves_, [this](const Known& known) { return find(known) == nullptr; });
      // Nobody waits for a thread that holds the object, such as for a read from a pipe, nor for
      // long for a kernel, which might itself wait for what the program does next, as other
      // threads' kernels might do that are launched meanwhile.
      auto found = firstFree();
      if (found != moves_.end() && !paused && (!ledger_.quiet() || coherence::openWaits())) {
        if (!pause(lock)) {
          return;
        }
        paused = true;
        found = firstFree();
      }
      if (found == moves_.end()) {
        due_.store(!moves_.empty(), std::memory_order_relaxed);
        break;
      }
      next = *found;
      moves_.erase(found);
      due_.store(!moves_.empty(), std::memory_order_relaxed);
    }
    move(next);
  }
  if (paused) {
    Lock lock(mutex_);
    if (unordered_) {
      beginConcurrent(lock);
    }
    launches_.resume(lock);
  }
}

std::vector<ZeroCopy::Known>::iterator ZeroCopy::firstFree() {
  return std::find_if(moves_.begin(), moves_.end(),
                      [this](const Known& known) { return isFree(known); });
}

bool ZeroCopy::isFree(const Known& known) {
  const Object* const object = find(known);
  if (object == nullptr) {
    return true;
  }
  const bool page = isLarge(*object) || object->whole != nullptr;
  if (page && coherence::captureUnderWay()) {
    return false;
  }
  // (Of a large object, the page.)
  const BlockRange blocks =
      isLarge(*object) ? object->covering(known.address, options_.pageBytes) : object->all();
  return !object->held(blocks) && !object->inTransit(blocks) && object->allocation().lent.empty();
}

bool ZeroCopy::pause(Lock& lock) {
  if (++busyWaits_ < pauseAfter_) {
    return false;
  }
  busyWaits_ = 0;
  const bool paused = launches_.pause(lock, kMostPause);
  pauseAfter_ = paused ? kLeastBusyWaits : std::min(2 * pauseAfter_, kMostBusyWaits);
  return paused;
}

// To everybody else a move is device work that writes the object: blocks are closed, accesses of
// the CPU wait for its end, and so do calls and the object's end. A handler of the application on
// this thread would not wait: it comes later.
void ZeroCopy::move(const Known& known) {
  const os::SignalsBlocked blocked;
  std::size_t bytes = 0;
  bool toCpu = false;
  {
    const Lock lock(mutex_);
    const Object* const object = find(known);
    if (object == nullptr ||
        !(isLarge(*object) ? mayPageMove(*object, known.address) : mayMove(*object))) {
      return;
    }
    bytes = isLarge(*object) ? options_.pageBytes : object->bytes();
    toCpu = !object->isZeroCopy();
  }
  const TraceSpan span("memory", "zero copy", {"bytes", bytes});
  const coherence::DeviceRange range{known.address, bytes, true};
  const std::span<const coherence::DeviceRange> ranges(&range, 1);
  if (!launches_.beginOwnWork(ranges, known.address).ok()) {
    return;  // whoever works with the object next is told
  }
  std::unique_ptr<Object> page;
  if (Object* const object = settled(known, toCpu, &page)) {
    moveMemory(*object, std::move(page));
  }
  (void)launches_.endOwnWork(ranges, accel::Ticket{});
}

// Waits for what another thread has submitted meanwhile. Nothing else can be. NULL: another thread
// has freed or moved it. A page that is to leave its object gets an object of its own.
Object* ZeroCopy::settled(const Known& known, bool toCpu, std::unique_ptr<Object>* page) {
  Lock lock(mutex_);
  Object* const object = find(known);
  if (object == nullptr || object->isZeroCopy() == toCpu) {
    return nullptr;
  }
  // Nothing of it is opened or evicted from now on, nor of a page's allocation.
  Object& allocation = object->allocation();
  object->moving = allocation.moving = true;
  while (object->anyInTransit() || allocation.anyInTransit()) {
    lock.waitForChange();
  }
  waits_.forEveryUse(lock);
  if (!isLarge(*object)) {
    pageMoves_ = object->whole != nullptr;
    return object;
  }
  try {
    if (!object->closing && mayPageMove(*object, known.address)) {
      *page = pages_.make(*object, known.address);
      pageMoves_ = true;
      return object;
    }
  } catch (const std::bad_alloc&) {
    object->pageRounds->stop();
  }
  object->moving = false;
  return nullptr;
}

void ZeroCopy::moveMemory(Object& object, std::unique_ptr<Object> page) {
  const bool toCpu = !object.isZeroCopy();
  Object& moves = page != nullptr ? *page : object;
  const Status moved = toCpu ? this->toCpu(moves) : toDevice(moves);
  const Lock lock(mutex_);
  object.moving = object.allocation().moving = pageMoves_ = false;
  if (moved.ok()) {
    this->moved(page != nullptr ? pages_.leaves(std::move(page)) : object,
                toCpu ? accel::Home::kMirror : accel::Home::kDevice);
    return;
  }
  log(LogLevel::kInfo, "object {} ({} bytes) stays where it is: {}", shown(moves.address()),
      moves.bytes(), lastErrorText());
  if (page == nullptr) {
    object.zeroCopy.stays();
    return;
  }
  // (Where there is no room beside it now, there may be later.)
  if (moved.code() == adsmErrorAcceleratorMemory) {
    pages_.comesBack(*page);
  } else {
    object.pageRounds->stop();
  }
  pages_.drop(std::move(page));
}

Status ZeroCopy::copy(Object& object, bool toCpu) {
  os::Mirror& mirror = *object.mirror;
  for (std::size_t offset = 0; offset < object.bytes(); offset += mirror.chunkBytes()) {
    const std::size_t length = std::min(mirror.chunkBytes(), object.bytes() - offset);
    void* const pages = mirror.copyAddress(offset);
    const accel::DeviceAddress device = object.deviceAt(offset);
    const auto copied = toCpu ? accelerator_.copyOut(pages, device, length, accel::Ticket{})
                              : accelerator_.copyIn(device, pages, length, accel::Ticket{});
    GMAC_TRY(copied.status());
    GMAC_TRY(accelerator_.wait(*copied));
  }
  return {};
}

// The pages have to be open for that. What another thread meets in them meanwhile is current
// already, and what it writes there stays: from here on there is no other copy.
Status ZeroCopy::toCpu(Object& object) {
  GMAC_TRY(copy(object, true));
  os::Mirror& mirror = *object.mirror;
  // A kernel that overruns its array a little meets pages there, as in the device's memory.
  const bool page = object.whole != nullptr;
  const std::size_t margin = page ? 0 : memory_->marginOf(object.device, object.bytes());
  Status moved = mirror.protect(0, object.bytes(), os::Access::kReadWrite);
  if (moved.ok() && margin != 0) {
    moved = mirror.addMargin(margin);
  }
  if (moved.ok()) {
    moved = page ? memory_->movePage(object.device, object.bytes(), accel::Home::kMirror, 0)
                 : memory_->move(object.device, object.bytes() + margin, accel::Home::kMirror);
  }
  const std::string words = moved.ok() ? "" : lastErrorText();
  // (Closing all of an object splits no mapping: it does not fail for want of one. What the kernel
  // lacks for a moment, it has the next time.)
  Status closed = mirror.protect(0, object.bytes(), os::Access::kNone);
  if (!closed.ok()) {
    closed = mirror.protect(0, object.bytes(), os::Access::kNone);
  }
  if (!moved.ok()) {
    mirror.removeMargin();
    (void)copy(object, false);
    recordError(moved.code(), words);
    return moved;
  }
  if (!closed.ok()) {
    log(LogLevel::kError, "object {}: {}", shown(object.address()), lastErrorText());
  }
  return {};
}

// To the one that it came from.
Status ZeroCopy::toDevice(Object& object) {
  if (object.whole != nullptr) {
    return memory_->movePage(object.device, object.bytes(), object.whole->home,
                             object.whole->deviceNumber(*memory_));
  }
  GMAC_TRY(object.homeDevice == 0
               ? memory_->move(object.device, object.bytes(), accel::Home::kDevice)
               : accelerator_.devices()->place(object.device, object.bytes(), object.homeDevice));
  object.mirror->removeMargin();
  return {};
}

// Every block is Invalid.
void ZeroCopy::moved(Object& object, accel::Home home) {
  const bool toCpu = home == accel::Home::kMirror;
  if (toCpu) {
    stats().zeroCopies.add();
  } else {
    stats().zeroCopiesEnded.add();
  }
  log(LogLevel::kInfo, "{} {} ({} bytes) {}", object.whole != nullptr ? "page" : "object",
      shown(object.address()), object.bytes(),
      toCpu ? "has one copy now, in the CPU's memory" : "has a copy on the accelerator again");
  concurrent_.forgetRounds();
  (void)takeCalls();
  if (object.whole != nullptr && !toCpu) {
    if (object.concurrent) {
      blocks_.endConcurrent(object);
    }
    pages_.joins(object);
    noteUnwaited();
    noteAny();
    return;
  }
  object.home = toCpu ? home : memory_->gatheredIn();
  object.apartOn = object.home == accel::Home::kApart ? memory_->gatheredOn() : -1;
  object.alone = false;
  if (object.concurrent) {
    blocks_.endConcurrent(object);
  }
  object.zeroCopy.moved(toCpu);
  if (toCpu && unordered_ && kernels_.contended) {
    object.zeroCopy.trust();
  }
  blocks_.zeroCopyChanged(object);
  noteUnwaited();
  noteAny();
}

}  // namespace gmac
