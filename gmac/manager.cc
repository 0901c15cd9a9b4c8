// SPDX-License-Identifier: Apache-2.0
#include "gmac/manager.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gmac/log.h"
#include "gmac/stats.h"
#include "gmac/trace.h"

namespace gmac {
namespace {

// Blocks of regions that small objects share: finer than those of large objects, because unrelated
// objects meet there.
constexpr std::size_t kSmallBlockBytes = std::size_t{64} << 10;
// The least that a copy of moved pages may have (the driver copies less through the CPU address,
// which is gone).
constexpr std::size_t kMovedGranularity = std::size_t{64} << 10;
// By how much coarsening grows the blocks of an object.
constexpr std::size_t kCoarsenFactor = 16;

constexpr accel::Ticket kDone{};

// What the accelerator said when the calling thread last released a region of small objects.
thread_local Status regionReleased;
// Whether the calling thread's last protection change was refused for want of mappings.
thread_local bool mappingsRefused = false;

}  // namespace

// The manager's lock, with all signals of the thread blocked while it is held.
class Manager::Lock {
 public:
  explicit Lock(Manager& manager) : mutex_(manager.lock_) { acquire(); }
  ~Lock() {
    if (held_) {
      release();
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void acquire() {
    blocked_.emplace();
    mutex_.lock();
    held_ = true;
  }
  void release() {
    held_ = false;
    mutex_.unlock();
    blocked_.reset();
  }

 private:
  std::mutex& mutex_;
  std::optional<os::SignalsBlocked> blocked_;
  bool held_ = false;
};

// ---- Start and end
// ------------------------------------------------------------------------------------------------

Manager::Manager(accel::Accelerator& accelerator, std::unique_ptr<Protocol> protocol,
                 const ManagerOptions& options)
    : accelerator_(accelerator),
      protocol_(std::move(protocol)),
      options_(options),
      small_(static_cast<RegionSource&>(*this)) {}

Result<std::unique_ptr<Manager>> Manager::make(accel::Accelerator& accelerator,
                                               std::unique_ptr<Protocol> protocol,
                                               const ManagerOptions& options) {
  auto arena = os::FileArena::make();
  if (!arena.ok()) {
    return arena.status();
  }
  std::unique_ptr<Manager> manager(new Manager(accelerator, std::move(protocol), options));
  manager->arena_ = std::move(*arena);
  if (options.movedPages) {
    if (!accelerator.copiesReachMovedPages()) {
      return fail(adsmErrorNotSupported, "the {} accelerator cannot copy moved pages",
                  accelerator.name());
    }
    if (!manager->protocol_->wholeObjects() && options.blockBytes < kMovedGranularity) {
      return fail(adsmErrorNotSupported, "moved pages need blocks of at least {} bytes, not {}",
                  kMovedGranularity, options.blockBytes);
    }
    GMAC_TRY(manager->proveMovedPages());
    if (options.populateAhead) {
      const os::SignalsBlocked blocked;  // inherited: the application's handlers never run there
      manager->populator_ = std::thread([m = manager.get()] {
        for (std::uint32_t seen = m->aheadGeneration_.load(); !m->stopping_;
             seen = m->aheadGeneration_.load()) {
          while (!m->stopping_ && m->populateNext()) {
          }
          m->aheadGeneration_.wait(seen);
        }
      });
    }
  }
  return manager;
}

Manager::~Manager() {
  if (populator_.joinable()) {
    stopping_ = true;
    aheadGeneration_.fetch_add(1);
    aheadGeneration_.notify_all();
    populator_.join();
  }
  Lock lock(*this);
  while (!index_.all().empty()) {
    (void)destroy(lock, *index_.all().begin());
  }
}

// Whether this kernel and driver copy to and from pages that moved away: shown with real pages
// before any object depends on it.
Status Manager::proveMovedPages() {
  constexpr std::size_t kBytes = os::kHugePageBytes;
  class Open final : public os::AccessMap {
    os::AccessRun at(std::size_t) const override { return {kBytes, os::Access::kReadWrite}; }
  };
  auto device = accelerator_.allocate(kBytes, os::kHugePageBytes, accel::Placement::kAnywhere);
  if (!device.ok()) {
    return device.status();
  }
  const Status proof = [&]() -> Status {
    auto mirror = os::makeMovedMirror({nullptr, kBytes, kBytes, os::Access::kNone}, *this);
    if (!mirror.ok()) {
      return mirror.status();
    }
    os::Mirror& pages = **mirror;
    GMAC_TRY(pages.prepare(0));
    GMAC_TRY(pages.install(0, Open()));
    const auto pattern = [](std::size_t i) { return static_cast<std::byte>(i * 7 + (i >> 12)); };
    for (std::size_t i = 0; i < kBytes; ++i) {
      pages.address()[i] = pattern(i);
    }
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kNone));
    auto in = accelerator_.copyIn(*device, pages.copyAddress(0), kBytes, kDone);
    if (!in.ok()) {
      return in.status();
    }
    GMAC_TRY(accelerator_.wait(*in));
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kReadWrite));
    std::fill_n(pages.address(), kBytes, std::byte{0});
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kNone));
    for (std::size_t offset = 0; offset < kBytes; offset += kMovedGranularity) {
      auto out =
          accelerator_.copyOut(pages.copyAddress(offset),
                               accel::DeviceAddress{static_cast<std::uintptr_t>(*device) + offset},
                               kMovedGranularity, kDone);
      if (!out.ok()) {
        return out.status();
      }
      GMAC_TRY(accelerator_.wait(*out));
    }
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kRead));
    for (std::size_t i = 0; i < kBytes; ++i) {
      if (pages.address()[i] != pattern(i)) {
        return fail(adsmErrorNotSupported,
                    "copies do not reach moved pages (byte {} of {} differs)", i, kBytes);
      }
    }
    return {};
  }();
  const Status freed = accelerator_.free(*device, kBytes);
  return proof.ok() ? freed : proof;
}

