// SPDX-License-Identifier: Apache-2.0
//
// When what could not be imported is tried again: there may be a descriptor, or room for an import,
// a moment later.
#ifndef GMAC_MPI_IMPORT_ATTEMPTS_H_
#define GMAC_MPI_IMPORT_ATTEMPTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "exchange/attempts.h"
#include "exchange/exchange.h"

namespace gmac::mpi {

// Of the exports of all ranks. Thread-safe.
class ImportAttempts {
 public:
  // More exports that have failed are forgotten, all at once.
  static constexpr std::size_t kMostFailed = 1024;

  // Asked with each message of the export's memory.
  bool mayTry(int owner, exchange::ExportId id) {
    const std::lock_guard guard(lock_);
    const auto found = failed_.find({owner, id});
    return found == failed_.end() || found->second.mayTry();
  }
  void failed(int owner, exchange::ExportId id) {
    const std::lock_guard guard(lock_);
    if (failed_.size() >= kMostFailed && !failed_.contains({owner, id})) {
      failed_.clear();
    }
    failed_[{owner, id}].failed();
  }
  void succeeded(int owner, exchange::ExportId id) {
    const std::lock_guard guard(lock_);
    failed_.erase({owner, id});
  }

 private:
  std::mutex lock_;
  std::map<std::pair<int, exchange::ExportId>, exchange::Attempts> failed_;
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_IMPORT_ATTEMPTS_H_
