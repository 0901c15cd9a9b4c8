// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/exchange_calls.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <stdexcept>

#include "exchange/job.h"

namespace gmac::exchange::bench {

void failsAt(const char* what) {
  throw std::runtime_error(fmt::format("{}: {}", what, lastErrorText()));
}

void check(const Status& status, const char* what) {
  if (!status.ok()) failsAt(what);
}

bool inAll(bool mine, MPI_Comm communicator) {
  int all = mine ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, communicator);
  return all != 0;
}

std::unique_ptr<Exchange> openExchange() {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::array<unsigned, 4> key{};
  std::random_device random;
  std::generate(key.begin(), key.end(), std::ref(random));
  MPI_Bcast(key.data(), static_cast<int>(sizeof key), MPI_BYTE, 0, MPI_COMM_WORLD);
  auto exchange = valueOf(Exchange::open({.key = fmt::format("{:08x}{:08x}{:08x}{:08x}", key[0],
                                                             key[1], key[2], key[3]),
                                          .rank = rank,
                                          .size = size}),
                          "the exchange does not open");
  MPI_Barrier(MPI_COMM_WORLD);
  exchange->meet(rank, size);
  bool reaches = true;
  for (int other = 0; other < size; ++other) {
    reaches = reaches && (other == rank || exchange->reaches(other));
  }
  if (!inAll(reaches)) {
    throw std::runtime_error("the processes do not reach each other: are they on one host?");
  }
  return exchange;
}

void Spin::progressed() { idle_ = false; }

void Spin::idled() {
  constexpr double kMillisecond = 1e-3;
  const double now = MPI_Wtime();
  if (!idle_) {
    idle_ = true;
    since_ = now;
  } else if (now - since_ > kMillisecond) {
    ::sched_yield();
  }
}

}  // namespace gmac::exchange::bench
