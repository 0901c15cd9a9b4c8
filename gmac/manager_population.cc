// SPDX-License-Identifier: Apache-2.0
//
// The background thread's work: population ahead of the CPU, and the pages of freed objects.
#include <cstddef>

#include "gmac/manager.h"
#include "gmac/manager_lock.h"
#include "gmac/stats.h"
#include "gmac/trace.h"

namespace gmac {

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
  lock.releaseForWork();
  delete &object;
  lock.acquire();
}

bool Manager::disposeNext() {
  Lock lock(*this);
  if (retired_.empty()) {
    return false;
  }
  Object& object = retired_.front();
  retired_.pop_front();
  lock.releaseForWork();
  const std::size_t bytes = object.bytes();
  delete &object;
  lock.acquire();
  retiredBytes_ -= bytes;
  changed();
  return true;
}

}  // namespace gmac
