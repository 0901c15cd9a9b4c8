// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/command_queues.h"

#include <chrono>
#include <cstring>

#include "gmac/base/round_up.h"

namespace gmac::accel::host {
namespace {

// How often a sleeping wait looks whether the device process is alive.
constexpr auto kLookAfterDevice = std::chrono::milliseconds(20);

}  // namespace

Command bulkCommand(CommandKind kind, std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
                    Ticket after) {
  Command command{};
  command.kind = kind;
  command.after = after.value;
  command.to = to;
  command.from = from;
  command.bytes = bytes;
  return command;
}

Status CommandQueues::reach(Queue& queue, std::uint64_t place) {
  while (!queue.completed.await(place, kLookAfterDevice)) {
    if (link_.lostOrClosed()) {
      return link_.failLost();
    }
  }
  return Status();
}

// A ticket from elsewhere must not be waited for for ever.
Status CommandQueues::checkTicket(Ticket ticket) {
  if (ticket.value == 0) {
    return Status();
  }
  if ((ticket.value & 3) != 0) {
    const TicketPlace at = decodeTicket(ticket);
    if (at.place != 0 && at.place <= link_.control().queue(at.queue).submitted.value()) {
      return Status();
    }
  }
  return fail(adsmErrorInvalidValue, "ticket {} is none of the host accelerator's", ticket.value);
}

Result<std::uint64_t> CommandQueues::arenaSpace(Submission& submission, Queue& queue,
                                                std::size_t bytes) {
  std::uint64_t start = roundUp(submission.arenaHead, kArenaAlignment);
  if (start % kArenaBytes + bytes > kArenaBytes) {
    start = roundUp(start, kArenaBytes);
  }
  const std::uint64_t submitted = queue.submitted.value();
  for (std::uint64_t completed = queue.completed.value();; ++completed) {
    GMAC_TRY(reach(queue, completed));
    const std::uint64_t tail = completed == submitted
                                   ? submission.arenaHead
                                   : submission.arenaHeadAfter[completed % kSlots];
    if (completed == submitted || start + bytes - tail <= kArenaBytes) {
      submission.arenaHead = start + bytes;
      return start % kArenaBytes;
    }
  }
}

Result<Ticket> CommandQueues::send(QueueId id, Command command, const void* data,
                                   std::size_t dataBytes) {
  GMAC_TRY(link_.usable());
  GMAC_TRY(checkTicket(Ticket{command.after}));
  Queue& queue = link_.control().queue(id);
  Submission& mine = submission(id);
  std::lock_guard lock(mine.mutex);
  const std::uint64_t place = queue.submitted.value() + 1;
  if (place > kSlots) {
    GMAC_TRY(reach(queue, place - kSlots));
  }
  if (dataBytes != 0) {
    const Result<std::uint64_t> offset = arenaSpace(mine, queue, dataBytes);
    if (!offset.ok()) {
      return offset.status();
    }
    command.arenaOffset = *offset;
    std::memcpy(link_.control().arena.data() + *offset, data, dataBytes);
  }
  mine.arenaHeadAfter[place % kSlots] = mine.arenaHead;
  queue.slots[place % kSlots] = command;
  queue.submitted.publish(place);
  return encodeTicket({id, place});
}

bool CommandQueues::done(Ticket ticket) noexcept {
  if (ticket.value == 0 || link_.forked()) {
    return true;
  }
  const TicketPlace at = decodeTicket(ticket);
  return link_.control().queue(at.queue).completed.value() >= at.place || link_.lost();
}

Status CommandQueues::wait(Ticket ticket) {
  if (ticket.value == 0) {
    return Status();
  }
  if (link_.forked()) {
    return link_.failForked();
  }
  GMAC_TRY(checkTicket(ticket));
  const TicketPlace at = decodeTicket(ticket);
  Queue& queue = link_.control().queue(at.queue);
  while (queue.completed.value() < at.place) {
    if (link_.knownLost()) {
      return link_.failLostInWait();
    }
    // True: reached. A loss is noticed here, and reported in the next round.
    if (!queue.completed.await(at.place, kLookAfterDevice)) {
      link_.lostOrClosed();
    }
  }
  GMAC_TRY(takeError(queue, at.place));
  // Without a system call: the work was done, and a loss that nobody has noticed is noticed by the
  // next submission.
  return link_.knownLost() ? link_.failLostInWait() : Status();
}

Status CommandQueues::takeError(Queue& queue, std::uint64_t place) {
  if (queue.errorsMade.load(std::memory_order_acquire) ==
      queue.errorsTaken.load(std::memory_order_acquire)) {
    return Status();
  }
  std::lock_guard lock(errorMutex_);
  const std::uint64_t taken = queue.errorsTaken.load(std::memory_order_relaxed);
  if (queue.errorsMade.load(std::memory_order_acquire) == taken) {
    return Status();
  }
  const ErrorRecord& record = queue.errors[taken % kErrorRecords];
  if (record.place > place) {
    return Status();
  }
  const std::uint64_t dropped = queue.errorsDropped.exchange(0, std::memory_order_relaxed);
  const Status failure = dropped == 0
                             ? fail(record.failure.code, "{}", record.failure.text.data())
                             : fail(record.failure.code, "{} ({} later errors were not kept)",
                                    record.failure.text.data(), dropped);
  queue.errorsTaken.store(taken + 1, std::memory_order_release);
  return failure;
}

}  // namespace gmac::accel::host
