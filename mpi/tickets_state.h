// SPDX-License-Identifier: Apache-2.0
//
// What the sources of tickets.h share: the process's state, and tickets as they are sent.
#ifndef GMAC_MPI_TICKETS_STATE_H_
#define GMAC_MPI_TICKETS_STATE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <vector>

#include "exchange/exchange.h"
#include "gmac/session/mpi_settings.h"
#include "mpi/device_exports.h"
#include "mpi/import_attempts.h"
#include "mpi/tickets.h"

namespace gmac::mpi::tickets::internal {

// As it is sent. Both processes are of one job, so of one byte order (x86-64 only).
struct Wire {
  std::array<std::uint64_t, 2> nonce;
  std::int64_t payloadBytes;
  std::int64_t sender;
  std::array<std::byte, exchange::kDescriptionBytes> description;
  std::uint64_t exported;
  std::int64_t hasNoHandle;
  std::int64_t packedNanoseconds;
  std::int64_t fragmentBytes;
  std::int64_t number;
  std::int64_t isPinned;
  std::uint64_t sum;
};
static_assert(sizeof(Wire) <= kBytes);

struct State {
  gmacMpiSettings settings{};
  bool prepared = false;
  std::unique_ptr<exchange::Exchange> exchange;
  Nonce nonce{};
  Nonce fragmentNonce{};  // once any takes fragments
  int rank = 0;
  int size = 1;
  bool onOneHost = false;
  std::mutex lock;                                   // guards the next
  std::vector<std::shared_ptr<Transfer>> transfers;  // under way
  std::atomic<std::size_t> transferCount{0};
  std::mutex fileLock;  // guards the next
  std::shared_ptr<const ExportedFile> file;
  std::shared_mutex freeing;  // held by close(), shared by mayFree()
  std::unique_ptr<DeviceExports> memory;
  std::atomic<bool> exchangesMemory{false};  // whether anything was exported or imported
  ImportAttempts attempts;
  std::atomic<std::uint64_t> reclaims{0};
  std::array<std::atomic<std::uint64_t>, kWays> messages{};
  std::array<std::atomic<std::uint64_t>, kWays> bytes{};
};
State& state();

// Fowler, Noll and Vo's hash, 1a.
std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t seed = 0xcbf29ce484222325);
std::uint64_t sumOf(const Wire& wire);
// As the bytes of a ticket.
Bytes ticketOf(Wire wire);

}  // namespace gmac::mpi::tickets::internal

#endif  // GMAC_MPI_TICKETS_STATE_H_
