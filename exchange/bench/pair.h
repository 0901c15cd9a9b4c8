// SPDX-License-Identifier: Apache-2.0
//
// Two processes that send each other one message, in each of the ways that are compared.
#ifndef GMAC_EXCHANGE_BENCH_PAIR_H_
#define GMAC_EXCHANGE_BENCH_PAIR_H_

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "exchange/bench/workloads.h"
#include "exchange/exchange.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::bench {

// How a message goes. The ways of exchange/ send their descriptions by MPI.
enum class Way {
  kMpi,     // MPI_Send and MPI_Recv of the datatypes
  kByHand,  // packed by the sender and unpacked by the receiver; MPI sends contiguous bytes
  kChosen,  // the exchange chooses
  kPlain,   // the same, as if the sender's memory were no file's
  kMapped,  // Path
  kRead,
  kRing,
};
inline constexpr std::array kWays = {Way::kMpi,    Way::kByHand, Way::kChosen, Way::kPlain,
                                     Way::kMapped, Way::kRead,   Way::kRing};
const char* wayName(Way way);

// This process and the other one of an MPI job of two. Throws std::runtime_error, where not said
// otherwise; the other process then waits for ever, so end the job.
class Pair {
 public:
  Pair();
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  int rank() const { return rank_; }

  // The message of the calls below. Both processes; so are all of these calls.
  void use(const Workload& workload);
  // Sends it there and back once; whether all bytes of it arrived, here, and no others changed.
  bool arrives(Way way);
  // Seconds of one way: half of there and back.
  double seconds(Way way);
  // By which path messages of this way went here since use(); nothing: by none of exchange's.
  std::optional<Path> path(Way way) const { return paths_[static_cast<std::size_t>(way)]; }
  // Whether `mine` is so in both processes.
  bool inBoth(bool mine) const;

 private:
  class Memory;

  void send(Way way);
  void receive(Way way);

  int rank_ = 0;
  std::unique_ptr<Exchange> exchange_;
  const Workload* workload_ = nullptr;
  SharedLayoutPtr shared_;
  MPI_Datatype from_ = MPI_DATATYPE_NULL;
  MPI_Datatype to_ = MPI_DATATYPE_NULL;
  std::unique_ptr<Memory> source_;
  std::unique_ptr<Memory> target_;
  ExportId file_ = kNoExport;
  std::unique_ptr<std::byte[]> packed_;
  std::array<std::optional<Path>, kWays.size()> paths_;
};

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_PAIR_H_
