// SPDX-License-Identifier: Apache-2.0
//
// Tickets of a group: a member's ticket with the member's number in the lowest bits. The empty
// ticket is that of all.
#ifndef GMAC_ACCEL_GROUP_TICKETS_H_
#define GMAC_ACCEL_GROUP_TICKETS_H_

#include <cstddef>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/devices.h"

namespace gmac::accel {

inline constexpr unsigned kMemberBits = 4;
static_assert(std::size_t{1} << kMemberBits == kMaxDevices);

constexpr Ticket ofGroup(Ticket member, std::size_t device) noexcept {
  return member.value == 0 ? Ticket{} : Ticket{member.value << kMemberBits | device};
}
constexpr Ticket ofMember(Ticket ticket) noexcept { return Ticket{ticket.value >> kMemberBits}; }
constexpr std::size_t memberOf(Ticket ticket) noexcept { return ticket.value & (kMaxDevices - 1); }

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_GROUP_TICKETS_H_
