// SPDX-License-Identifier: Apache-2.0
//
// When what could not be imported is tried again: there may be a descriptor, or room for an import,
// a moment later. A system that refuses it for good is asked less and less often.
#ifndef GMAC_MPI_IMPORT_ATTEMPTS_H_
#define GMAC_MPI_IMPORT_ATTEMPTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "exchange/exchange.h"

namespace gmac::mpi {

// Of the exports of all ranks. Thread-safe.
class ImportAttempts {
 public:
  // After n failures so many messages, twice as many each time, are packed before the next attempt.
  static constexpr std::uint64_t kMostPacked = 1024;
  // More exports that have failed are forgotten, all at once.
  static constexpr std::size_t kMostFailed = 1024;

  // Asked with each message of the export's memory.
  bool mayTry(int owner, exchange::ExportId id) {
    const std::lock_guard guard(lock_);
    const auto found = failed_.find({owner, id});
    if (found == failed_.end() || found->second.left == 0) {
      return true;
    }
    --found->second.left;
    return false;
  }
  void failed(int owner, exchange::ExportId id) {
    const std::lock_guard guard(lock_);
    if (failed_.size() >= kMostFailed && !failed_.contains({owner, id})) {
      failed_.clear();
    }
    Failed& failed = failed_[{owner, id}];
    failed.packed = std::clamp<std::uint64_t>(2 * failed.packed, 1, kMostPacked);
    failed.left = failed.packed;
  }
  void succeeded(int owner, exchange::ExportId id) {
    const std::lock_guard guard(lock_);
    failed_.erase({owner, id});
  }

 private:
  struct Failed {
    std::uint64_t packed = 0;  // after the last attempt, in all
    std::uint64_t left = 0;    // of these
  };
  std::mutex lock_;
  std::map<std::pair<int, exchange::ExportId>, Failed> failed_;
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_IMPORT_ATTEMPTS_H_
