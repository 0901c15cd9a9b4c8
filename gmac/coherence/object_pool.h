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
#include <iterator>
#include <utility>

#include "gmac/coherence/object.h"

namespace gmac {

// Freed objects that still have their mirror and their device memory: both at one address, the
// mirror's app view without access (but for Object::keptOpen), its pages as ready as they were, the
// device's bytes zero once `cleared` is done (but for those of an object with one copy). No object
// is in use by anybody. Bounded by bytes and by count; what is kept beyond the bounds the owner
// takes out and gives back. Allocates nothing. Guarded by the lock of all objects; the owner
// empties it before it ends.
class ObjectPool {
 public:
  // Each kept object takes some of the mappings that a process may have, and an allocation looks
  // through all of them.
  static constexpr std::size_t kMaxObjects = 512;
  // How many are compared for their order.
  static constexpr std::size_t kMostCompared = 32;

  // `bytes`: how much is kept besides an eighth of what lives; 0: nothing ever.
  explicit ObjectPool(std::size_t bytes) : limit_(bytes) {}
  ObjectPool(const ObjectPool&) = delete;
  ObjectPool& operator=(const ObjectPool&) = delete;

  // Whether an object of that size may be kept at all, beside `living` bytes of objects.
  bool admits(std::size_t bytes, std::size_t living) const {
    return limit_ != 0 && bytes <= limitBeside(living);
  }
  void put(Object& object) {
    rounds_ += std::exchange(taken_, false) ? 1 : 0;
    object.keptRound = rounds_;
    objects_.push_back(object);
    bytes_ += object.bytes();
    onDevice_ += onDevice(object);
  }

  // An object that can serve an allocation of `bytes` bytes (it may be an eighth larger), taken
  // out; NULL: there is none. `ready(object)`: whether its memory can be had now. Of some that were
  // put last, with none taken out between, the one that was allocated first: so a program that
  // allocates and frees several of one size in turn gives each the memory that it had before, in
  // whatever order it frees them. Else the one that was put last.
  template <typename Ready>
  Object* take(std::size_t bytes, bool sameAddress, Ready&& ready) {
    const auto serves = [&](const Object& object) {
      return object.sameAddress == sameAddress && object.bytes() >= bytes &&
             object.bytes() - bytes <= bytes / 8;
    };
    const auto newest = std::find_if(objects_.rbegin(), objects_.rend(), serves);
    if (newest == objects_.rend()) {
      return nullptr;
    }
    Object* best = &*newest;
    auto at = std::next(newest);
    for (std::size_t i = 0;
         i < kMostCompared && at != objects_.rend() && at->keptRound == newest->keptRound;
         ++i, ++at) {
      best = serves(*at) && at->number < best->number ? &*at : best;
    }
    if (!ready(*best)) {
      const auto other = std::find_if(
          newest, objects_.rend(), [&](Object& object) { return serves(object) && ready(object); });
      best = other == objects_.rend() ? nullptr : &*other;
    }
    taken_ = taken_ || best != nullptr;
    return best == nullptr ? nullptr : remove(*best);
  }

  // The oldest object while more is kept than may be beside `living` bytes, taken out; else NULL.
  Object* takeExcess(std::size_t living) {
    const bool within = bytes_ <= limitBeside(living) && objects_.size() <= kMaxObjects;
    return within ? nullptr : remove(objects_.front());
  }
  // NULL: the pool is empty. First those that have the device's memory: the others need some before
  // they can be given back.
  Object* takeOldest() {
    const auto oldest = std::find_if(objects_.begin(), objects_.end(), &onDevice);
    return objects_.empty()           ? nullptr
           : oldest == objects_.end() ? remove(objects_.front())
                                      : remove(*oldest);
  }

  bool empty() const { return objects_.empty(); }
  // Whether a byte of the accelerator's memory is kept.
  bool holds(std::uintptr_t device) const {
    return std::any_of(objects_.begin(), objects_.end(), [device](const Object& object) {
      return device - static_cast<std::uintptr_t>(object.device) < object.bytes();
    });
  }
  // For everybody, without the lock: of all objects, and of those in the device's memory.
  std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  std::size_t bytesOnDevice() const noexcept { return onDevice_.load(std::memory_order_relaxed); }

 private:
  std::size_t limitBeside(std::size_t living) const { return limit_ + living / 8; }
  Object* remove(Object& object) {
    objects_.erase(objects_.iterator_to(object));
    bytes_ -= object.bytes();
    onDevice_ -= onDevice(object);
    return &object;
  }
  static std::size_t onDevice(const Object& object) {
    return object.isZeroCopy() ? 0 : object.bytes();
  }

  const std::size_t limit_;
  boost::intrusive::list<Object> objects_;  // oldest first
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> onDevice_{0};
  std::uint64_t rounds_ = 0;  // of puts with none taken out between
  bool taken_ = false;        // since the last put
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_OBJECT_POOL_H_