Status Manager::pin(void* address, std::size_t bytes, int fd, std::int64_t offset) {
  return accelerator_.pin({address, bytes, fd, offset});
}

Status Manager::unpin(void* address, std::size_t bytes, int fd, std::int64_t offset) {
  return accelerator_.unpin({address, bytes, fd, offset});
}

// Signals are blocked as under Lock: a handler that faulted between the two would wait for its own
// thread.
void Manager::beforeFork() {
  auto* lock = new Lock(*this);
  forking_ = lock;
}

void Manager::afterForkInParent() {
  const std::unique_ptr<Lock> lock(std::exchange(forking_, nullptr));
}

void Manager::afterForkInChild() {
  forked_ = true;
  afterForkInParent();
}

// ---- Waiting
// ------------------------------------------------------------------------------------------------------

void Manager::waitForChange(Lock& lock) {
  const std::uint32_t seen = generation_.load();
  lock.release();
  generation_.wait(seen);
  lock.acquire();
}

void Manager::changed() {
  generation_.fetch_add(1);
  generation_.notify_all();
}

// Waits for every kernel that may write the object. Kernel errors come out here.
Status Manager::waitForWriters(Lock& lock, Object& object, bool* waited) {
  std::array<accel::Ticket, 66> tickets;
  std::size_t count = 0;
  const auto add = [&](accel::Ticket ticket) {
    if (!accelerator_.done(ticket)) {
      tickets[count++] = ticket;
    }
  };
  add({object.lastWrite});
  if (object.bindings.empty()) {
    add({everyCall_});
  }
  for (std::size_t i = 0; i < streamCount_; ++i) {
    add(streams_[i].ticket);
  }
  *waited = count > 0;
  if (count == 0) {
    return {};
  }
  lock.release();
  Status status;
  {
    const Timed timed(Phase::kGpu);
    for (std::size_t i = 0; i < count && status.ok(); ++i) {
      status = accelerator_.wait(tickets[i]);
    }
  }
  lock.acquire();
  return status;
}

// Waits for all calls and all device work made so far.
Status Manager::waitForPending(Lock& lock) {
  std::array<accel::Ticket, 66> tickets;
  std::size_t count = 0;
  tickets[count++] = {lastCall_};
  for (std::size_t i = 0; i < streamCount_; ++i) {
    tickets[count++] = streams_[i].ticket;
  }
  lock.release();
  Status status;
  {
    const Timed timed(Phase::kGpu);
    for (std::size_t i = 0; i < count; ++i) {
      if (const Status one = accelerator_.wait(tickets[i]); status.ok()) {
        status = one;
      }
    }
  }
  lock.acquire();
  return status;
}

// ---- Blocks
// -------------------------------------------------------------------------------------------------------

void Manager::setState(Object& object, Block& block, State next) {
  if (block.state == next) {
    return;
  }
  if (block.state == State::kDirty) {
    protocol_->leftDirty(block);
  }
  block.state = next;
  if (next == State::kDirty) {
    protocol_->becameDirty(block);
  }
  if (next != State::kInvalid) {
    const BlockIndex index = object.indexOf(block);
    if (object.open.empty()) {
      open_.push_back(object);
    }
    object.widenOpen({index, index + 1});
  }
}

void Manager::setOpen(Object& object, BlockRange range) {
  if (object.open.empty() && !range.empty()) {
    open_.push_back(object);
  } else if (!object.open.empty() && range.empty()) {
    open_.erase(open_.iterator_to(object));
  }
  object.open = range;
}

Status Manager::protect(Object& object, BlockRange range, os::Access access) {
  const Status status =
      object.mirror->protect(object.offsetOf(range.begin), object.lengthOf(range), access);
  mappingsRefused = status.code() == adsmErrorHostMemory;
  return status;
}

// Whether an error is the kernel's limit of mappings, which coarsening lifts; the driver's want of
// memory is not.
bool Manager::outOfMappings(Status status) const {
  return status.code() == adsmErrorHostMemory && mappingsRefused;
}

// Queues copies of a block range to the accelerator, one per chunk, and notes their tickets in the
// blocks.
Status Manager::flush(Object& object, BlockRange range, accel::Ticket after) {
  const std::size_t end = object.offsetOf(range.end);
  accel::Ticket ticket;
  Status status;
  for (std::size_t offset = object.offsetOf(range.begin); offset < end;) {
    const std::size_t chunkBytes = object.mirror->chunkBytes();
    const std::size_t stop = std::min(end, (offset / chunkBytes + 1) * chunkBytes);
    auto copied = accelerator_.copyIn(object.deviceAt(offset), object.mirror->copyAddress(offset),
                                      stop - offset, after);
    if (!copied.ok()) {
      status = copied.status();
      break;
    }
    ticket = *copied;
    stats().flushes.add();
    stats().bytesToAccelerator.add(stop - offset);
    offset = stop;
  }
  // Also after a failure: chunks before it are in flight.
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    object[i].flushed = std::max(object[i].flushed, ticket.value);
  }
  return status;
}

