// SPDX-License-Identifier: Apache-2.0
//
// Per-thread cache of where bytes are current. The lock of all objects blocks signals,
// which takes two system calls: more than most of what is done with the answer.
#include <array>
#include <atomic>

#include "gmac/coherence/memory_port.h"

namespace gmac::coherence {
namespace {

// The last few places of one thread. A signal handler may run between any two of its instructions:
// what it finds half written, or changes under a reader, is not used.
class RecentPlaces {
 public:
  bool find(std::uintptr_t address, Place* found) const noexcept {
    const std::uint64_t now = placesChanged();
    for (const Place& kept : places_) {
      const unsigned before = version_;
      std::atomic_signal_fence(std::memory_order_seq_cst);
      const Place place = kept;
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (place.asOf == now && place.begin <= address && address < place.end && before % 2 == 0 &&
          version_ == before) {
        *found = place;
        return true;
      }
    }
    return false;
  }

  void keep(const Place& place) noexcept {
    if (place.asOf == 0 || version_ % 2 != 0) {
      return;
    }
    version_ = version_ + 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    places_[next_] = place;
    next_ = (next_ + 1) % places_.size();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    version_ = version_ + 1;
  }

 private:
  std::array<Place, 4> places_{};
  unsigned next_ = 0;
  volatile unsigned version_ = 0;  // odd: being written
};

constinit thread_local RecentPlaces recent __attribute__((tls_model("initial-exec")));

Place placeOf(const void* address, std::size_t bytes) noexcept {
  MemoryPort& port = memory();
  Place place{};
  // (A child of fork inherits what its parent has been told.)
  if (!recent.find(reinterpret_cast<std::uintptr_t>(address), &place) || port.inChildOfFork()) {
    place = port.placeOf(address, bytes);
    recent.keep(place);
  }
  return place;
}

}  // namespace

std::size_t currentPrefix(const void* address, std::size_t bytes, Current* current) noexcept {
  const Place place = placeOf(address, bytes);
  *current = place.current;
  const std::size_t length = place.end - reinterpret_cast<std::uintptr_t>(address);
  return length < bytes ? length : bytes;
}

bool internal::touchesShared(const void* address, std::size_t bytes) noexcept {
  // What the runtime hands to the system is its own, and its thread may have the lock already.
  if (memory().worksHere()) {
    return false;
  }
  const Place place = placeOf(address, bytes);
  return place.current != Current::kNotShared ||
         (place.end - reinterpret_cast<std::uintptr_t>(address) < bytes &&
          memory().touchesShared(address, bytes));
}

}  // namespace gmac::coherence
