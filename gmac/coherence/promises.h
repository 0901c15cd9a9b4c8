// SPDX-License-Identifier: Apache-2.0
//
// Promises that programs written for managed memory make about their kernels.
#ifndef GMAC_COHERENCE_PROMISES_H_
#define GMAC_COHERENCE_PROMISES_H_

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"
#include "gmac/coherence/device_uses.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/waits.h"

namespace gmac {

class Ledger;

// See device_memory_port.h. Thread-safe. Not for the fault handler.
class Promises {
 public:
  Promises(ObjectMutex& mutex, Ledger& ledger, Waits& waits, ObjectIndex& index)
      : mutex_(mutex), ledger_(ledger), waits_(waits), index_(index) {}

  Status setUsers(const void* address, DeviceUses::Users users, accel::NativeStream stream);
  // The program's hints are promises.
  void setReadMostly(const void* address, bool readMostly);
  void streamDestroyed(accel::NativeStream stream);

 private:
  ObjectMutex& mutex_;
  Ledger& ledger_;
  Waits& waits_;
  ObjectIndex& index_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_PROMISES_H_
