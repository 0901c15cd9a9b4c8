// SPDX-License-Identifier: Apache-2.0
//
// `gmac run`: a program with the library preloaded, in place of this one.
#ifndef GMAC_TOOLS_GMAC_RUN_H_
#define GMAC_TOOLS_GMAC_RUN_H_

#include <string>
#include <vector>

namespace gmac::command {

// The options before "--". An empty one leaves its variable as it is.
struct RunOptions {
  std::string accelerator;
  std::string protocol;
  bool managed = false;
  bool trustHints = false;  // of a managed program
  bool mpi = false;         // MPI's functions take shared objects
  std::string statsPath;
  std::string tracePath;
};

// Becomes the program words[0] with the arguments words[1...]: same process, so that its exit
// status, its signals, its terminal and its parent are its own. Returns never; throws Failure, with
// nothing changed but this process's environment.
[[noreturn]] void run(const RunOptions& options, const std::vector<std::string>& words);

}  // namespace gmac::command

#endif  // GMAC_TOOLS_GMAC_RUN_H_
