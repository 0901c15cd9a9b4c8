// SPDX-License-Identifier: Apache-2.0
//
// The queues of the device process.
#ifndef GMAC_ACCEL_HOST_QUEUE_RUNNER_H_
#define GMAC_ACCEL_HOST_QUEUE_RUNNER_H_

#include <vector>

#include "gmac/accel/host/address_table.h"
#include "gmac/accel/host/control_block.h"
#include "gmac/accel/host/thread_pool.h"

namespace gmac::accel::host {

// The application orders what different queues do to the same bytes, by tickets and by waiting,
// which the thread sanitizer cannot see from inside this process. These tell it that a command
// comes after everything that was complete when the command was taken.
void acquireApplicationOrder();
void releaseApplicationOrder();

// Runs the commands of one queue in order. Owned by Device; each runs in a thread of its own and
// touches only what it owns, the control block and the (thread-safe) tables.
class QueueRunner {
 public:
  QueueRunner(ControlBlock* control, QueueId id, const AddressTable& pinned,
              const AddressTable& memory, ThreadPool* pool)
      : control_(control), id_(id), pinned_(pinned), memory_(memory), pool_(pool) {}

  [[noreturn]] void run();

 private:
  Failure execute(const Command& command) noexcept;
  Failure run(const Command& command);
  Failure fill(const Command& command) const;
  Failure launch(const Command& command);

  ControlBlock* const control_;
  const QueueId id_;
  const AddressTable& pinned_;
  const AddressTable& memory_;
  ThreadPool* const pool_;  // the kernel queue's; else NULL
  std::vector<void*> arguments_;
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_QUEUE_RUNNER_H_
