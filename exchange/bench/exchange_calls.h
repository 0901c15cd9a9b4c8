// SPDX-License-Identifier: Apache-2.0
//
// The exchange as the programs that measure it use it: errors are exceptions.
#ifndef GMAC_EXCHANGE_BENCH_EXCHANGE_CALLS_H_
#define GMAC_EXCHANGE_BENCH_EXCHANGE_CALLS_H_

#include <mpi.h>

#include <memory>
#include <utility>

#include "exchange/exchange.h"
#include "gmac/base/status.h"

namespace gmac::exchange::bench {

// Throws std::runtime_error with the thread's last error.
[[noreturn]] void failsAt(const char* what);
void check(const Status& status, const char* what);
template <typename T>
T valueOf(Result<T> result, const char* what) {
  if (!result.ok()) failsAt(what);
  return std::move(*result);
}

// Every process of MPI_COMM_WORLD calls it: an exchange in which each reaches each.
std::unique_ptr<Exchange> openExchange();

// Whether `mine` is so in all processes.
bool inAll(bool mine, MPI_Comm communicator = MPI_COMM_WORLD);

// Between two looks at what others do: as MPI waits, with the processor at first, though others may
// want it.
class Spin {
 public:
  void progressed();
  void idled();

 private:
  bool idle_ = false;
  double since_ = 0;
};

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_EXCHANGE_CALLS_H_
