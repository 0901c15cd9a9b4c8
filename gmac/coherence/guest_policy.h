// SPDX-License-Identifier: Apache-2.0
//
// Which object in the CPU's memory should change places with objects on its device.
//
// Where a device's memory is full, an object has memory of the CPU's instead, which kernels reach
// over the bus, at a fortieth of the device's rate or so. It is a guest there. Which objects become
// guests was decided when memory was allocated; what the program uses most may be among them. So
// uses of a guest are counted:
//
//  - After kLeastUses of all of it, those objects on the device are looked for that no work has
//  used
//    since the first of them. If the guest fits in the place of some of these, they exchange
//    places, provided that work has used kRatio times as many bytes of the guest as the exchange
//    moves. (That moves each byte once, over the same bus.)
//  - Where there are none, counting begins anew, as the program goes through more than fits; where
//    they are too large, it goes on. The next look comes after twice as many uses.
//
// The bound: exchanges take at most 1 / kRatio of the time that the uses before them took, if these
// read what their calls list. An object that comes and has to leave again before it was used as
// often as it took it to come needs twice as many uses the next time. So a program that uses each
// of two objects just as often as it takes one to come pays for that a few times only.
#ifndef GMAC_COHERENCE_GUEST_POLICY_H_
#define GMAC_COHERENCE_GUEST_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gmac {

// Of one object; guarded like that. Constant time, allocates nothing.
class GuestPolicy {
 public:
  static constexpr std::uint32_t kLeastUses = 3;
  static constexpr double kRatio = 1.5;
  static constexpr std::uint32_t kMostDoublings = 20;

  // Work with that number uses so many bytes of the object, which has `all`. Whether it is time to
  // look for objects to exchange it with; never of one that is no guest.
  bool used(std::uint64_t work, std::uint64_t bytes, std::uint64_t all, bool guest) {
    if (used_ == 0) {
      since_ = work;
    }
    used_ += bytes;
    return guest && due(all);
  }
  bool due(std::uint64_t all) const { return used_ >= next_ * all; }
  // The first work of those that are counted.
  std::uint64_t since() const { return since_; }
  // Whether an exchange pays that moves so many bytes.
  bool pays(std::uint64_t moved) const {
    return static_cast<double>(used_) >= kRatio *
                                             static_cast<double>(std::uint64_t{1} << doublings_) *
                                             static_cast<double>(moved);
  }

  // It stays: there is nothing to exchange it with, or nothing for which that pays.
  void stays(bool nothing) {
    next_ = std::min(2 * next_, std::uint64_t{kLeastUses} << kMostDoublings);
    if (nothing) {
      used_ = 0;
    }
  }
  // It came to the device by an exchange.
  void comes() {
    needed_ = used_;
    used_ = 0;
    came_ = true;
  }
  // It is a guest from now on.
  void leaves() {
    if (came_) {
      doublings_ = used_ >= needed_ ? doublings_ - (doublings_ > 0 ? 1 : 0)
                                    : std::min(doublings_ + 1, kMostDoublings);
    }
    came_ = false;
    used_ = 0;
    next_ = std::uint64_t{kLeastUses} << doublings_;
  }

 private:
  std::uint64_t since_ = 0;
  std::uint64_t used_ = 0;           // bytes
  std::uint64_t needed_ = 0;         // so many it took to come
  std::uint64_t next_ = kLeastUses;  // so many uses of all of it until the next look
  std::uint32_t doublings_ = 0;
  bool came_ = false;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_GUEST_POLICY_H_
