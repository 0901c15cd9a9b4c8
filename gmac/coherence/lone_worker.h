// SPDX-License-Identifier: Apache-2.0
//
// Whether a device has worked alone for long enough that memory should move to it.
//
// Memory that lies elsewhere is slow for the device that works with it, and how slow depends on
// kernels that nobody knows. So the time counts: it moves when one device has worked with it
// alone at least kLeastWorks times, and kRatio times as long as the move takes. A worker that does
// not stay alone for as long as that once the memory has come needs twice as much the next time, up
// to 2^kMostDoublings. So moves take little of the time, whatever the order of the workers, and
// memory that several devices use in turn stays where it is.
#ifndef GMAC_COHERENCE_LONE_WORKER_H_
#define GMAC_COHERENCE_LONE_WORKER_H_

#include <algorithm>
#include <cstdint>
#include <optional>

namespace gmac {

// Guarded by its owner. Constant time, allocates nothing.
class LoneWorker {
 public:
  using Nanoseconds = std::uint64_t;
  static constexpr std::uint32_t kLeastWorks = 16;
  static constexpr Nanoseconds kRatio = 4;
  static constexpr std::uint32_t kMostDoublings = 6;

  // Work of a device that is not where the memory lies. Whether it should move there, which takes
  // so long.
  bool works(int device, Nanoseconds move, Nanoseconds now) {
    if (device_ != device) {
      device_ = device;
      works_ = 0;
      since_ = now;
    }
    ++works_;
    return works_ >= kLeastWorks && now - since_ >= (kRatio << doublings_) * move;
  }
  // Work of another kind, or of a device that is where the memory lies.
  void othersWork() { device_.reset(); }
  // The memory has come to the device that worked alone.
  void comes(Nanoseconds now) {
    needed_ = now - since_;
    came_ = now;
    device_.reset();
  }
  // The memory leaves the device that it has come to, if it has.
  void leaves(Nanoseconds now) {
    if (needed_ != 0) {
      doublings_ = now - came_ >= needed_ ? doublings_ - (doublings_ > 0 ? 1 : 0)
                                          : std::min(doublings_ + 1, kMostDoublings);
    }
    device_.reset();
  }
  // Who has worked last where the memory does not lie, if nobody else has worked since.
  std::optional<int> worker() const { return device_; }
  // Whether the memory has been where it lies for so long that another device may have it at once:
  // then moves of that kind, too, take little of the time.
  bool hasStayed(Nanoseconds move, Nanoseconds now) const {
    return now - came_ >= (kRatio << doublings_) * move;
  }
  // Another device has it now.
  void changes(Nanoseconds now) {
    came_ = now;
    needed_ = 0;
    device_.reset();
  }
  // It cannot move.
  void stays(Nanoseconds now) {
    works_ = 0;
    since_ = now;
    doublings_ = std::min(doublings_ + 1, kMostDoublings);
  }

 private:
  std::optional<int> device_;  // that has worked last
  std::uint32_t works_ = 0;    // of that one, without another's in between
  std::uint32_t doublings_ = 0;
  Nanoseconds since_ = 0;   // the first of them
  Nanoseconds came_ = 0;    // when the memory came where it lies
  Nanoseconds needed_ = 0;  // how long its device was alone before; 0: it has not come so
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_LONE_WORKER_H_
