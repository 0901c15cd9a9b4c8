// SPDX-License-Identifier: Apache-2.0
//
// The block that a process sends to itself in an all-to-all exchange: copied in one pass. By MPI it
// would be packed, copied twice and unpacked.
#ifndef GMAC_MPI_ABI_OWN_BLOCK_H_
#define GMAC_MPI_ABI_OWN_BLOCK_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mpi/abi/elements.h"
#include "mpi/abi/staged_blocks.h"

namespace gmac::mpi::GMAC_MPI_ABI {

class OwnBlock {
 public:
  // Takes the blocks for process number `own`, the caller, out of both lists (their counts become
  // 0). False: they stay there, and MPI moves them: none of their bytes is shared, or they cannot
  // be copied so.
  bool take(std::vector<Block>& sent, std::vector<Block>& received, int own);
  bool inUse() const { return inUse_; }
  // A list like that one with 0 for the caller; valid as long as this object lives. Not before
  // take().
  template <typename Count>
  const Count* without(const Count* counts, std::size_t processes) {
    const auto list = std::make_shared<std::vector<Count>>(counts, counts + processes);
    (*list)[process_] = 0;
    lists_.push_back(list);
    return list->data();
  }

  // Copies the block, if it was taken. False: failed.
  bool copy() { return !inUse_ || from_.transferTo(to_); }
  const std::string& reason() const { return from_.reason(); }

 private:
  bool inUse_ = false;
  std::size_t process_ = 0;
  Elements from_;
  Elements to_;
  std::vector<std::shared_ptr<const void>> lists_;
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_OWN_BLOCK_H_