// Copies Invalid blocks from the accelerator, which must have finished with them, and opens them as
// `next`.
Status Manager::fetch(Lock& lock, Object& object, BlockRange range, State next) {
  // Usually a kernel has run since the blocks were flushed; not if its launch failed.
  accel::Ticket after;
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    object[i].busy = true;
    after.value = std::max(after.value, object[i].flushed);
  }
  object.busy += static_cast<std::uint32_t>(range.end - range.begin);
  // Calls look for busy objects among the open ones only: a call made during the copy must wait for
  // it.
  if (object.open.empty()) {
    open_.push_back(object);
  }
  object.widenOpen(range);
  const std::size_t begin = object.offsetOf(range.begin);
  const std::size_t end = object.offsetOf(range.end);
  lock.release();
  const Status status = [&]() -> Status {
    const Timed timed(Phase::kCopy);
    const TraceSpan span("copy", "fetch", {"bytes", end - begin});
    accel::Ticket ticket;
    for (std::size_t offset = begin; offset < end;) {
      const std::size_t chunkBytes = object.mirror->chunkBytes();
      const std::size_t stop = std::min(end, (offset / chunkBytes + 1) * chunkBytes);
      auto copied = accelerator_.copyOut(object.mirror->copyAddress(offset),
                                         object.deviceAt(offset), stop - offset, after);
      if (!copied.ok()) {
        // The chunks before it are in flight to pages that the caller may give up.
        (void)accelerator_.wait(ticket);
        return copied.status();
      }
      ticket = *copied;
      stats().fetches.add();
      stats().bytesToHost.add(stop - offset);
      offset = stop;
    }
    return accelerator_.wait(ticket);
  }();
  lock.acquire();
  const Status opened = status.ok() ? protect(object, range, accessOf(next)) : status;
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    object[i].busy = false;
    if (opened.ok()) {
      setState(object, object[i], next);
    }
  }
  object.busy -= static_cast<std::uint32_t>(range.end - range.begin);
  changed();
  return opened;
}

// The blocks that one read fault fetches: the faulting one, and behind it, while the reader goes on
// sequentially, twice as much as last time, up to the limit.
BlockRange Manager::readAhead(Object& object, BlockIndex index) {
  const bool sequential = index == object.expected && object.aheadBytes > 0;
  const std::size_t wanted =
      sequential ? std::min(object.aheadBytes * 2, options_.readAheadBytes) : object.blockBytes;
  const std::size_t most = std::max<std::size_t>(1, wanted / object.blockBytes);
  BlockIndex end = index + 1;
  const auto ready = [&](BlockIndex i) {
    const std::size_t last = object.chunkOf(object.offsetOf(i + 1) - 1);
    for (std::size_t chunk = object.chunkOf(object.offsetOf(i)); chunk <= last; ++chunk) {
      if (object.chunks[chunk] != Object::Chunk::kReady) {
        return false;
      }
    }
    return true;
  };
  while (end - index < most && end < object.all().end && object[end].state == State::kInvalid &&
         !object[end].busy && ready(end)) {
    end = end + 1;
  }
  object.expected = end;
  object.aheadBytes = (end - index) * object.blockBytes;
  return {index, end};
}

Status Manager::evictExcess() {
  while (Block* block = protocol_->excess()) {
    Object& object = *block->owner;
    const BlockIndex index = object.indexOf(*block);
    const BlockRange range{index, index + 1};
    const Transition transition = protocol_->on(State::kDirty, Event::kEvict);
    GMAC_TRY(protect(object, range, accessOf(transition.next)));
    // A call that only reads the object may still be running: its copy must not change under it.
    if (const Status flushed = flush(object, range, accel::Ticket{object.lastRead});
        !flushed.ok()) {
      object.strict = true;
      return flushed;
    }
    setState(object, *block, transition.next);
    stats().evictions.add();
  }
  return {};
}

// The block that was just opened must not go: whoever faulted would fault again for ever, and a
// hold would be closed.
Status Manager::evictExcessBut(Block& block) {
  ++block.holds;
  const Status status = evictExcess();
  --block.holds;
  return status;
}

namespace {

// Answers install(): the protections that an object's blocks shall have.
class BlockAccess final : public os::AccessMap {
 public:
  explicit BlockAccess(Object& object) : object_(object) {}
  os::AccessRun at(std::size_t offset) const override {
    BlockIndex index{offset / object_.blockBytes};
    const os::Access access = accessOf(object_[index].state);
    do {
      index = index + 1;
    } while (index < object_.all().end && accessOf(object_[index].state) == access);
    return {object_.offsetOf(index) - offset, access};
  }

 private:
  Object& object_;
};

}  // namespace

// Makes one chunk's pages exist where the accelerator and the CPU reach them. Lets the lock go.
Status Manager::makeReady(Lock& lock, Object& object, std::size_t chunk) {
  if (object.chunks[chunk] == Object::Chunk::kPreparing) {
    waitForChange(lock);
    return {};
  }
  object.chunks[chunk] = Object::Chunk::kPreparing;
  ++object.busy;
  lock.release();
  Status status = object.mirror->prepare(chunk);
  lock.acquire();
  mappingsRefused = false;
  if (status.ok()) {
    status = object.mirror->install(chunk, BlockAccess(object));
    mappingsRefused = status.code() == adsmErrorHostMemory;
  }
  object.chunks[chunk] = status.ok() ? Object::Chunk::kReady : Object::Chunk::kEmpty;
  --object.busy;
  changed();
  return status;
}

