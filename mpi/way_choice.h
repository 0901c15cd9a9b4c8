// SPDX-License-Identifier: Apache-2.0
//
// Which way a message goes, by what its sender knows of it: the one place where that is decided for
// messages that may be tickets (tickets.h). Pure functions. Every number was measured once, by the
// program that is named beside it, on the machines of docs/results.md; nothing is measured where an
// application runs. Where a way is not to be had after all (no room, too many messages under way),
// the message is packed, or takes MPI's wire.
#ifndef GMAC_MPI_WAY_CHOICE_H_
#define GMAC_MPI_WAY_CHOICE_H_

#include <algorithm>
#include <cstdint>

namespace gmac::mpi::tickets {

// The sending call's choices meanwhile.
enum class Sender {
  kWaits,      // it is in a call of its own until the message is over: a short ring may be used
  kExchanges,  // it is in a call that also receives, and advances a message that isStaged()
               // meanwhile; of others as kLeaves
  kFollows,  // it calls follow() once MPI has the ticket, waits for a message that isStaged(), and
             // may be in any other call afterwards
  kLeaves    // it may be in any other call at once
};

enum class Choice {
  kWire,       // MPI's own messages; what MPI does not reach is packed into private memory
  kPacked,     // packed into memory that both processes have, before the ticket is sent
  kRead,       // the receiver reads the sender's memory
  kShortRing,  // packed and unpacked in step, in a ring that fits into a cache
  kWholeRing,  // the same, as long as the message, which is over for its sender once it is packed
  kDevice,     // the receiver's device copies from the sender's
  kPinned      // the sender's device packs into pinned memory, from which the receiver's unpacks
};

// The receiver's kernel looks up each piece, so that shorter ones go faster through the ring
// (message_rate: 8 KiB at half its rate).
inline constexpr std::int64_t kReadPiece = std::int64_t{64} << 10;
// Longer pieces go by MPI's wire as fast as they are packed (message_rate).
inline constexpr std::int64_t kLongPiece = 4096;
// A waiting sender's message of so many bytes gets a ring of all of them. Longer ones are packed
// and unpacked in a cache, in step (typed_messages).
inline constexpr std::int64_t kMostHeld = std::int64_t{4} << 20;
// From one device to another, a ticket and a copy take less time than the staged wire from the
// first byte on (device_rate); a message that is shorter than a ticket cannot be one.
inline constexpr std::int64_t kLeastOnDevice = 512;
// A message through pinned memory is so many times as long as the shortest ticket, as each of its
// fragments takes the two devices some 10 us (device_rate, a pool's memory).
inline constexpr std::int64_t kLeastStaged = 16;

// Memory that MPI reaches.
struct PlainMessage {
  std::int64_t bytes;
  std::int64_t pieces;
  std::int64_t meanPiece;  // bytes
  bool isRead;             // the receiver may read this process's memory
};

inline Choice choosePlain(const PlainMessage& message, Sender sender, std::int64_t leastTicket) {
  // MPI copies a contiguous message at least as well (message_rate).
  if (message.bytes < leastTicket || message.pieces == 1) {
    return Choice::kWire;
  }
  if (message.isRead && message.meanPiece >= std::min(message.bytes, kReadPiece)) {
    return Choice::kRead;
  }
  if (sender == Sender::kWaits) {
    return message.bytes <= kMostHeld ? Choice::kWholeRing : Choice::kShortRing;
  }
  if (message.meanPiece >= kLongPiece) {
    return Choice::kWire;
  }
  return sender == Sender::kFollows ? Choice::kWholeRing : Choice::kPacked;
}

// Device memory, or an object that is current on the device.
struct DeviceMessage {
  enum class Reach {
    kImported,    // the receiver has imported the memory
    kNotYet,      // it will, when the ticket of a packed message tells it of the memory
    kFails,       // it could not when it last tried; it is told again
    kHasNoHandle  // nobody can
  };
  std::int64_t bytes;
  bool isFar;  // rowsLieFarApart() (far_rows.h)
  Reach reach;
};

// `leastTicket`, `leastOnDevice`: the shortest message that is a ticket, and such a one between
// two devices.
inline Choice chooseOnDevice(const DeviceMessage& message, Sender sender, std::int64_t leastTicket,
                             std::int64_t leastOnDevice) {
  using Reach = DeviceMessage::Reach;
  const bool isLong = message.bytes >= leastTicket;
  if (message.isFar || (!isLong && message.bytes < leastOnDevice)) {
    return isLong ? Choice::kPacked : Choice::kWire;
  }
  if (message.reach == Reach::kImported) {
    return Choice::kDevice;
  }
  if (message.reach != Reach::kNotYet && sender != Sender::kLeaves &&
      message.bytes >= kLeastStaged * leastTicket) {
    return Choice::kPinned;
  }
  // (The ticket tells of the memory, also of a short message.)
  return isLong || message.reach != Reach::kHasNoHandle ? Choice::kPacked : Choice::kWire;
}

}  // namespace gmac::mpi::tickets

#endif  // GMAC_MPI_WAY_CHOICE_H_
