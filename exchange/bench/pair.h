// SPDX-License-Identifier: Apache-2.0
//
// Two processes that send each other messages, in each of the ways that are compared.
#ifndef GMAC_EXCHANGE_BENCH_PAIR_H_
#define GMAC_EXCHANGE_BENCH_PAIR_H_

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "exchange/bench/memory_file.h"
#include "exchange/bench/ways.h"
#include "exchange/bench/workloads.h"
#include "exchange/exchange.h"

namespace gmac::exchange::bench {

// The steps of a message that is copied once, each made as if for the first time; seconds, medians.
// FALCON-X, Figures 1 and 5.
struct Steps {
  double translation = 0;  // of MPI's datatype to a layout
  double exchange = 0;     // the layout is written as bytes, hashed, laid down, and read again
  double addresses = 0;    // the sender's memory is mapped by the receiver, and its pages found
  double copy = 0;
};

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
  // As OSU's tests of bandwidth: kWindow messages at once, from rank 0 to rank 1, or both ways.
  bool streamArrives(Way way, bool bothWays);
  // Seconds for each message of a direction.
  double streamSeconds(Way way, bool bothWays);
  // Of the message's datatype, and its layout. The same in both processes.
  Steps steps(std::size_t rounds);
  // By which path messages of this way went here since use(); nothing: by none of exchange's.
  std::optional<Path> path(Way way) const { return paths_[static_cast<std::size_t>(way)]; }

 private:
  static constexpr std::size_t kWindow = 8;
  class Window;

  Sending begin(Way way);
  void send(Way way);
  void receive(Way way);
  void stream(Way way, bool sends, bool receives);
  bool holds() const;
  std::byte* packed(std::size_t i);

  int rank_ = 0;
  std::unique_ptr<Exchange> exchange_;
  const Workload* workload_ = nullptr;
  SharedLayoutPtr shared_;
  MPI_Datatype from_ = MPI_DATATYPE_NULL;
  MPI_Datatype to_ = MPI_DATATYPE_NULL;
  std::unique_ptr<MemoryFile> source_;
  std::unique_ptr<MemoryFile> target_;
  ExportId file_ = kNoExport;
  // Messages packed by hand: kWindow that are sent, and as many that are received.
  std::vector<std::byte> packed_;
  std::array<std::optional<Path>, kWays> paths_;
};

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_PAIR_H_
