// SPDX-License-Identifier: Apache-2.0
//
// Devices that do not reach each other's memory: what leaves one whose memory is full.
#ifndef GMAC_COHERENCE_POLICIES_ROOM_MAKER_H_
#define GMAC_COHERENCE_POLICIES_ROOM_MAKER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmac/accel/devices.h"
#include "gmac/coherence/call_uses.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"

namespace gmac {

// Kernels of such a device use only what lies in its own memory. A call whose objects do not fit
// beside the others there would fail, so the others leave for devices that have room: those first
// that were used least recently. They come back when a call needs them, in place of others.
//
// The bound: an object leaves only where the call would fail otherwise. A program that uses in turn
// more than fits moves each object once for each use, as it would by hand. Thread-safe.
class RoomMaker {
 public:
  RoomMaker(ObjectMutex& mutex, accel::Devices* devices, const Ledger& ledger, ObjectIndex& index,
            bool allowed)
      : mutex_(mutex), devices_(devices), ledger_(ledger), index_(index), allowed_(allowed) {}
  RoomMaker(const RoomMaker&) = delete;
  RoomMaker& operator=(const RoomMaker&) = delete;

  // What may leave a device so that all objects for which `uses` is true fit there, in the order in
  // which it should leave: what was used least recently first, what the program has placed last.
  // Empty: they would not fit, or nothing may leave. `uses` is called under the lock.
  template <typename Uses>
  std::vector<Away> leaving(std::size_t device, Uses uses) const;
  // Other devices that have room for an object, the one with the most first.
  std::vector<std::size_t> placesFor(std::size_t bytes, std::size_t device) const;

 private:
  struct Candidate {
    Away object;
    bool advised;
    std::uint64_t used;  // by the work of that number
  };
  std::size_t roomOn(std::size_t device) const;
  std::vector<Away> ordered(std::vector<Candidate> candidates, std::size_t device,
                            std::size_t needed) const;

  ObjectMutex& mutex_;
  accel::Devices* const devices_;
  const Ledger& ledger_;
  ObjectIndex& index_;
  const bool allowed_;
};

template <typename Uses>
std::vector<Away> RoomMaker::leaving(std::size_t device, Uses uses) const {
  if (!allowed_) {
    return {};
  }
  std::vector<Candidate> candidates;
  std::size_t needed = 0;
  {
    const Lock lock(mutex_);
    for (const Object& object : index_.all()) {
      const bool there =
          object.spread() ? (object.copies >> device & 1U) != 0 : object.homeDevice == device;
      if (uses(object)) {
        needed += there ? 0 : object.bytes();
      } else if (there && object.home == accel::Home::kDevice && !object.closing &&
                 object.lent.empty()) {
        candidates.push_back({{object.address(), object.bytes(), object.number},
                              object.advised,
                              ledger_.newestWorkWith(object)});
      }
    }
  }
  return ordered(std::move(candidates), device, needed);
}

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_ROOM_MAKER_H_