Result<Manager::Step> Manager::openBlockOnce(Lock& lock, Object& object, BlockIndex index,
                                             bool write) {
  Block& block = object[index];
  if (block.busy) {
    waitForChange(lock);
    return Step::kRetry;
  }
  if (deviceWork_ && *deviceWork_ != std::this_thread::get_id() && block.state == State::kInvalid) {
    waitForChange(lock);
    return Step::kRetry;
  }
  const std::size_t lastChunk = object.chunkOf(object.offsetOf(index + 1) - 1);
  for (std::size_t chunk = object.chunkOf(object.offsetOf(index)); chunk <= lastChunk; ++chunk) {
    if (object.uses[chunk] != Object::Use::kTouched) {
      noteUse(object, chunk, Object::Use::kTouched);
      lastTouched_ = &object;
      if (populator_.joinable()) {
        aheadGeneration_.fetch_add(1);
        aheadGeneration_.notify_one();
      }
    }
    if (object.chunks[chunk] != Object::Chunk::kReady) {
      GMAC_TRY(makeReady(lock, object, chunk));
      return Step::kRetry;
    }
  }
  const Transition transition = protocol_->on(block.state, write ? Event::kWrite : Event::kRead);
  if (transition.move == Move::kFetch) {
    bool waited = false;
    GMAC_TRY(waitForWriters(lock, object, &waited));
    if (waited) {
      return Step::kRetry;
    }
    const BlockRange range = transition.next == State::kReadOnly ? readAhead(object, index)
                                                                 : BlockRange{index, index + 1};
    GMAC_TRY(fetch(lock, object, range, transition.next));
    if (transition.next == State::kDirty) {
      GMAC_TRY(evictExcessBut(block));
    }
    return Step::kRetry;
  }
  // A write waits for what reads the old bytes: the copy of its own eviction, and device work of
  // the application's own, which later flushes would not wait for as they do for calls.
  accel::Ticket ticket;
  if (transition.next == State::kDirty && block.state != State::kDirty) {
    if (!accelerator_.done({block.flushed})) {
      ticket.value = block.flushed;
    }
    for (std::size_t i = 0; ticket.value == 0 && i < streamCount_; ++i) {
      if (streams_[i].reads && !accelerator_.done(streams_[i].ticket)) {
        ticket = streams_[i].ticket;
      }
    }
  }
  if (ticket.value != 0) {
    block.busy = true;
    ++object.busy;
    lock.release();
    Status status;
    {
      const Timed timed(Phase::kCopy);
      status = accelerator_.wait(ticket);
    }
    lock.acquire();
    block.busy = false;
    --object.busy;
    changed();
    GMAC_TRY(status);
    return Step::kRetry;
  }
  // Also when nothing changes: another thread may have been faster, or a protection may have been
  // left stricter than the state by a failure.
  GMAC_TRY(protect(object, {index, index + 1}, accessOf(transition.next)));
  if (block.state != transition.next) {
    setState(object, block, transition.next);
    GMAC_TRY(evictExcessBut(block));
  }
  return Step::kDone;
}

// openBlockOnce, with the kernel's limit of mappings lifted by coarsening where it is met.
Result<Manager::Step> Manager::openBlock(Lock& lock, Object& object, BlockIndex index, bool write) {
  auto step = openBlockOnce(lock, object, index, write);
  if (!step.ok() && outOfMappings(step.status())) {
    GMAC_TRY(coarsen(lock));
    return Step::kRetry;
  }
  return step;
}

// ---- Faults
// -------------------------------------------------------------------------------------------------------

bool Manager::onFault(void* address, bool write) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at < lowest_.load(std::memory_order_relaxed) ||
      at >= highest_.load(std::memory_order_relaxed)) {
    return false;
  }
  const Timed timed(Phase::kSignal);
  const TraceSpan span("fault", write ? "write fault" : "read fault", {"address", at});
  Lock lock(*this);
  bool counted = false;
  for (;;) {
    Object* object = index_.find(address);
    if (object == nullptr || object->closing) {
      return false;
    }
    if (forked_) {
      log(LogLevel::kError,
          "a child of fork touched shared object {} at {}: children have no shared objects",
          fmt::ptr(object->address()), address);
      return false;
    }
    if (!counted) {
      counted = true;
      (write ? stats().writeFaults : stats().readFaults).add();
    }
    const BlockIndex index = object->indexOf(address);
    std::byte* const base = object->address();
    auto step = openBlock(lock, *object, index, write);
    if (!step.ok()) {
      object = index_.find(base);
      if (object == nullptr) {
        return false;
      }
      die(*object, index, write ? "a write fault" : "a read fault");
    }
    if (*step == Step::kDone) {
      return true;
    }
    // What was done with the lock let go may have opened the block; the access is the cheapest way
    // to find out, and a state that permits it needs no more work here.
    object = index_.find(address);
    if (object != nullptr && !object->closing) {
      const Block& block = (*object)[object->indexOf(address)];
      const bool ready =
          object->chunks[object->chunkOf(static_cast<std::size_t>(
              static_cast<std::byte*>(address) - object->address()))] == Object::Chunk::kReady;
      if (ready && !block.busy &&
          (block.state == State::kDirty || (!write && block.state == State::kReadOnly))) {
        return true;
      }
    }
  }
}

void Manager::die(const Object& object, BlockIndex index, const char* operation) noexcept {
  log(LogLevel::kError, "object {} ({} bytes), block {}: {} failed: {}", fmt::ptr(object.address()),
      object.bytes(), static_cast<std::size_t>(index), operation, lastErrorText());
  std::abort();
}

// ---- Objects
// ------------------------------------------------------------------------------------------------------

Result<void*> Manager::allocate(std::size_t size, accel::Placement placement) {
  const Timed timed(Phase::kMalloc);
  if (forked_) {
    return fail(adsmErrorForked, "adsmAlloc in a child of fork");
  }
  if (size == 0) {
    return fail(adsmErrorInvalidValue, "adsmAlloc: size is 0; allowed are 1 byte or more");
  }
  constexpr std::size_t kMost = std::size_t{1} << 46;
  if (size > kMost) {
    return fail(adsmErrorInvalidValue, "adsmAlloc: size is {}; allowed are 1 to {} bytes", size,
                kMost);
  }
  Result<void*> address(nullptr);
  if (size <= SmallHeap::kLargestObject && placement == accel::Placement::kSameAddress) {
    address = small_.allocate(size);
  } else {
    auto object = makeObject(size, options_.blockBytes, placement, false);
    if (!object.ok()) {
      return object.status();
    }
    address = static_cast<void*>((*object)->address());
  }
  if (address.ok()) {
    stats().allocations.add();
  }
  return address;
}

