// SPDX-License-Identifier: Apache-2.0
//
// Which object in the CPU's memory should change places with objects on its device.
//
// Where a device's memory is full, an object has memory of the CPU's instead, which kernels reach
// over the bus, at a fortieth of the device's rate or so. It is a guest there. Which objects become
// guests was decided when memory was allocated; what the program uses most may be among them. So
// the bytes of each object are counted that work uses, and a guest has a regret: the bytes that
// work has used of it, less those of the objects in whose place it could be. An exchange moves all
// their bytes over the same bus, each once. It is made when the regret is kRatio times that. The
// counts are halved when one reaches kMostUses of its object, so that what was long ago counts
// little.
//
// The bound, where work uses the bytes that its calls list: exchanges take at most 1 / kRatio of
// the time that better places would have saved. A program that uses all of its objects in turn has
// no regret beyond one use. An object that comes and has to leave again before it was used as much
// as it took it to come needs twice the regret the next time, up to 2^kMostDoublings; so a program
// that uses each of two objects just as often as it takes one to come pays for that a few times
// only.
#ifndef GMAC_COHERENCE_GUEST_POLICY_H_
#define GMAC_COHERENCE_GUEST_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gmac {

// Of one object of `all` bytes; guarded like that. Constant time, allocates nothing.
class GuestPolicy {
 public:
  static constexpr std::uint64_t kLeastUses = 3;  // between two looks for a better place
  static constexpr std::uint64_t kMostUses = 16;
  static constexpr double kRatio = 1.5;
  static constexpr unsigned kMostDoublings = 2;
  static constexpr unsigned kMostLonger = 2;  // doublings of kLeastUses where looks find nothing

  // Work uses so many bytes of it. Whether it is time to look for a better place; never of one that
  // is no guest.
  bool used(std::uint64_t bytes, std::uint64_t all, bool guest) {
    used_ = std::min(used_ + bytes, kMostUses * all);
    sinceMove_ += bytes;
    sinceLook_ += bytes;
    return guest && due(all);
  }
  bool due(std::uint64_t all) const {
    return sinceLook_ >= (kLeastUses << (doublings_ + longer_)) * all;
  }
  // The bytes that count, and when they are to be halved.
  std::uint64_t bytesUsed() const { return used_; }
  bool isFull(std::uint64_t all) const { return used_ >= kMostUses * all; }
  void halve() { used_ /= 2; }
  // A new object: so many count, so that what was used before its time makes no regret, neither its
  // own nor against it.
  void begins(std::uint64_t bytes) { used_ = bytes; }

  // Whether an exchange pays that moves so many bytes, with objects of which so many count.
  bool pays(std::uint64_t others, std::uint64_t moved) const {
    return static_cast<double>(used_) >=
           static_cast<double>(others) + kRatio *
                                             static_cast<double>(std::uint64_t{1} << doublings_) *
                                             static_cast<double>(moved);
  }
  // There was no better place.
  void stays() {
    sinceLook_ = 0;
    longer_ = std::min(longer_ + 1, kMostLonger);
  }
  // It came to the device by an exchange.
  void comes() {
    needed_ = sinceMove_;
    moves();
    came_ = true;
  }
  // It is a guest from now on.
  void leaves() {
    if (came_) {
      doublings_ = sinceMove_ >= needed_ ? doublings_ - (doublings_ > 0 ? 1 : 0)
                                         : std::min(doublings_ + 1, kMostDoublings);
    }
    moves();
    came_ = false;
  }

 private:
  void moves() {
    sinceMove_ = sinceLook_ = 0;
    longer_ = 0;
  }

  std::uint64_t used_ = 0;
  std::uint64_t sinceMove_ = 0;
  std::uint64_t sinceLook_ = 0;
  std::uint64_t needed_ = 0;  // what it took to come
  unsigned doublings_ = 0;
  unsigned longer_ = 0;
  bool came_ = false;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_GUEST_POLICY_H_
