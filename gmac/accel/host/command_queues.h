// SPDX-License-Identifier: Apache-2.0
//
// The application's end of the queues in the control block: commands go in, completions and errors
// come out.
#ifndef GMAC_ACCEL_HOST_COMMAND_QUEUES_H_
#define GMAC_ACCEL_HOST_COMMAND_QUEUES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/host/control_block.h"
#include "gmac/accel/host/device_link.h"
#include "gmac/base/status.h"

namespace gmac::accel::host {

// Data of every type may begin at multiples of this in the arena.
inline constexpr std::size_t kArenaAlignment = 64;

// A copy or a fill.
Command bulkCommand(CommandKind kind, std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
                    Ticket after = {});

// Thread-safe; for the fault path, too. Owned by the accelerator.
class CommandQueues {
 public:
  explicit CommandQueues(DeviceLink& link) : link_(link) {}

  // Sends `command`, with `data` in the arena when `dataBytes` is not 0: for the kernel queue. No
  // byte of `data` lies in a shared object. Waits where the queue or the arena is full.
  Result<Ticket> send(QueueId id, Command command, const void* data = nullptr,
                      std::size_t dataBytes = 0);
  // The place of the last copy in that was submitted.
  std::uint64_t newestCopyIn() const {
    return link_.control().queue(QueueId::kIn).submitted.value();
  }
  // As Accelerator's.
  bool done(Ticket ticket) noexcept;
  Status wait(Ticket ticket);

 private:
  // Changed only by the holder of a queue's lock. No thread touches shared objects while it holds
  // one.
  struct Submission {
    std::mutex mutex;
    std::uint64_t arenaHead = 0;  // bytes of the arena ever used; kernel queue only
    std::array<std::uint64_t, kSlots> arenaHeadAfter{};  // of the command in that slot
  };

  Submission& submission(QueueId id) { return submissions_[static_cast<std::size_t>(id)]; }
  Status reach(Queue& queue, std::uint64_t place);
  Status checkTicket(Ticket ticket);
  Status takeError(Queue& queue, std::uint64_t place);
  Result<std::uint64_t> arenaSpace(Submission& submission, Queue& queue, std::size_t bytes);

  DeviceLink& link_;
  std::array<Submission, kQueueCount> submissions_;
  std::mutex errorMutex_;  // guards taking errors out of the queues
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_COMMAND_QUEUES_H_
