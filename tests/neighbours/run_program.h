// SPDX-License-Identifier: Apache-2.0
//
// Runs another program with a given environment.
#ifndef GMAC_TESTS_NEIGHBOURS_RUN_PROGRAM_H_
#define GMAC_TESTS_NEIGHBOURS_RUN_PROGRAM_H_

#include <map>
#include <string>
#include <vector>

namespace gmac::testing {

struct ProgramEnd {
  int exitStatus = -1;  // -1: killed
  int signal = 0;       // that killed it
  std::string output;
  std::string errors;

  // All that its parent can see of it.
  std::string seen() const;
};

using Variables = std::map<std::string, std::string>;

// Starts words[0] with the others as arguments, `variables` on top of this process's; GMAC_* and
// LD_PRELOAD of this process are removed. Waits for its end. For the thread of a test.
ProgramEnd runProgram(const std::vector<std::string>& words, const Variables& variables);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_NEIGHBOURS_RUN_PROGRAM_H_
