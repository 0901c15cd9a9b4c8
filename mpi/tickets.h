// SPDX-License-Identifier: Apache-2.0
//
// Messages whose payload goes through the memory of exchange/: in place of the payload MPI carries
// a ticket, which says where the payload is. Both processes are on one host, and both have this
// library. Knows no mpi.h; ranks are those in MPI_COMM_WORLD.
//
// All functions are thread-safe, but for prepare(), open() and close().
#ifndef GMAC_MPI_TICKETS_H_
#define GMAC_MPI_TICKETS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "exchange/exchange.h"

namespace gmac::mpi::tickets {

// The length of a ticket: a multiple of the length of every predefined datatype, pairs (12 and 20
// bytes) and MPI_C_LONG_DOUBLE_COMPLEX included, as MPICH 4.0 ends a process that receives a part
// of an element. Short enough for every MPI to send it without a handshake.
inline constexpr std::size_t kBytes = 480;
using Bytes = std::array<std::byte, kBytes>;

namespace internal {
extern std::atomic<bool> inUse;
}  // namespace internal

// Whether this process reaches any other: from open() to close(). A load.
inline bool inUse() { return internal::inUse.load(std::memory_order_acquire); }

// Before MPI's own MPI_Init: reads the variables, and makes this process findable.
void prepare();
// After it: meets the other processes.
void open(int rank, int size);
// Before MPI's own MPI_Finalize. With GMAC_STATS, and tickets wanted, rank 0 says how its messages
// went.
void close();

// Whether tickets go to and come from that rank; the same for the process there. A load.
bool reaches(int rank);

// Which way a large message of memory that MPI is not given went, and why.
enum class Way {
  kTicket,
  kNoRoom,      // the room for payloads was full
  kMode,        // synchronous, buffered or persistent, or of MPI_Sendrecv_replace
  kNotReached,  // the receiver is on another host, without this library, or in another group
};
inline constexpr int kWays = 4;
// Payloads of fewer bytes take MPI's wire, and are not counted.
std::int64_t leastPayload();
void count(Way way, std::int64_t payloadBytes);

// Room for a payload for that rank. None: there is no room now.
exchange::Parcel reserve(int rank, std::int64_t bytes);
// The ticket of a payload that is all there.
Bytes write(exchange::Parcel& parcel);

// What a ticket says.
struct Ticket {
  std::int64_t payloadBytes;
  int sender;
  std::array<std::byte, exchange::kDescriptionBytes> description;
};
// Nothing: these are other bytes of the same number.
std::optional<Ticket> read(std::span<const std::byte, kBytes> bytes);

// The payload. An error's message says why there is none.
Result<exchange::Delivery> collect(const Ticket& ticket);

}  // namespace gmac::mpi::tickets

#endif  // GMAC_MPI_TICKETS_H_
