// SPDX-License-Identifier: Apache-2.0
//
// The acquire: what happens where the application waits for device work (Gelado et al., section
// 3.3).
#ifndef GMAC_COHERENCE_ACQUIRE_H_
#define GMAC_COHERENCE_ACQUIRE_H_

#include <optional>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/read_backs.h"
#include "gmac/coherence/waits.h"

namespace gmac {

class Blocks;
class Coarsening;
class Splitting;
class Ledger;
class RepeatedLaunches;

// Thread-safe. Not for the fault handler, nor in a child of fork.
class Acquire {
 public:
  Acquire(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, Waits& waits,
          ObjectIndex& index, Blocks& blocks, Coarsening& coarsening, Splitting& splitting,
          ReadBacks& readBacks, RepeatedLaunches& repeated)
      : mutex_(mutex),
        accelerator_(accelerator),
        ledger_(ledger),
        waits_(waits),
        index_(index),
        blocks_(blocks),
        coarsening_(coarsening),
        splitting_(splitting),
        readBacks_(readBacks),
        repeated_(repeated) {}
  Acquire(const Acquire&) = delete;
  Acquire& operator=(const Acquire&) = delete;

  // See adsm.h.
  Status sync();
  // See work_port.h.
  void beforeDeviceWait(std::optional<accel::NativeStream> stream, coherence::DeviceWait& wait);
  Status afterDeviceWait(const coherence::DeviceWait& wait);

 private:
  Status fetchAll(Lock& lock);

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Waits& waits_;
  ObjectIndex& index_;
  Blocks& blocks_;
  Coarsening& coarsening_;
  Splitting& splitting_;
  ReadBacks& readBacks_;
  RepeatedLaunches& repeated_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_ACQUIRE_H_
