// SPDX-License-Identifier: Apache-2.0
//
// A staged buffer that MPI computes with. The private copy keeps the elements' layout, so that
// every operation, the application's own included, finds them as their datatype says.
#ifndef GMAC_MPI_ABI_OPERAND_H_
#define GMAC_MPI_ABI_OPERAND_H_

#include <cstddef>
#include <string>

#include "mpi/abi/elements.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {

class Operand {
 public:
  // Allocates memory for the elements if a byte of them is shared.
  Ready prepare(void* buffer, MPI_Count count, MPI_Datatype datatype);
  // Whether there is such memory. If not, the functions below do nothing.
  bool inUse() const { return memory_.data() != nullptr; }

  // Copies the elements to private memory, and back. False: failed.
  bool pack();
  bool unpack();

  // The address for MPI, which goes with the application's count and datatype.
  void* address() const { return address_; }

  const std::string& reason() const { return reason_; }

 private:
  bool fail(const Elements& elements);

  Elements buffer_;
  Elements copy_;         // of a type that is not dense
  StagingMemory memory_;  // where MPI finds the elements
  StagingMemory packed_;  // between the two, for a type that is not dense
  void* address_ = nullptr;
  std::string reason_;
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_OPERAND_H_
