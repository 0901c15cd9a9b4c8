// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/queue_runner.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>

#include "gmac/accel/host/device_crashes.h"
#include "gmac/accel/host/device_failure.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace gmac::accel::host {

#if defined(__SANITIZE_THREAD__)
namespace {
char applicationOrder;
}  // namespace
void acquireApplicationOrder() { __tsan_acquire(&applicationOrder); }
void releaseApplicationOrder() { __tsan_release(&applicationOrder); }
#else
void acquireApplicationOrder() {}
void releaseApplicationOrder() {}
#endif

namespace {

constexpr auto kForever = std::chrono::hours(24);

void awaitPlace(Counter& counter, std::uint64_t place) {
  while (!counter.await(place, kForever)) {
  }
}

void record(Queue& queue, std::uint64_t place, const Failure& failure) {
  const std::uint64_t made = queue.errorsMade.load(std::memory_order_relaxed);
  if (made - queue.errorsTaken.load(std::memory_order_acquire) == kErrorRecords) {
    queue.errorsDropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  queue.errors[made % kErrorRecords] = ErrorRecord{place, failure};
  queue.errorsMade.store(made + 1, std::memory_order_release);
}

Failure outside(const Command& command, std::uintptr_t address, std::string_view what) {
  return failureOf(adsmErrorInvalidValue,
                   "a copy or fill of {} bytes names {:#x}, which lies in no {} of that size",
                   command.bytes, address, what);
}

Failure copy(const Command& command, const AddressTable& toTable, std::string_view toWhat,
             const AddressTable& fromTable, std::string_view fromWhat) {
  std::byte* const to = toTable.find(command.to, command.bytes);
  if (to == nullptr) {
    return outside(command, command.to, toWhat);
  }
  const std::byte* const from = fromTable.find(command.from, command.bytes);
  if (from == nullptr) {
    return outside(command, command.from, fromWhat);
  }
  std::memcpy(to, from, command.bytes);
  return success();
}

}  // namespace

void QueueRunner::run() {
  Queue& queue = control_->queue(id_);
  for (std::uint64_t place = 1;; ++place) {
    awaitPlace(queue.submitted, place);
    const Command& command = queue.slots[place % kSlots];
    if (command.after != 0) {
      const TicketPlace after = decodeTicket(Ticket{command.after});
      awaitPlace(control_->queue(after.queue).completed, after.place);
    }
    awaitPlace(control_->queue(QueueId::kIn).completed, command.copyInsBefore);
    acquireApplicationOrder();
    const Failure failure = execute(command);
    releaseApplicationOrder();
    if (failure.code != adsmSuccess) {
      record(queue, place, failure);
    }
    queue.completed.publish(place);
  }
}

// An exception that left this thread would end the process, and all objects with it.
Failure QueueRunner::execute(const Command& command) noexcept {
  try {
    return run(command);
  } catch (const std::bad_alloc&) {
    return failureOf(adsmErrorHostMemory, "the device process has no memory left to run a command");
  }
}

Failure QueueRunner::run(const Command& command) {
  switch (command.kind) {
    case CommandKind::kCopyIn:
      return copy(command, memory_, "accelerator memory", pinned_, "pinned CPU memory");
    case CommandKind::kCopyOut:
      return copy(command, pinned_, "pinned CPU memory", memory_, "accelerator memory");
    case CommandKind::kCopyWithin:
      return copy(command, memory_, "accelerator memory", memory_, "accelerator memory");
    case CommandKind::kFill:
      return fill(command);
    case CommandKind::kLaunch:
      return launch(command);
    case CommandKind::kSetConstant:
      std::memcpy(reinterpret_cast<void*>(command.to), control_->arena.data() + command.arenaOffset,
                  command.bytes);
      return success();
  }
  return failureOf(adsmErrorSystem, "the device process got a command of an unknown kind {}",
                   static_cast<std::uint32_t>(command.kind));
}

Failure QueueRunner::fill(const Command& command) const {
  std::byte* const to = memory_.find(command.to, command.bytes);
  if (to == nullptr) {
    return outside(command, command.to, "accelerator memory");
  }
  std::memset(to, static_cast<int>(command.from), command.bytes);
  return success();
}

Failure QueueRunner::launch(const Command& command) {
  std::byte* const packed = control_->arena.data() + command.arenaOffset;
  const auto* const offsets = reinterpret_cast<const std::uint32_t*>(packed);
  arguments_.resize(command.argumentCount);
  for (std::uint32_t i = 0; i < command.argumentCount; ++i) {
    arguments_[i] = packed + offsets[i];
  }
  kernelQueueRuns(&command);
  const char* const failure =
      pool_->run({reinterpret_cast<adsmHostKernel_t>(command.function), command.grid, command.block,
                  command.sharedBytes, arguments_.data()});
  kernelQueueRuns(nullptr);
  if (failure != nullptr) {
    return failureOf(adsmErrorKernel, "kernel '{}' {}", command.name.data(), failure);
  }
  return success();
}

}  // namespace gmac::accel::host
