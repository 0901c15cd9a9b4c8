// SPDX-License-Identifier: Apache-2.0
//
// One MPI ABI as the stub sees it: mpi/abi/ compiled against that MPI's mpi.h.
#ifndef GMAC_MPI_STUB_ABI_H_
#define GMAC_MPI_STUB_ABI_H_

#include <string_view>

namespace gmac::mpi {

// Finds a function, or a variable, of the MPI library; NULL when it has none of that name.
using Find = void* (*)(const char* name);

// Both functions are called under the stub's lock.
struct Abi {
  // Called once, before hook(). `next` finds functions as the application would reach them without
  // this library: a profiler's comes before MPI's own.
  void (*open)(Find next, Find variable);
  // The function that stands in for `name` (MPI_x or PMPI_x, or Fortran's mpi_x_ or pmpi_x_, of the
  // same type); NULL where calls go
  // straight to the library.
  void* (*hook)(std::string_view name);
};

extern const Abi kOpenMpi;
extern const Abi kMpich;

}  // namespace gmac::mpi

#endif  // GMAC_MPI_STUB_ABI_H_
