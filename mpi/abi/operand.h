// SPDX-License-Identifier: Apache-2.0
//
// A buffer that MPI computes with: its elements stand in private memory as they stand in the
// buffer, so that every operation finds them in their type, the application's operations too.
#ifndef GMAC_MPI_ABI_OPERAND_H_
#define GMAC_MPI_ABI_OPERAND_H_

#include <cstddef>
#include <string>

#include "mpi/abi/elements.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {

class Operand {
 public:
  // Memory for the elements, when a byte of them is shared.
  Ready prepare(void* buffer, MPI_Count count, MPI_Datatype datatype);
  // Whether there is any: of other buffers the rest does nothing.
  bool inUse() const { return memory_.data() != nullptr; }

  // Copies the elements there and back. False: failed.
  bool pack();
  bool unpack();

  // For MPI, with the application's count and datatype.
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
