// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/residency.h"

#include <pthread.h>

#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {

void Residency::start() {
  // Signals stay blocked in the thread: the application's handlers never run there.
  const Lock lock(mutex_);
  thread_ = std::thread([this] { backgroundLoop(); });
  freed_.disposeBy(&alarm_);
}

void Residency::stop() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const Lock lock(mutex_);
    freed_.disposeBy(nullptr);
  }
  stopping_ = true;
  alarm_.ring();
  thread_.join();
}

Status Residency::pin(void* address, std::size_t bytes, int fd, std::int64_t offset) {
  if (background_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    idle_.await(usesSeen_);
  }
  return accelerator_.pin({address, bytes, fd, offset});
}

Status Residency::unpin(void* address, std::size_t bytes, int fd, std::int64_t offset) {
  return accelerator_.unpin({address, bytes, fd, offset});
}

void Residency::noteUse(Object& object, std::size_t chunk, Object::Use use) {
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

void Residency::forget(Object& object) {
  if (lastTouched_ == &object) {
    lastTouched_ = nullptr;
  }
  for (std::size_t chunk = 0; chunk < object.chunks.size(); ++chunk) {
    noteUse(object, chunk, Object::Use::kNone);
  }
}

// Makes one chunk's pages exist where the accelerator and the CPU reach them. Lets the lock go.
Status Residency::populate(Lock& lock, Object& object, std::size_t chunk) {
  if (object.chunks[chunk] == Object::Chunk::kPreparing) {
    lock.waitForChange();
    return {};
  }
  object.chunks[chunk] = Object::Chunk::kPreparing;
  ++object.preparing;
  const auto prepare = [&] {
    const FreeForWork free(lock);
    return object.mirror->prepare(chunk);
  };
  Status status = prepare();
  if (status.code() == adsmErrorHostMemory && freed_.giveBackAll(lock)) {
    status = prepare();
  }
  // (The driver's want of memory is not the kernel's of mappings.)
  (void)lock.mapped({});
  if (status.ok()) {
    status = lock.mapped(object.mirror->install(chunk, BlockAccess(object)));
  }
  object.chunks[chunk] = status.ok() ? Object::Chunk::kReady : Object::Chunk::kEmpty;
  if (status.ok()) {
    mappings_.installed(object);
  }
  --object.preparing;
  lock.changed();
  return status;
}

// Threads that wait for the same block, which may be a whole object, populate a chunk each.
Result<Step> Residency::makeReady(Lock& lock, Object& object, BlockIndex index) {
  const std::size_t end = object.chunkOf(object.offsetOf(index + 1) - 1) + 1;
  std::size_t missing = end;
  for (std::size_t chunk = object.chunkOf(object.offsetOf(index)); chunk < end; ++chunk) {
    if (object.uses[chunk] != Object::Use::kTouched) {
      noteUse(object, chunk, Object::Use::kTouched);
      lastTouched_ = &object.allocation();
      alarm_.ring();
    }
    const Object::Chunk state = object.chunks[chunk];
    if (state != Object::Chunk::kReady &&
        (missing == end ||
         (state == Object::Chunk::kEmpty && object.chunks[missing] == Object::Chunk::kPreparing))) {
      missing = chunk;
    }
  }
  if (missing == end) {
    return Step::kDone;
  }
  GMAC_TRY(populate(lock, object, missing));
  return Step::kRetry;
}

Status Residency::populate(Lock& lock, Object& object, BlockRange range) {
  const std::size_t last = object.chunkOf(object.offsetOf(range.end) - 1);
  for (std::size_t chunk = object.chunkOf(object.offsetOf(range.begin)); chunk <= last; ++chunk) {
    while (object.chunks[chunk] != Object::Chunk::kReady) {
      GMAC_TRY(populate(lock, object, chunk));
    }
  }
  return {};
}

Status Residency::populateAll(Object& object) {
  for (std::size_t chunk = 0; chunk < object.chunks.size(); ++chunk) {
    GMAC_TRY(object.mirror->prepare(chunk));
    GMAC_TRY(object.mirror->install(chunk, BlockAccess(object)));
    object.chunks[chunk] = Object::Chunk::kReady;
  }
  return {};
}

// The next chunk to populate: of the object that the CPU touched last, then of later ones.
Object* Residency::nextToPopulate(std::size_t* chunk) {
  const auto emptyChunk = [](Object& object) {
    for (std::size_t chunk = 0; chunk < object.chunks.size(); ++chunk) {
      if (object.chunks[chunk] == Object::Chunk::kEmpty) {
        return chunk;
      }
    }
    return object.chunks.size();
  };
  Object* next = nullptr;
  const auto distance = [&](const Object& object) { return object.number - lastTouched_->number; };
  for (Object& object : index_.all()) {
    if (object.closing || (next != nullptr && distance(object) >= distance(*next))) {
      continue;
    }
    const std::size_t empty = emptyChunk(object);
    if (empty < object.chunks.size()) {
      next = &object;
      *chunk = empty;
    }
  }
  return next;
}

bool Residency::populateNext() {
  Lock lock(mutex_);
  if (lastTouched_ == nullptr || aheadBytes_ >= touchedBytes_) {
    return false;
  }
  std::size_t chunk = 0;
  Object* const object = nextToPopulate(&chunk);
  if (object == nullptr) {
    return false;
  }
  usesSeen_ = idle_.uses();
  noteUse(*object, chunk, Object::Use::kAhead);
  const TraceSpan span("memory", "populate", {"chunk", chunk});
  const std::size_t bytes = object->mirror->chunkBytes();
  // A failure here is ignored: whoever needs the chunk tries again and reports it.
  if (!populate(lock, *object, chunk).ok()) {
    return false;
  }
  stats().populatedBytes.add(bytes);
  return true;
}

// The thread. Freed pages are given back when the application's threads are idle, or when they
// never are.
void Residency::backgroundLoop() {
  (void)::pthread_setname_np(::pthread_self(), "gmac populate");
  constexpr unsigned kMaxWaits = 20;
  unsigned waits = 0;
  background_ = std::this_thread::get_id();
  for (std::uint32_t heard = alarm_.heard(); !stopping_; heard = alarm_.heard()) {
    for (bool more = true; more && !stopping_;) {
      more = populateNext();
      if (!more && freed_.hasMore()) {
        more = true;
        if (idle_.quiet() || ++waits == kMaxWaits) {
          waits = 0;
          (void)freed_.disposeNext();
        }
      }
    }
    alarm_.sleep(heard);
  }
}

}  // namespace gmac
