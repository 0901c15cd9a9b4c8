// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/mpi_types.h"

#include <cstddef>
#include <vector>

namespace gmac::exchange::bench {

MPI_Datatype typeOf(const datatype::Layout& layout) {
  std::vector<int> lengths;
  std::vector<MPI_Aint> offsets;
  for (const datatype::Block& block : layout.blocks()) {
    lengths.push_back(static_cast<int>(block.bytes));
    offsets.push_back(block.offset);
  }
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), offsets.data(),
                           MPI_BYTE, &type);
  for (auto dim = layout.dims().rbegin(); dim != layout.dims().rend(); ++dim) {
    MPI_Datatype around = MPI_DATATYPE_NULL;
    MPI_Type_create_hvector(static_cast<int>(dim->count), 1, dim->stride, type, &around);
    MPI_Type_free(&type);
    type = around;
  }
  MPI_Type_commit(&type);
  return type;
}

std::string nameOfMpi() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return std::string(text, static_cast<std::size_t>(length)).find("Open MPI") != std::string::npos
             ? "Open MPI"
             : "MPICH";
}

}  // namespace gmac::exchange::bench
