// SPDX-License-Identifier: Apache-2.0
//
// The memory that the application and the device process share: three queues of commands, their
// completions and errors, an arena for arguments, and a crash report. Mapped before the device
// process is forked, at one address in both.
//
// Who writes what: the application writes commands, `submitted`, the arena and `errorsTaken`; the
// device process writes `completed`, `errors` and the crash report. A counter published after data
// makes that data visible.
#ifndef GMAC_ACCEL_HOST_CONTROL_BLOCK_H_
#define GMAC_ACCEL_HOST_CONTROL_BLOCK_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/host/counter.h"
#include "gmac/api/adsm.h"

namespace gmac::accel::host {

enum class QueueId : std::uint32_t { kIn = 0, kOut = 1, kKernel = 2 };
inline constexpr std::size_t kQueueCount = 3;
inline constexpr std::uint64_t kSlots = 1024;
inline constexpr std::size_t kErrorRecords = 32;
// A Failure has no padding, whose bytes memory checkers would find unset where it is sent.
inline constexpr std::size_t kFailureTextBytes = 508;
inline constexpr std::size_t kNameBytes = 64;
inline constexpr std::size_t kArenaBytes = std::size_t{1} << 20;

// The meaning of a Ticket's number: the place of a command in its queue. Places start at 1.
struct TicketPlace {
  QueueId queue;
  std::uint64_t place;
};
inline Ticket encodeTicket(TicketPlace at) {
  return Ticket{at.place << 2 | (static_cast<std::uint64_t>(at.queue) + 1)};
}
// The ticket is not the complete one.
inline TicketPlace decodeTicket(Ticket ticket) {
  return {static_cast<QueueId>((ticket.value & 3) - 1), ticket.value >> 2};
}

enum class CommandKind : std::uint32_t {
  kCopyIn,
  kCopyOut,
  kCopyWithin,
  kFill,
  kLaunch,
  kSetConstant
};

struct Command {
  CommandKind kind;
  std::uint32_t argumentCount;  // launch
  std::uint64_t after;          // ticket to wait for; 0: none
  std::uint64_t copyInsBefore;  // place in the in-queue to wait for; 0: none
  std::uintptr_t to;            // copies, fill; constant: the variable in the device process
  std::uintptr_t from;          // copies; fill: the byte's value
  std::uint64_t bytes;          // copies, fill, constant
  std::uintptr_t function;      // launch: the kernel in the device process
  std::uint64_t sharedBytes;    // launch
  adsmDim_t grid, block;        // launch
  std::uint64_t arenaOffset;    // launch: argument offsets, then arguments; constant: its data
  std::array<char, kNameBytes> name;  // of the kernel or constant, cut, NUL-terminated
};

struct Failure {
  adsmError_t code;
  std::array<char, kFailureTextBytes> text;  // NUL-terminated
};

struct ErrorRecord {
  std::uint64_t place;
  Failure failure;
};

// A ring of commands that run in order. Errors form a ring of their own, in the order of their
// commands.
struct Queue {
  Counter submitted;
  Counter completed;
  std::atomic<std::uint64_t> errorsMade{0};
  std::atomic<std::uint64_t> errorsTaken{0};
  std::atomic<std::uint64_t> errorsDropped{0};  // while the ring was full
  std::array<ErrorRecord, kErrorRecords> errors;
  std::array<Command, kSlots> slots;
};

// Written by the device process's signal handler before it dies.
struct CrashReport {
  std::atomic<std::uint32_t> state{0};  // 0: none; 1: being written; 2: complete
  int signal;
  std::uintptr_t address;
  bool inKernel;
  std::array<char, kNameBytes> name;
};

struct ControlBlock {
  std::array<Queue, kQueueCount> queues;
  CrashReport crash;
  alignas(64) std::array<std::byte, kArenaBytes> arena;

  Queue& queue(QueueId id) { return queues[static_cast<std::size_t>(id)]; }
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_CONTROL_BLOCK_H_
