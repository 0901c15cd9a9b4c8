// SPDX-License-Identifier: Apache-2.0
//
// The memory of freed objects, kept for the next allocations: making and giving back an object's
// memory takes the driver a third of a millisecond, whatever its size.
#ifndef GMAC_COHERENCE_OBJECT_POOL_H_
#define GMAC_COHERENCE_OBJECT_POOL_H_

#include <algorithm>
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>

#include "gmac/coherence/object.h"

namespace gmac {

// Freed objects that still have their mirror and their device memory: both at one address, the
// mirror's app view without access, its pages as ready as they were, the device's bytes zero once
// `cleared` is done. No object is in use by anybody. Bounded by bytes and by count; what is kept
// beyond the bounds the owner takes out and gives back. Allocates nothing. Guarded by the manager's
// lock; the owner empties it before it ends.
class ObjectPool {
 public:
  // Each kept object takes some of the mappings that a process may have, and an allocation looks
  // through all of them.
  static constexpr std::size_t kMaxObjects = 512;

  // `bytes`: how much is kept besides an eighth of what lives; 0: nothing ever.
  explicit ObjectPool(std::size_t bytes) : limit_(bytes) {}
  ObjectPool(const ObjectPool&) = delete;
  ObjectPool& operator=(const ObjectPool&) = delete;

  // Whether an object of that size may be kept at all, beside `living` bytes of objects.
  bool admits(std::size_t bytes, std::size_t living) const {
    return limit_ != 0 && bytes <= limitBeside(living);
  }
  void put(Object& object) {
    objects_.push_back(object);
    bytes_ += object.bytes();
  }

  // The object that was put last and can serve an allocation of `bytes` bytes (it may be an eighth
  // larger), taken out; NULL: there is none. `ready(object)`: whether its memory can be had now.
  template <typename Ready>
  Object* take(std::size_t bytes, bool sameAddress, Ready&& ready) {
    for (auto at = objects_.rbegin(); at != objects_.rend(); ++at) {
      Object& object = *at;
      if (object.sameAddress == sameAddress && object.bytes() >= bytes &&
          object.bytes() - bytes <= bytes / 8 && ready(object)) {
        return remove(object);
      }
    }
    return nullptr;
  }

  // The oldest object while more is kept than may be beside `living` bytes, taken out; else NULL.
  Object* takeExcess(std::size_t living) {
    const bool within = bytes_ <= limitBeside(living) && objects_.size() <= kMaxObjects;
    return within ? nullptr : takeOldest();
  }
  // NULL: the pool is empty.
  Object* takeOldest() { return objects_.empty() ? nullptr : remove(objects_.front()); }

  bool empty() const { return objects_.empty(); }
  // Whether a byte of the accelerator's memory is kept.
  bool holds(std::uintptr_t device) const {
    return std::any_of(objects_.begin(), objects_.end(), [device](const Object& object) {
      return device - static_cast<std::uintptr_t>(object.device) < object.bytes();
    });
  }
  // For everybody, without the lock.
  std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::size_t limitBeside(std::size_t living) const { return limit_ + living / 8; }
  Object* remove(Object& object) {
    objects_.erase(objects_.iterator_to(object));
    bytes_ -= object.bytes();
    return &object;
  }

  const std::size_t limit_;
  boost::intrusive::list<Object> objects_;  // oldest first
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_OBJECT_POOL_H_
