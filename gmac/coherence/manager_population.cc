// SPDX-License-Identifier: Apache-2.0
//
// The background thread's work: population ahead of the CPU, and the pages of freed objects.
#include <pthread.h>

#include <cstddef>

#include "gmac/coherence/manager.h"
#include "gmac/coherence/manager_lock.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {
namespace {

// Whether the calling thread is the background thread.
thread_local bool worksBehind __attribute__((tls_model("initial-exec"))) = false;

}  // namespace

Status Manager::pin(void* address, std::size_t bytes, int fd, std::int64_t offset) {
  if (worksBehind) {
    idle_.await(usesSeen_);
  }
  return accelerator_.pin({address, bytes, fd, offset});
}

Status Manager::unpin(void* address, std::size_t bytes, int fd, std::int64_t offset) {
  return accelerator_.unpin({address, bytes, fd, offset});
}

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

// The next chunk to populate: of the object that the CPU touched last, then of later ones.
Object* Manager::nextToPopulate(std::size_t* chunk) {
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

bool Manager::populateNext() {
  Lock lock(*this);
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
  // A failure here is nobody's yet: whoever needs the chunk meets it again and is told.
  if (!makeReady(lock, *object, chunk).ok()) {
    return false;
  }
  stats().populatedBytes.add(bytes);
  return true;
}

// Gives a freed object's pages back: at once where there is no thread for it, or where it has too
// much to do already.
void Manager::retire(Lock& lock, Object& object) {
  constexpr std::size_t kMostRetiredBytes = std::size_t{2} << 30;
  if (populator_.joinable() && retiredBytes_ + object.bytes() <= kMostRetiredBytes) {
    retiredBytes_ += object.bytes();
    retired_.push_back(object);
    aheadGeneration_.fetch_add(1);
    aheadGeneration_.notify_one();
    return;
  }
  const FreeForWork free(lock);
  delete &object;
}

bool Manager::disposeNext() {
  Lock lock(*this);
  if (retired_.empty()) {
    return false;
  }
  Object& object = retired_.front();
  retired_.pop_front();
  const std::size_t bytes = object.bytes();
  {
    const FreeForWork free(lock);
    delete &object;
  }
  retiredBytes_ -= bytes;
  changed();
  return true;
}

// The background thread. Pages that nobody needs any more go when nobody is kept waiting by it, or
// when there is no such moment.
void Manager::workBehind() {
  (void)::pthread_setname_np(::pthread_self(), "gmac populate");
  constexpr unsigned kMostWaits = 20;
  unsigned waits = 0;
  worksBehind = true;
  for (std::uint32_t seen = aheadGeneration_.load(); !stopping_; seen = aheadGeneration_.load()) {
    for (bool more = true; more && !stopping_;) {
      more = populateNext();
      if (!more && hasRetired()) {
        more = true;
        if (idle_.quiet() || ++waits == kMostWaits) {
          waits = 0;
          (void)disposeNext();
        }
      }
    }
    aheadGeneration_.wait(seen);
  }
}

bool Manager::hasRetired() {
  const Lock lock(*this);
  return !retired_.empty();
}

}  // namespace gmac
