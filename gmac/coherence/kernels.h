// SPDX-License-Identifier: Apache-2.0
//
// The application's kernels: loaded when one is first needed, and bound to the objects that they
// use.
#ifndef GMAC_COHERENCE_KERNELS_H_
#define GMAC_COHERENCE_KERNELS_H_

#include <cstddef>

#include "gmac/accel/accelerator.h"
#include "gmac/api/adsm.h"
#include "gmac/base/status.h"
#include "gmac/coherence/kernel.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/waits.h"

namespace gmac {

class Ledger;

// Thread-safe. Not for the fault handler, nor in a child of fork.
class Kernels {
 public:
  Kernels(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, Waits& waits,
          ObjectIndex& index)
      : mutex_(mutex), accelerator_(accelerator), ledger_(ledger), waits_(waits), index_(index) {}
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // See adsm.h.
  Status bind(const void* address, adsmKernel_t kernel, adsmAccess_t access);
  Status setConstant(adsmKernel_t kernel, const adsmConstant_t& constant, const void* data,
                     std::size_t bytes);
  // Drops a kernel's bindings and waits for its calls; the kernel may be deleted then.
  Status forget(adsmKernel_t kernel);

  // Loads the kernel on a device unless that has been done. Lets the lock go.
  Status load(Lock& lock, adsmKernel_t kernel, std::size_t device);

 private:
  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Waits& waits_;
  ObjectIndex& index_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_KERNELS_H_
