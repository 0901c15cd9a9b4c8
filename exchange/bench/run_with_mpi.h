// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_EXCHANGE_BENCH_RUN_WITH_MPI_H_
#define GMAC_EXCHANGE_BENCH_RUN_WITH_MPI_H_

#include <fmt/core.h>
#include <mpi.h>

#include <cstdio>
#include <exception>

namespace gmac::exchange::bench {

// A program's exit status, which `start` returns between MPI_Init and MPI_Finalize. What it throws
// ends the job, and is written after the program's name.
inline int runWithMpi(const char* program, int (*start)(int, char**), int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    status = start(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_RUN_WITH_MPI_H_
