// SPDX-License-Identifier: Apache-2.0
#include "mpi/tickets.h"

#include <cstring>
#include <memory>
#include <utility>

#include "gmac/base/log.h"
#include "gmac/base/status.h"
#include "gmac/session/mpi_settings.h"

namespace gmac::mpi::tickets {

constinit std::atomic<bool> internal::inUse{false};

namespace {

// As it is sent. Both processes are of one host, so of one byte order.
struct Wire {
  std::array<std::uint64_t, 2> nonce;
  std::int64_t payloadBytes;
  std::int64_t sender;
  std::array<std::byte, exchange::kDescriptionBytes> description;
  std::uint64_t sum;
};
static_assert(sizeof(Wire) <= kBytes);

struct State {
  gmacMpiSettings settings{};
  bool prepared = false;
  std::unique_ptr<exchange::Exchange> exchange;
  std::array<std::uint64_t, 2> nonce{};
  int rank = 0;
  std::array<std::atomic<std::uint64_t>, kWays> messages{};
  std::array<std::atomic<std::uint64_t>, kWays> bytes{};
};
State& state() {
  static auto* const state = new State;  // also for exit handlers
  return *state;
}

// Fowler, Noll and Vo's hash, 1a.
std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::uint64_t value = seed;
  for (const std::byte byte : bytes) {
    value = (value ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  }
  return value;
}

std::uint64_t sumOf(const Wire& wire) {
  return hash(std::as_bytes(std::span(&wire, 1)).first(offsetof(Wire, sum)), 0xcbf29ce484222325);
}

void tell() {
  const State& all = state();
  static constexpr const char* kNames[kWays] = {
      "by ticket", "by the wire for want of room",
      "by the wire as synchronous, buffered, persistent or replaced ones",
      "by the wire to ranks that tickets do not reach"};
  std::string line = "mpi: large messages of rank 0:";
  for (std::size_t i = 0; i < kWays; ++i) {
    line += (i == 0 ? " " : ", ") + std::to_string(all.messages[i].load()) + " (" +
            std::to_string(all.bytes[i].load()) + " bytes) " + kNames[i];
  }
  writeLogLine(line);
}

}  // namespace

void prepare() {
  State& all = state();
  if (std::exchange(all.prepared, true)) {
    return;
  }
  if (gmacReadMpiSettings(&all.settings) != adsmSuccess) {
    writeLogLine(std::string("mpi: ") + adsmLastErrorString() +
                 "; no message is sent as a ticket, and none is expected");
    return;
  }
  if (all.settings.tickets == 0) {
    return;
  }
  const auto job = exchange::findJob();
  if (!job.has_value() || job->size < 2) {
    return;
  }
  auto opened = exchange::Exchange::open(*job);
  if (!opened.ok()) {
    writeLogLine(std::string("mpi: no message is sent as a ticket: ") + lastErrorText());
    return;
  }
  all.exchange = std::move(*opened);
  const auto key = std::as_bytes(std::span(job->key));
  all.nonce = {hash(key, 0x9ae16a3b2f90404f), hash(key, 0xc949d7c7509e6557)};
}

void open(int rank, int size) {
  State& all = state();
  all.rank = rank;
  if (all.exchange == nullptr || inUse()) {
    return;
  }
  all.exchange->meet(rank, size);
  for (int i = 0; i < size; ++i) {
    if (reaches(i)) {
      internal::inUse.store(true, std::memory_order_release);
    }
  }
}

void close() {
  State& all = state();
  if (all.settings.statistics != 0 && all.settings.tickets != 0 && all.rank == 0 &&
      std::exchange(all.prepared, false)) {
    tell();
  }
  internal::inUse.store(false, std::memory_order_release);
  all.exchange.reset();
}

bool reaches(int rank) {
  const State& all = state();
  return all.exchange != nullptr && all.exchange->reaches(rank);
}

std::int64_t leastPayload() { return state().settings.leastTicketBytes; }

void count(Way way, std::int64_t payloadBytes) {
  State& all = state();
  const auto i = static_cast<std::size_t>(way);
  all.messages[i].fetch_add(1, std::memory_order_relaxed);
  all.bytes[i].fetch_add(static_cast<std::uint64_t>(payloadBytes), std::memory_order_relaxed);
}

exchange::Parcel reserve(int rank, std::int64_t bytes) {
  auto parcel =
      state().exchange->reserve(rank, static_cast<std::size_t>(bytes), exchange::Memory::kHost);
  return parcel.ok() ? std::move(*parcel) : exchange::Parcel();
}

Bytes write(exchange::Parcel& parcel) {
  const State& all = state();
  Wire wire = {all.nonce, static_cast<std::int64_t>(parcel.bytes()), all.rank, {}, 0};
  parcel.describe(wire.description);
  wire.sum = sumOf(wire);
  Bytes bytes{};
  std::memcpy(bytes.data(), &wire, sizeof wire);
  return bytes;
}

std::optional<Ticket> read(std::span<const std::byte, kBytes> bytes) {
  const State& all = state();
  Wire wire;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (all.exchange == nullptr || wire.nonce != all.nonce || wire.sum != sumOf(wire)) {
    return std::nullopt;
  }
  return Ticket{wire.payloadBytes, static_cast<int>(wire.sender), wire.description};
}

Result<exchange::Delivery> collect(const Ticket& ticket) {
  return state().exchange->collect(ticket.sender, ticket.description);
}

}  // namespace gmac::mpi::tickets
