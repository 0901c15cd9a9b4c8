// SPDX-License-Identifier: Apache-2.0
//
// Which MPI library is in this process.
#ifndef GMAC_MPI_STUB_LIBRARY_H_
#define GMAC_MPI_STUB_LIBRARY_H_

#include <string>
#include <vector>

#include "mpi/stub/abi.h"

namespace gmac::mpi {

struct Library {
  void* handle = nullptr;           // dlopen()'s; NULL: no MPI library is loaded
  std::string path;                 // its file
  std::vector<std::string> others;  // the files of further MPI libraries
};

// The MPI library that the application's calls reach, also when it was loaded by dlopen() and
// nobody else sees its names.
Library findLibrary();

// The library's own name, one line.
std::string versionOf(const Library& library);

// The ABI of the MPI that calls itself so; NULL for one that is not known.
const Abi* abiOf(const std::string& version, const std::string& path);

}  // namespace gmac::mpi

#endif  // GMAC_MPI_STUB_LIBRARY_H_
