// SPDX-License-Identifier: Apache-2.0
//
// Programs of MPI under either MPI's launcher, for tests.
#ifndef GMAC_TESTS_NEIGHBOURS_MPI_RANKS_H_
#define GMAC_TESTS_NEIGHBOURS_MPI_RANKS_H_

#include <filesystem>
#include <string>
#include <vector>

#include "tests/neighbours/run_program.h"

namespace gmac::testing {

// The launcher of "openmpi" or "mpich" for so many ranks, which are ended after `seconds`. The
// program and its arguments come after it.
inline std::vector<std::string> mpirun(const std::string& mpi, int ranks, int seconds = 120) {
  std::vector<std::string> words = {
      "/usr/bin/timeout",   "--kill-after=5", std::to_string(seconds), "mpirun." + mpi, "-n",
      std::to_string(ranks)};
  if (mpi == "openmpi") {
    words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
  } else {
    const auto yielding = std::filesystem::absolute("tests/neighbours/libyielding_mpich.so");
    words.insert(words.end(), {"-genv", "LD_PRELOAD", yielding.string()});
  }
  return words;
}

// The variables of every such program, and `more`, which goes first.
inline Variables mpiVariables(const Variables& more = {}) {
  Variables all = more;
  all.insert({{"GMAC_ACCEL", "host"},
              // Objects of a few KiB have several blocks.
              {"GMAC_BLOCK_SIZE", "4096"},
              {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
              {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
              // Open MPI's launcher kills the others of a dead rank at once, not a second later.
              {"OMPI_MCA_odls_base_sigkill_timeout", "0"},
              // There are more ranks than cores.
              {"OMPI_MCA_mpi_yield_when_idle", "1"}});
  return all;
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_NEIGHBOURS_MPI_RANKS_H_
