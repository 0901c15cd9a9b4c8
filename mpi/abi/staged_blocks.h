// SPDX-License-Identifier: Apache-2.0
//
// A staged buffer of a collective: MPI is given its blocks, packed one after the other in private
// memory.
#ifndef GMAC_MPI_ABI_STAGED_BLOCKS_H_
#define GMAC_MPI_ABI_STAGED_BLOCKS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mpi/abi/elements.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// The block that one process sends to, or receives from, another.
struct Block {
  void* address;
  MPI_Count count;
  MPI_Datatype type;
};

class StagedBlocks {
 public:
  // Allocates memory for the payload if a byte of the blocks is shared. Blocks that are neighbours
  // in memory are packed together.
  Ready prepare(std::span<const Block> blocks);
  // Whether there is such memory. If not, the functions below do nothing.
  bool inUse() const { return memory_.data() != nullptr; }

  // Packs and unpacks the whole payload. False: failed.
  bool pack();
  bool unpack();

  // The address for MPI, with the application's counts; valid as long as this object lives.
  void* address() const { return memory_.data(); }
  // The datatype of all blocks, if they share one.
  MPI_Datatype datatype() const { return datatype_; }
  // One for each block.
  const MPI_Datatype* datatypes() const { return datatypes_.data(); }
  // The displacement of each block, in elements of datatype() or in bytes. NULL if one does not fit
  // into an int; reason() says so.
  template <typename Displacement>
  const Displacement* places(bool inBytes);

  const std::string& reason() const { return reason_; }

 private:
  Ready add(const Block& block);
  std::vector<int>& list(const int*) { return narrow_; }
  std::vector<MPI_Aint>& list(const MPI_Aint*) { return wide_; }

  struct Run {
    Elements elements;
    std::int64_t offset;
  };
  std::vector<Run> runs_;
  std::vector<std::int64_t> offsets_;  // of each block, in bytes
  std::int64_t bytes_ = 0;
  StagingMemory memory_;
  MPI_Datatype datatype_ = MPI_DATATYPE_NULL;
  std::int64_t elementBytes_ = 0;
  std::vector<MPI_Datatype> datatypes_;
  std::vector<int> narrow_;
  std::vector<MPI_Aint> wide_;
  std::string reason_;
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_STAGED_BLOCKS_H_