Result<Object*> Manager::makeObject(std::size_t size, std::size_t blockBytes,
                                    accel::Placement placement, bool sharedBySmallObjects) {
  const bool moved = options_.movedPages;
  const std::size_t bytes = os::roundUp(size, moved ? kMovedGranularity : os::pageBytes());
  auto device = [&] {
    const Timed timed(Phase::kCudaMalloc);
    return accelerator_.allocate(bytes, os::kHugePageBytes, placement);
  }();
  if (!device.ok() && device.status().code() == adsmErrorAddressConflict) {
    // The text is being replaced, so keep its words.
    const std::string words = lastErrorText();
    return fail(
        adsmErrorAddressConflict,
        "adsmAlloc: no address is free on both sides for {} bytes ({}); adsmSafeAlloc() gives an "
        "object whose address is valid on the CPU only",
        size, words);
  }
  if (!device.ok()) {
    return device.status();
  }
  const bool sameAddress = placement == accel::Placement::kSameAddress;
  const os::MirrorPlace place{
      sameAddress ? reinterpret_cast<void*>(static_cast<std::uintptr_t>(*device)) : nullptr, bytes,
      options_.chunkBytes, accessOf(protocol_->initial())};
  std::unique_ptr<Object> object;
  const Status made = [&]() -> Status {
    try {
      auto mirror =
          moved ? os::makeMovedMirror(place, *this) : os::makeFileMirror(place, *arena_, *this);
      if (!mirror.ok()) {
        return mirror.status();
      }
      object = std::make_unique<Object>(std::move(*mirror), *device,
                                        protocol_->wholeObjects() && !sharedBySmallObjects
                                            ? os::roundUp(bytes, os::pageBytes())
                                            : blockBytes,
                                        protocol_->initial());
      object->sharedBySmallObjects = sharedBySmallObjects;
      object->sameAddress = sameAddress;
      // Dirty blocks are flushed without a fault before, so their pages must be there from the
      // start.
      if (protocol_->initial() == State::kDirty) {
        for (std::size_t chunk = 0; chunk < object->chunks.size(); ++chunk) {
          GMAC_TRY(object->mirror->prepare(chunk));
          GMAC_TRY(object->mirror->install(chunk, BlockAccess(*object)));
          object->chunks[chunk] = Object::Chunk::kReady;
        }
      }
      return {};
    } catch (const std::bad_alloc&) {
      return fail(adsmErrorHostMemory, "adsmAlloc: no memory for the blocks of {} bytes", size);
    }
  }();
  if (!made.ok()) {
    object.reset();
    (void)accelerator_.free(*device, bytes);
    return made;
  }
  Lock lock(*this);
  Object* result = object.release();
  index_.insert(*result);
  open_.push_back(*result);
  protocol_->allocated();
  if (result->blocks[0].state == State::kDirty) {
    for (std::size_t i = 0; i < result->blockCount; ++i) {
      protocol_->becameDirty(result->blocks[i]);
    }
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(result->address());
  lowest_ = std::min(lowest_.load(), begin);
  highest_ = std::max(highest_.load(), begin + bytes);
  return result;
}

Status Manager::free(void* address) {
  const Timed timed(Phase::kFree);
  if (forked_) {
    return fail(adsmErrorForked, "adsmFree({}) in a child of fork", address);
  }
  if (address == nullptr) {
    return {};
  }
  {
    Lock lock(*this);
    Object* object = index_.find(address);
    if (object == nullptr || object->closing) {
      return fail(adsmErrorInvalidPointer,
                  "adsmFree({}): no shared object is there (never allocated, or freed already)",
                  address);
    }
    if (!object->sharedBySmallObjects) {
      if (object->address() != address) {
        return fail(adsmErrorInvalidPointer,
                    "adsmFree({}): inside the object that starts at {}, not its start", address,
                    fmt::ptr(object->address()));
      }
      GMAC_TRY(destroy(lock, *object));
      stats().frees.add();
      return {};
    }
  }
  regionReleased = {};
  GMAC_TRY(small_.free(address));
  stats().frees.add();
  return regionReleased;
}

// Takes an object out of use and gives its memory back on both sides. Lets the lock go; leaves it
// held.
Status Manager::destroy(Lock& lock, Object& object) {
  object.closing = true;  // nothing new begins on it, and a second free finds nothing
  while (object.busy > 0 || object.holds > 0 || deviceWork_) {
    waitForChange(lock);
  }
  // Kernels that may use it, and copies that name its pages. An accelerator that is lost has no
  // such work any more; a kernel's error stays for adsmSync to tell.
  accel::Ticket flushed;
  for (std::size_t i = 0; i < object.blockCount; ++i) {
    flushed.value = std::max(flushed.value, object.blocks[i].flushed);
  }
  bool waited = false;
  (void)waitForWriters(lock, object, &waited);
  const accel::Ticket read{object.lastRead};
  lock.release();
  (void)accelerator_.wait(read);
  (void)accelerator_.wait(flushed);
  lock.acquire();

  for (std::size_t i = 0; i < object.blockCount; ++i) {
    if (object.blocks[i].state == State::kDirty) {
      protocol_->leftDirty(object.blocks[i]);
    }
  }
  if (!object.open.empty()) {
    open_.erase(open_.iterator_to(object));
  }
  std::erase(bound_, &object);
  if (lastTouched_ == &object) {
    lastTouched_ = nullptr;
  }
  for (std::size_t chunk = 0; chunk < object.chunks.size(); ++chunk) {
    noteUse(object, chunk, Object::Use::kNone);
  }
  index_.erase(object);
  changed();
  lock.release();

  const std::size_t bytes = object.bytes();
  const accel::DeviceAddress device = object.device;
  delete &object;
  Status status;
  {
    const Timed timed(Phase::kCudaFree);
    status = accelerator_.free(device, bytes);
  }
  lock.acquire();
  return status;
}

Result<void*> Manager::acquire(std::size_t bytes) {
  auto object = makeObject(bytes, std::min(options_.blockBytes, kSmallBlockBytes),
                           accel::Placement::kSameAddress, true);
  if (!object.ok()) {
    return object.status();
  }
  return static_cast<void*>((*object)->address());
}

// The region is gone whatever the accelerator says to it, and the heap must know; free() tells the
// error.
Status Manager::release(void* region) {
  Lock lock(*this);
  regionReleased = destroy(lock, *index_.find(region));
  return {};
}

// An address inside a region of small objects must be in one that lives. (The heap's lock comes
// before the manager's.)
Status Manager::checkSmall(const char* function, const void* address) {
  {
    Lock lock(*this);
    const Object* object = index_.find(address);
    if (object == nullptr || !object->sharedBySmallObjects) {
      return {};
    }
  }
  if (!small_.find(address)) {
    return fail(adsmErrorInvalidPointer,
                "{}: {} is in no shared object (never allocated, or freed)", function, address);
  }
  return {};
}

Result<void*> Manager::deviceAddress(const void* address) {
  if (forked_) {
    return fail(adsmErrorForked, "adsmSafe({}) in a child of fork", address);
  }
  GMAC_TRY(checkSmall("adsmSafe", address));
  Lock lock(*this);
  Object* object = index_.find(address);
  if (object == nullptr || object->closing) {
    return fail(adsmErrorInvalidPointer, "adsmSafe({}): no shared object is there", address);
  }
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(address) - object->address());
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(object->deviceAt(offset)));
}

