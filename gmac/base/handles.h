// SPDX-License-Identifier: Apache-2.0
//
// Handles that applications hold: numbers that are never used twice, so that an invalid or
// destroyed handle is recognised and not dereferenced.
#ifndef GMAC_BASE_HANDLES_H_
#define GMAC_BASE_HANDLES_H_

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gmac/base/fork_lock.h"

namespace gmac {

// The process's handles of one kind and their objects. Never destroyed: destructors may use handles
// at exit. Thread-safe, also around fork; no thread waits or touches shared objects while it has
// the lock. Not for the fault handler.
template <typename Value>
class HandleTable {
 public:
  // To be called when the library is loaded: neither a fork nor a signal handler that uses handles
  // may come into the making.
  static HandleTable& instance() {
    static HandleTable& one = *[] {
      auto* const made = new HandleTable;
      (void)pthread_atfork([] { instance().lock_.beforeFork(); },
                           [] { instance().lock_.afterForkInParent(); },
                           [] { instance().lock_.afterForkInChild(); });
      return made;
    }();
    return one;
  }

  // A new handle. Throws std::bad_alloc, and std::length_error when kMaxLive handles live.
  void* add(Value value) {
    const std::lock_guard guard(lock_);
    std::size_t place = firstFree_;
    if (place != kNone) {
      firstFree_ = slots_[place].nextFree;
    } else {
      place = slots_.size();
      if (place == kMaxLive) {
        throw std::length_error("no more handles: 16777216 live");
      }
      slots_.emplace_back();
    }
    Slot& slot = slots_[place];
    slot.value = std::move(value);
    ++slot.generation;
    slot.live = true;
    return reinterpret_cast<void*>(numberOf(place, slot.generation));
  }

  // The object of a handle; nothing for a handle that is invalid or was destroyed.
  std::optional<Value> find(const void* handle) {
    const std::lock_guard guard(lock_);
    const Slot* const slot = slotOf(handle);
    return slot != nullptr ? std::optional<Value>(slot->value) : std::nullopt;
  }

  // The same, and destroys the handle.
  std::optional<Value> take(const void* handle) {
    const std::lock_guard guard(lock_);
    Slot* const slot = slotOf(handle);
    if (slot == nullptr) {
      return std::nullopt;
    }
    std::optional<Value> taken(std::move(slot->value));
    slot->value = Value{};
    slot->live = false;
    if (slot->generation < kMaxGeneration) {
      slot->nextFree = firstFree_;
      firstFree_ = static_cast<std::size_t>(slot - slots_.data());
    }
    return taken;
  }

 private:
  // Odd, so that a handle is no address of anything aligned; then the slot, then how often the slot
  // has been used.
  static constexpr unsigned kPlaceBits = 24;
  static constexpr std::size_t kMaxLive = std::size_t{1} << kPlaceBits;
  static constexpr std::uint64_t kMaxGeneration = (std::uint64_t{1} << (63 - kPlaceBits)) - 1;
  static constexpr std::size_t kNone = SIZE_MAX;

  struct Slot {
    Value value{};
    std::uint64_t generation = 0;
    std::size_t nextFree = kNone;
    bool live = false;
  };

  HandleTable() = default;

  static std::uintptr_t numberOf(std::size_t place, std::uint64_t generation) {
    return (generation << kPlaceBits | place) << 1 | 1;
  }
  Slot* slotOf(const void* handle) {
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    const std::size_t place = number >> 1 & (kMaxLive - 1);
    if (place >= slots_.size()) {
      return nullptr;
    }
    Slot& slot = slots_[place];
    return slot.live && number == numberOf(place, slot.generation) ? &slot : nullptr;
  }

  ForkLock lock_;  // guards what follows
  std::vector<Slot> slots_;
  std::size_t firstFree_ = kNone;
};

}  // namespace gmac

#endif  // GMAC_BASE_HANDLES_H_
