// SPDX-License-Identifier: Apache-2.0
//
// Bytes of objects that other processes' accelerators read where they lie, in this one's memory.
#ifndef GMAC_COHERENCE_DEVICE_LOANS_H_
#define GMAC_COHERENCE_DEVICE_LOANS_H_

#include <cstddef>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"
#include "gmac/coherence/loans.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/waits.h"

namespace gmac {

class Blocks;
class Ledger;

// Thread-safe. A loan changes no block: the CPU goes on as it likes, and what it writes beside the
// lent bytes goes to the accelerator with blocks that have these as they are. Not asked back by
// work of the runtime's own that writes exact bytes (packs, copies, fills), which the program must
// not let reach what it sends.
class DeviceLoans {
 public:
  DeviceLoans(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, Loans& loans,
              Waits& waits, ObjectIndex& index, Blocks& blocks)
      : mutex_(mutex),
        accelerator_(accelerator),
        ledger_(ledger),
        loans_(loans),
        waits_(waits),
        index_(index),
        blocks_(blocks) {}
  DeviceLoans(const DeviceLoans&) = delete;
  DeviceLoans& operator=(const DeviceLoans&) = delete;

  // See MemoryPort::lendOnDevice.
  Result<bool> lend(const void* address, std::size_t bytes, coherence::DeviceLoan* loan);
  void giveBack(const void* address, std::size_t bytes, const coherence::DeviceLoan& loan);

 private:
  void end(Lock& lock, Object& object, ByteRange lent);

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Loans& loans_;
  Waits& waits_;
  ObjectIndex& index_;
  Blocks& blocks_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_DEVICE_LOANS_H_