// ---- Calls
// --------------------------------------------------------------------------------------------------------

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
// per run of dirty ones. No block of the range is busy or held.
Status Manager::releaseBlocks(Object& object, BlockRange range, Event event) {
  range = {std::max(range.begin, object.open.begin), std::min(range.end, object.open.end)};
  if (range.empty()) {
    return {};
  }
  const auto nextOf = [&](BlockIndex i) { return protocol_->on(object[i].state, event).next; };
  const bool closesAll = protocol_->on(State::kDirty, event).next == State::kInvalid;
  if (closesAll) {
    Status closed = protect(object, range, os::Access::kNone);
    if (!closed.ok() && outOfMappings(closed) && range.begin <= object.open.begin &&
        range.end >= object.open.end) {
      // Closing the whole object never splits a mapping.
      closed = protect(object, object.all(), os::Access::kNone);
    }
    GMAC_TRY(closed);
  } else {
    for (BlockIndex i = range.begin; i < range.end;) {
      const os::Access access = accessOf(nextOf(i));
      if (access == accessOf(object[i].state)) {
        i = i + 1;
        continue;
      }
      BlockIndex end = i + 1;
      while (end < range.end && accessOf(nextOf(end)) == access) {
        end = end + 1;
      }
      GMAC_TRY(protect(object, {i, end}, access));
      i = end;
    }
  }
  accel::Ticket stillOpen;
  for (BlockIndex i = range.begin; i < range.end;) {
    const Transition transition = protocol_->on(object[i].state, event);
    BlockIndex end = i + 1;
    while (end < range.end && protocol_->on(object[end].state, event) == transition &&
           object[end].state == object[i].state) {
      end = end + 1;
    }
    if (transition.move == Move::kFlush) {
      GMAC_TRY(flush(object, {i, end}, accel::Ticket{object.lastRead}));
      if (transition.next == State::kDirty) {
        stillOpen.value = object[i].flushed;
      }
    }
    for (; i < end; i = i + 1) {
      setState(object, object[i], transition.next);
    }
  }
  if (closesAll && range.begin <= object.open.begin && range.end >= object.open.end) {
    setOpen(object, {});
  }
  // Blocks that stay writable must have arrived before the caller goes on and writes them
  // (batch-update).
  return stillOpen.value != 0 ? accelerator_.wait(stillOpen) : Status();
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
  if (forked_) {
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
  Lock lock(*this);
  GMAC_TRY(load(kernel));
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
        waitForChange(lock);
        again = true;
        break;
      }
      const Status released = releaseBlocks(object, object.all(), event);
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
  auto launched = [&] {
    const Timed launching(Phase::kCudaLaunch);
    return accelerator_.launch(*kernel->loaded, shape, arguments.pointers());
  }();
  if (!launched.ok()) {
    return launched.status();
  }
  stats().calls.add();
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
    everyCall_ = launched->value;
    for (Object* object : bound_) {
      Event event{};
      if (usesObject(*object, kernel, &event)) {
        note(*object, event);
      }
    }
  }
  lastCall_ = launched->value;
  return {};
}

