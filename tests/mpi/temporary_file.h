// SPDX-License-Identifier: Apache-2.0
//
// Files for the programs that test MPI-IO.
#ifndef GMAC_TESTS_MPI_TEMPORARY_FILE_H_
#define GMAC_TESTS_MPI_TEMPORARY_FILE_H_

#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <string>

#include "tests/mpi/shared.h"

namespace gmac::testing {

// In memory where there is such a file system: programs let each other read what they have written
// by MPI_File_sync(), which waits for a disk.
inline std::string temporaryFolder() {
  constexpr const char* kMemory = "/dev/shm";
  struct stat found = {};
  if (::stat(kMemory, &found) == 0 && S_ISDIR(found.st_mode) &&
      ::access(kMemory, W_OK | X_OK) == 0) {
    return kMemory;
  }
  const char* const folder = std::getenv("TEST_TMPDIR");
  return folder != nullptr ? folder : "/tmp";
}

// The name of a new file with those bytes.
inline std::string temporaryFile(const std::string& bytes = {}) {
  std::string name = temporaryFolder() + "/mpi_io_XXXXXX";
  const int file = ::mkstemp(name.data());
  if (file < 0) fail("mkstemp");
  if (::write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    fail("write");
  }
  ::close(file);
  return name;
}

// The same of one file for all of a communicator: rank 0 makes it, with its bytes.
inline std::string temporaryFileOf(MPI_Comm comm, const std::string& bytes = {}) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  std::array<char, PATH_MAX> name{};
  if (rank == 0) temporaryFile(bytes).copy(name.data(), name.size() - 1);
  MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, comm);
  return name.data();
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_TEMPORARY_FILE_H_
