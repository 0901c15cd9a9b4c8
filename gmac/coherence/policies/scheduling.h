// SPDX-License-Identifier: Apache-2.0
//
// The kernel scheduler (Gelado et al., section 4): on which device a call runs that names none.
#ifndef GMAC_COHERENCE_POLICIES_SCHEDULING_H_
#define GMAC_COHERENCE_POLICIES_SCHEDULING_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/devices.h"
#include "gmac/api/adsm.h"
#include "gmac/base/status.h"
#include "gmac/coherence/call_times.h"
#include "gmac/coherence/call_uses.h"
#include "gmac/coherence/options.h"

namespace gmac {

class Ledger;
class Migration;
class Object;
class ObjectIndex;
class ObjectMutex;

// The cost of one call on a device.
struct DeviceOffer {
  std::size_t device = 0;
  std::size_t currentBytes = 0;     // of what the call uses, current there
  std::size_t homeBytes = 0;        // of what it uses, and that lie there
  std::size_t moveBytes = 0;        // that would be copied there from other devices
  std::size_t farBytes = 0;         // that lie where it does not reach them
  std::size_t inFlight = 0;         // calls
  CallTimes::Nanoseconds free = 0;  // when it, and what the call uses, will be free
  CallTimes::Nanoseconds moveTakes = 0;
  std::optional<CallTimes::Nanoseconds> callTakes{};  // none: not known there
};

// The device of the best of some offers, at least one. By data: most current bytes, then most at
// home, then fewest calls in flight, then the lowest number. By history: the earliest end, then the
// fewest bytes to move, then fewest calls in flight, then most at home, then the lowest number. A
// device where the kernel never ran counts as taking no time, so that each is tried, once, by a
// call that finds it free and near.
//
// Worst case: by data, all calls that use one object queue on one device. By history, a kernel runs
// once on every device, also on one that is slow, and a kernel whose time varies goes where its
// last calls happened to be short; then it is slower by that difference, once for each time that it
// changes.
std::size_t bestByData(std::span<const DeviceOffer> offers);
std::size_t bestByHistory(std::span<const DeviceOffer> offers);

using DeviceSet = std::bitset<accel::kMaxDevices>;

// Makes a call on the first device that takes it. `choose(unfit)` names the best device that is not
// in the set, if any is left; `run(device, makesRoom)` makes the call there. Devices that had no
// room are asked again when no other has any, and may then make some; those without code for the
// kernel are not.
template <typename Choose, typename Run>
Status runOnBest(Choose choose, Run run) {
  Status status;
  DeviceSet withoutCode;
  for (const bool makesRoom : {false, true}) {
    DeviceSet unfit = withoutCode;
    while (const std::optional<std::size_t> chosen = choose(unfit)) {
      status = run(*chosen, makesRoom);
      if (status.code() == adsmErrorNoImplementation) {
        withoutCode.set(*chosen);
      } else if (status.code() != adsmErrorAcceleratorMemory) {
        return status;
      }
      unfit.set(*chosen);
    }
    if (unfit.none()) {
      return run(0, false);  // no device is left at all; the first one says so
    }
  }
  return status;  // nowhere
}

// Calls that list what they use go where the rule says; the others, and all with one device, to
// device 0. Where an object does not fit the next best device is tried, and where it fits on none,
// other objects leave the best one. Thread-safe. Not for the fault handler, nor in a child of fork.
//
// Where devices do not reach each other's memory, but the CPU's (accel::MovableMemory), the rule
// chooses among those that least of what the call uses would have to move to: kernels are slow on
// what lies in the CPU's memory, and how slow nobody knows.
class Scheduling {
 public:
  // Several devices and a rule that asks: from now on the ledger learns the times of calls.
  Scheduling(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
             ObjectIndex& index, Migration& migration, SchedulingRule rule);
  Scheduling(const Scheduling&) = delete;
  Scheduling& operator=(const Scheduling&) = delete;

  // See adsm.h. `run(device, makesRoom)` makes the call on that device, where other objects may
  // leave it; none: where the rule says.
  template <typename Run>
  Status call(adsmKernel_t kernel, const std::optional<CallUses>& uses,
              std::optional<std::size_t> device, Run run) {
    if (device || !uses || rule_ == SchedulingRule::kCurrent) {
      return run(device.value_or(0), true);
    }
    return runOnBest([&](const DeviceSet& unfit) { return choose(kernel, uses->list, unfit); },
                     run);
  }

 private:
  std::optional<std::size_t> choose(adsmKernel_t kernel, std::span<const adsmRangeUse_t> uses,
                                    const DeviceSet& unfit);

  // Whether a device reaches the object where it lies.
  bool reaches(std::size_t device, const Object& object) const;

  ObjectMutex& mutex_;
  accel::Devices* const devices_;
  accel::MovableMemory* const memory_;
  Ledger& ledger_;
  ObjectIndex& index_;
  Migration& migration_;
  const SchedulingRule rule_;  // kCurrent with one device
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_SCHEDULING_H_
