// SPDX-License-Identifier: Apache-2.0
//
// Where all objects should lie on a machine whose devices do not reach each other's memory.
//
// A kernel may use any object, and two such devices reach no common memory but the CPU's. So
// objects lie together: in the memory of the device that works, or in the CPU's, which all reach at
// the speed of the bus. When a device works that does not reach them, they go to the CPU's memory
// at once. They go on to a device when it has worked alone for long (lone_worker.h): a stay there
// costs two moves, and follows four moves' time on the CPU.
#ifndef GMAC_COHERENCE_POLICIES_GATHERING_POLICY_H_
#define GMAC_COHERENCE_POLICIES_GATHERING_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gmac/coherence/lone_worker.h"

namespace gmac {

// One object that calls list need not lie with the others. An object that lies on another device
// than the call's goes there at once if it has stayed for long, and else to the CPU's memory; from
// there to a device whose calls alone have listed it for long.
//
// Guarded by its owner. Constant time, allocates nothing.
class GatheringPolicy {
 public:
  using Nanoseconds = std::uint64_t;
  // A place: the devices that share memory with the accelerator's own, or another one by its
  // number; none: the CPU's memory.
  static constexpr int kOwn = -1;
  using Place = std::optional<int>;

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
    return worker_.works(device, timeOf(bytes), now) ? Advice::kToDevice : Advice::kStay;
  }
  // Work that names the objects that it uses.
  void listedWork() { worker_.othersWork(); }
  // How long a move of so many bytes is predicted to take.
  Nanoseconds timeOf(std::size_t bytes) const {
    return static_cast<Nanoseconds>(static_cast<double>(bytes) / bytesPerNanosecond_);
  }
  // Where an object goes when a call on a device lists it that lies at `from`.
  enum class Way {
    kStay,
    kCome,    // from the CPU's memory to the call's device
    kChange,  // from another device to the call's
    kToCpu,
  };
  static Way wayOf(LoneWorker& worker, const Place& from, int device, Nanoseconds move,
                   Nanoseconds now) {
    if (from == device) {
      worker.othersWork();
      return Way::kStay;
    }
    return !from                         ? worker.works(device, move, now) ? Way::kCome : Way::kStay
           : worker.hasStayed(move, now) ? Way::kChange
                                         : Way::kToCpu;
  }
  // It has gone there.
  static void went(LoneWorker& worker, Way way, Nanoseconds now) {
    switch (way) {
      case Way::kCome:
        worker.comes(now);
        break;
      case Way::kChange:
        worker.changes(now);
        break;
      case Way::kToCpu:
        worker.leaves(now);
        break;
      case Way::kStay:
        break;
    }
  }

  // Objects of so many bytes have moved, which took so long.
  void movedToCpu(std::size_t bytes, Nanoseconds took, Nanoseconds now) {
    worker_.leaves(now);
    place_.reset();
    moved(bytes, took);
  }
  void movedTo(int device, std::size_t bytes, Nanoseconds took, Nanoseconds now) {
    worker_.comes(now);
    place_ = device;
    moved(bytes, took);
  }
  // There is no room for them on the device.
  void stays(Nanoseconds now) { worker_.stays(now); }

  // Some of them have moved, which took so long.
  void moved(std::size_t bytes, Nanoseconds took) {
    if (bytes != 0 && took != 0) {
      bytesPerNanosecond_ = static_cast<double>(bytes) / static_cast<double>(took);
    }
  }

 private:
  Place place_ = kOwn;
  LoneWorker worker_;
  double bytesPerNanosecond_ = kFirstBytesPerNanosecond;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_GATHERING_POLICY_H_