Status Manager::bind(const void* address, adsmKernel_t kernel, adsmAccess_t access) {
  if (access < adsmRead || access > adsmReadWrite) {
    return fail(adsmErrorInvalidValue,
                "adsmBind: access {}; allowed are adsmRead, adsmWrite, adsmReadWrite",
                static_cast<int>(access));
  }
  if (forked_) {
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
  object->lastWrite = std::max(object->lastWrite, object->bindings.empty() ? everyCall_ : 0);
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

Status Manager::load(adsmKernel_t kernel) {
  if (kernel->loaded) {
    return {};
  }
  auto loaded = accelerator_.load(kernel->desc);
  if (!loaded.ok()) {
    return loaded.status();
  }
  kernel->loaded = std::move(*loaded);
  return {};
}

Status Manager::setConstant(adsmKernel_t kernel, const adsmConstant_t& constant, const void* data,
                            std::size_t bytes) {
  if (forked_) {
    return fail(adsmErrorForked, "adsmSetConstant({}) in a child of fork", kernel->name);
  }
  // The data may lie in a shared object, which must not be touched by the driver or under the lock.
  const auto* begin = static_cast<const std::byte*>(data);
  const std::vector<std::byte> copy(begin, begin + bytes);
  Lock lock(*this);
  GMAC_TRY(load(kernel));
  return accelerator_.setConstant(*kernel->loaded, constant, copy.data(), bytes);
}

Status Manager::forget(adsmKernel_t kernel) {
  if (forked_) {
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
  if (forked_) {
    return fail(adsmErrorForked, "adsmSync in a child of fork");
  }
  stats().syncs.add();
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
    GMAC_TRY(fetch(lock, *object, {begin, end}, transition.next));
  }
  return {};
}

// ---- For the interposers
// ------------------------------------------------------------------------------------------

bool Manager::touchesShared(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (begin >= highest_.load(std::memory_order_relaxed) ||
      begin + bytes <= lowest_.load(std::memory_order_relaxed) || bytes == 0) {
    return false;
  }
  Lock lock(*this);
  const Object* object = index_.firstEndingAfter(address);
  return object != nullptr && object->address() < static_cast<const std::byte*>(address) + bytes;
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

Status Manager::hold(const void* address, std::size_t bytes, bool write) {
  if (forked_ || bytes == 0) {
    return {};
  }
  const auto* const begin = static_cast<const std::byte*>(address);
  const auto* const end = begin + bytes;
  const std::byte* position = begin;
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
    const bool open = !block.busy && !object->strict &&
                      (block.state == State::kDirty || (!write && block.state == State::kReadOnly));
    const bool ready =
        object->chunks[object->chunkOf(object->offsetOf(index))] == Object::Chunk::kReady;
    if (!open || (!ready && (write || !object->mirror->readableBeforeInstall()))) {
      auto step = openBlock(lock, *object, index, write);
      if (!step.ok()) {
        const Status failed = step.status();
        lock.release();
        unhold(begin, static_cast<std::size_t>(position - begin));
        lock.acquire();
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
  if (forked_ || bytes == 0) {
    return;
  }
  const auto* const begin = static_cast<const std::byte*>(address);
  const auto* const end = begin + bytes;
  const std::byte* position = begin;
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
  if (forked_) {
    return fail(adsmErrorForked, "device work in a child of fork");
  }
  Lock lock(*this);
  for (bool again = true; again;) {
    again = false;
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
            (begin != nullptr && (end <= object.address() || begin >= object.end()))) {
          continue;
        }
        if (object.busy > 0 || object.holds > 0) {
          waitForChange(lock);
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
        const Status released =
            releaseBlocks(object, blocks, range.write ? Event::kCall : Event::kCallRead);
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
  }
  GMAC_TRY(accelerator_.fence(stream));
  deviceWork_ = std::this_thread::get_id();
  deviceReads_ = std::any_of(ranges.begin(), ranges.end(),
                             [](const coherence::DeviceRange& range) { return !range.write; });
  return {};
}

Status Manager::endDeviceWork(accel::NativeStream stream, bool submitted) {
  Lock lock(*this);
  Status status;
  if (submitted) {
    auto ticket = accelerator_.mark(stream);
    if (ticket.ok()) {
      stats().calls.add();
      auto* const end = streams_.data() + streamCount_;
      auto* entry = std::find_if(streams_.data(), end,
                                 [&](const StreamWork& work) { return work.stream == stream; });
      if (entry == end) {
        // A finished entry, a new one, or the oldest, waited for.
        entry = std::find_if(streams_.data(), end, [&](const StreamWork& work) {
          return accelerator_.done(work.ticket);
        });
      }
      if (entry == end && streamCount_ < streams_.size()) {
        ++streamCount_;
      } else if (entry == end) {
        entry = &streams_[nextStream_++ % streams_.size()];
        status = accelerator_.wait(entry->ticket);
      }
      *entry = {stream, *ticket,
                deviceReads_ ||
                    (entry->stream == stream && entry->reads && !accelerator_.done(entry->ticket))};
      if (deviceReads_ && protocol_->on(State::kDirty, Event::kCallRead).next == State::kDirty) {
        status = accelerator_.wait(*ticket);  // writes go undetected (batch-update)
      }
    } else {
      status = ticket.status();
    }
  }
  deviceWork_.reset();
  changed();
  return status;
}

Status Manager::afterDeviceWait() {
  if (forked_ || !protocol_->fetchesAtSync()) {
    return {};
  }
  Lock lock(*this);
  if (!accelerator_.done({lastCall_})) {
    return {};
  }
  for (std::size_t i = 0; i < streamCount_; ++i) {
    if (!accelerator_.done(streams_[i].ticket)) {
      return {};
    }
  }
  return fetchAfterSync(lock);
}

// ---- Population ahead
// ---------------------------------------------------------------------------------------------

void Manager::noteUse(Object& object, std::size_t chunk, Object::Use use) {
  const std::size_t bytes = object.mirror->chunkBytes();
  if (object.uses[chunk] == Object::Use::kTouched) {
    touchedBytes_ -= bytes;
  } else if (object.uses[chunk] == Object::Use::kAhead) {
    aheadBytes_ -= bytes;
  }
  object.uses[chunk] = use;
  if (use == Object::Use::kTouched) {
    touchedBytes_ += bytes;
  } else if (use == Object::Use::kAhead) {
    aheadBytes_ += bytes;
  }
}

bool Manager::populateNext() {
  Lock lock(*this);
  if (lastTouched_ == nullptr || aheadBytes_ >= touchedBytes_) {
    return false;
  }
  const auto emptyChunk = [](Object& object) {
    for (std::size_t chunk = 0; chunk < object.chunks.size(); ++chunk) {
      if (object.chunks[chunk] == Object::Chunk::kEmpty) {
        return chunk;
      }
    }
    return object.chunks.size();
  };
  // First what the CPU is in, then the others.
  Object* object = lastTouched_;
  std::size_t chunk = emptyChunk(*object);
  if (chunk == object->chunks.size() || object->closing) {
    object = nullptr;
    for (Object& other : index_.all()) {
      chunk = emptyChunk(other);
      if (!other.closing && chunk < other.chunks.size()) {
        object = &other;
        break;
      }
    }
  }
  if (object == nullptr) {
    return false;
  }
  noteUse(*object, chunk, Object::Use::kAhead);
  const TraceSpan span("memory", "populate", {"chunk", chunk});
  const std::size_t bytes = object->mirror->chunkBytes();
  // A failure here is nobody's yet: whoever needs the chunk meets it again and is told.
  if (!makeReady(lock, *object, chunk).ok()) {
    return false;
  }
  stats().populatedBytes.add(bytes);
  return true;
}

// ---- Coarsening
// ---------------------------------------------------------------------------------------------------

// The kernel's limit of mappings is reached: grows the blocks of the object that has the most of
// them.
Status Manager::coarsen(Lock& lock) {
  Object* most = nullptr;
  for (Object& object : index_.all()) {
    if (!object.closing && object.busy == 0 && object.holds == 0 && object.blockCount > 1 &&
        (most == nullptr || object.blockCount > most->blockCount)) {
      most = &object;
    }
  }
  if (most == nullptr) {
    return fail(adsmErrorHostMemory,
                "the kernel's limit of memory mappings is reached (vm.max_map_count) and no object "
                "has blocks left to join");
  }
  return coarsen(lock, *most, kCoarsenFactor);
}

Status Manager::coarsen(Lock& lock, Object& object, std::size_t factor) {
  // Closing the whole object never splits a mapping, and frees those that its blocks have taken.
  GMAC_TRY(protect(object, object.all(), os::Access::kNone));
  object.strict = true;
  for (std::size_t i = 0; i < object.blockCount; ++i) {
    object.blocks[i].busy = true;
  }
  object.busy += static_cast<std::uint32_t>(object.blockCount);
  const std::size_t newCount = (object.blockCount + factor - 1) / factor;
  const auto groupEnd = [&](std::size_t group) {
    return BlockIndex{std::min((group + 1) * factor, object.blockCount)};
  };
  // A group whose CPU copy is current in part is made current as a whole.
  Status status;
  bool waited = true;
  while (status.ok() && waited) {
    status = waitForWriters(lock, object, &waited);
  }
  for (std::size_t group = 0; status.ok() && group < newCount; ++group) {
    const BlockRange range{BlockIndex{group * factor}, groupEnd(group)};
    bool current = false;
    for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
      current = current || object[i].state != State::kInvalid;
    }
    for (BlockIndex i = range.begin; current && status.ok() && i < range.end; i = i + 1) {
      if (object[i].state != State::kInvalid) {
        continue;
      }
      const std::size_t offset = object.offsetOf(i);
      const std::size_t bytes = object.lengthOf({i, i + 1});
      const std::size_t chunk = object.chunkOf(offset);
      while (status.ok() && object.chunks[chunk] != Object::Chunk::kReady) {
        status = makeReady(lock, object, chunk);
      }
      if (!status.ok()) {
        break;
      }
      auto copied =
          accelerator_.copyOut(object.mirror->copyAddress(offset), object.deviceAt(offset), bytes,
                               accel::Ticket{object[i].flushed});
      status = copied.ok() ? accelerator_.wait(*copied) : copied.status();
      if (status.ok()) {
        stats().fetches.add();
        stats().bytesToHost.add(bytes);
        setState(object, object[i], State::kReadOnly);
      }
    }
  }
  object.busy -= static_cast<std::uint32_t>(object.blockCount);
  for (std::size_t i = 0; i < object.blockCount; ++i) {
    object.blocks[i].busy = false;
  }
  if (status.ok()) {
    const State initialOfNone = State::kInvalid;
    for (std::size_t group = 0; group < newCount; ++group) {
      State state = initialOfNone;
      std::uint64_t flushed = 0;
      for (BlockIndex i{group * factor}; i < groupEnd(group); i = i + 1) {
        Block& block = object[i];
        flushed = std::max(flushed, block.flushed);
        state = std::max(state, block.state);  // Invalid < ReadOnly < Dirty
        if (block.state == State::kDirty) {
          protocol_->leftDirty(block);
        }
        block.state = State::kInvalid;
        block.flushed = 0;
      }
      Block& joined = object.blocks[group];
      joined.flushed = flushed;
      joined.state = state;
      if (state == State::kDirty) {
        protocol_->becameDirty(joined);
      }
    }
    object.blockBytes *= factor;
    object.blockCount = newCount;
    object.aheadBytes = 0;
    if (!object.open.empty()) {
      object.open = object.all();
    }
    stats().coarsenings.add();
  }
  // Reopen what the (old or new) blocks allow; a block that is left too strict is opened by its
  // next fault.
  for (BlockIndex i = object.all().begin; i < object.all().end;) {
    const os::Access access = accessOf(object[i].state);
    BlockIndex end = i + 1;
    while (end < object.all().end && accessOf(object[end].state) == access) {
      end = end + 1;
    }
    if (access != os::Access::kNone && status.ok()) {
      status = protect(object, {i, end}, access);
      if (outOfMappings(status)) {
        status = Status();
        break;
      }
    }
    i = end;
  }
  changed();
  return status;
}

}  // namespace gmac
