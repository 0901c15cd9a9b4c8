// SPDX-License-Identifier: Apache-2.0
//
// Where all objects should lie on a machine whose devices do not reach each other's memory.
//
// A kernel may use any object, and two such devices reach no common memory but the CPU's. So
// objects lie together: in the memory of the device that works, or in the CPU's, which all reach at
// the speed of the bus. When a device works that does not reach them, they go to the CPU's memory
// at once. They go on to a device when it has worked alone for a while: at least kLeastWorks times,
// and kRatio times as long as moving all of them takes.
//
// The bound: a stay on a device costs two moves, and follows kRatio moves' time on the CPU, so
// moves take at most a quarter of the time. Where a device does not stay alone for as long as it
// took it to get the objects, it needs twice that the next time, up to 2^kMostDoublings; so a
// program whose devices take turns ends in the CPU's memory.
#ifndef GMAC_COHERENCE_POLICIES_GATHERING_POLICY_H_
#define GMAC_COHERENCE_POLICIES_GATHERING_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gmac {

// Guarded by its owner. Constant time, allocates nothing.
class GatheringPolicy {
 public:
  using Nanoseconds = std::uint64_t;
  // A place: the devices that share memory with the accelerator's own, or another one by its
  // number; none: the CPU's memory.
  static constexpr int kOwn = -1;
  using Place = std::optional<int>;

  static constexpr std::uint64_t kLeastWorks = 16;
  static constexpr Nanoseconds kRatio = 8;
  static constexpr unsigned kMostDoublings = 6;
  static constexpr std::uint64_t kFirstBytesPerNanosecond = 10;  // of moves, before the first

  enum class Advice {
    kStay,
    kToCpu,     // at once: the device does not reach the objects
    kToDevice,  // to the one that works, as soon as nothing is in flight
  };

  const Place& place() const { return place_; }
  // Work of a device begins, when there are objects of so many bytes.
  Advice works(int device, std::size_t bytes, Nanoseconds now) {
    if (place_) {
      return *place_ == device ? Advice::kStay : Advice::kToCpu;
    }
    if (alone_ != device) {
      alone_ = device;
      works_ = 0;
      since_ = now;
    }
    ++works_;
    return works_ >= kLeastWorks && now - since_ >= patience(bytes) ? Advice::kToDevice
                                                                    : Advice::kStay;
  }
  // Objects of so many bytes have moved, which took so long.
  void movedToCpu(std::size_t bytes, Nanoseconds took, Nanoseconds now) {
    if (needed_ != 0) {
      doublings_ = now - arrived_ >= needed_ ? doublings_ - (doublings_ > 0 ? 1 : 0)
                                             : std::min(doublings_ + 1, kMostDoublings);
    }
    place_.reset();
    alone_.reset();
    moved(bytes, took);
  }
  void movedTo(int device, std::size_t bytes, Nanoseconds took, Nanoseconds now) {
    needed_ = now - since_;
    arrived_ = now;
    place_ = device;
    moved(bytes, took);
  }
  // There is no room for them on the device.
  void stays(Nanoseconds now) {
    works_ = 0;
    since_ = now;
    doublings_ = std::min(doublings_ + 1, kMostDoublings);
  }

 private:
  Nanoseconds patience(std::size_t bytes) const {
    return (kRatio << doublings_) *
           static_cast<Nanoseconds>(static_cast<double>(bytes) / bytesPerNanosecond_);
  }
  void moved(std::size_t bytes, Nanoseconds took) {
    if (bytes != 0 && took != 0) {
      bytesPerNanosecond_ = static_cast<double>(bytes) / static_cast<double>(took);
    }
  }

  Place place_ = kOwn;
  std::optional<int> alone_;  // that has worked last, while they are in the CPU's memory
  std::uint64_t works_ = 0;   // of that one, without another's in between
  Nanoseconds since_ = 0;     // the first of them
  Nanoseconds arrived_ = 0;   // at the present device, or the last one
  Nanoseconds needed_ = 0;    // how long it was alone before; 0: they have always been there
  unsigned doublings_ = 0;
  double bytesPerNanosecond_ = kFirstBytesPerNanosecond;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_GATHERING_POLICY_H_
