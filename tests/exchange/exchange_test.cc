// SPDX-License-Identifier: Apache-2.0
//
// Payloads between processes: what arrives, who is reached, and what is refused.
#include "exchange/exchange.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmac/base/status.h"
#include "tests/exchange/team.h"

namespace gmac::testing {
namespace {

using exchange::Delivery;
using exchange::Exchange;
using exchange::Job;
using exchange::Memory;
using exchange::Options;
using exchange::Parcel;
using Bytes = std::array<std::byte, exchange::kDescriptionBytes>;

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::unique_ptr<Exchange> opened(const Job& job, const Options& options = {}) {
  Result<std::unique_ptr<Exchange>> made = Exchange::open(job, options);
  CHECK_THAT(made.ok());
  return std::move(*made);
}

// Of the board's steps: every process has opened, as after MPI_Init.
constexpr int kOpened = 0;

// An exchange that has met all others of the team.
std::unique_ptr<Exchange> met(Board& board, const Job& job, const Options& options = {}) {
  std::unique_ptr<Exchange> made = opened(job, options);
  arrive(board, kOpened);
  await(board, kOpened, job.size);
  made->meet(job.rank, job.size);
  for (int rank = 0; rank < job.size; ++rank) {
    CHECK_THAT(made->reaches(rank) == (rank != job.rank));
  }
  return made;
}

void fill(std::byte* data, std::size_t bytes, unsigned seed) {
  for (std::size_t at = 0; at < bytes; ++at) {
    data[at] = static_cast<std::byte>(seed + at * 7 + (at >> 8));
  }
}

bool filled(const std::byte* data, std::size_t bytes, unsigned seed) {
  for (std::size_t at = 0; at < bytes; ++at) {
    if (data[at] != static_cast<std::byte>(seed + at * 7 + (at >> 8))) {
      return false;
    }
  }
  return true;
}

Bytes described(Parcel& parcel) {
  Bytes description;
  parcel.describe(description);
  return description;
}

// Sends one payload.
Bytes lay(Exchange& from, int receiver, std::size_t bytes, unsigned seed) {
  Result<Parcel> parcel = from.reserve(receiver, bytes, Memory::kHost);
  CHECK_THAT(parcel.ok());
  fill(parcel->data(), bytes, seed);
  return described(*parcel);
}

TEST(Exchange, PayloadsArriveBetweenAllPairs) {
  Team team(4);
  team.start([&](const Job& job) {
    const auto exchange = met(team.board(), job);
    for (int other = 0; other < job.size; ++other) {
      if (other != job.rank) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kMiB + 5}) {
          post(team.board(), job.rank, other,
               lay(*exchange, other, bytes, static_cast<unsigned>(job.rank * 10 + other)));
        }
      }
    }
    for (int other = 0; other < job.size; ++other) {
      if (other != job.rank) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kMiB + 5}) {
          Result<Delivery> delivery =
              exchange->collect(other, fetch(team.board(), other, job.rank));
          CHECK_THAT(delivery.ok());
          CHECK_THAT(delivery->bytes() == bytes && delivery->memory() == Memory::kHost);
          CHECK_THAT(filled(delivery->data(), bytes, static_cast<unsigned>(other * 10 + job.rank)));
        }
      }
    }
    const exchange::Statistics statistics = exchange->statistics();
    CHECK_THAT(statistics.peers == 3);
    CHECK_THAT(statistics.sent[0].parcels == 9 && statistics.sent[0].bytes == 3 * (kMiB + 6));
    CHECK_THAT(statistics.collected[0].parcels == 9);
    CHECK_THAT(statistics.collected[0].bytes == 3 * (kMiB + 6));
  });
  EXPECT_EQ(team.end(), "");
}

}  // namespace
}  // namespace gmac::testing
