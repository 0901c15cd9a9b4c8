// SPDX-License-Identifier: Apache-2.0
//
// Population ahead of the CPU.
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

}  // namespace gmac
