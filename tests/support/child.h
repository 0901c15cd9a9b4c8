// SPDX-License-Identifier: Apache-2.0
//
// Runs a test of this program in a new process with its own environment: the runtime reads its
// variables once per process.
#ifndef GMAC_TESTS_SUPPORT_CHILD_H_
#define GMAC_TESTS_SUPPORT_CHILD_H_

#include <map>
#include <string>

namespace gmac::testing {

struct ChildEnd {
  int exitStatus = -1;  // -1: killed
  int signal = 0;       // that killed it
  std::string output;   // both streams
};

// Exit status of a child that found that it cannot run here, after saying why.
inline constexpr int kCannotRun = 77;

// Starts this program again with only the tests that `filter` names (a disabled one too) and
// `environment` on top of this process's; other GMAC_* variables but GMAC_TEST_* are removed. Waits
// for its end.
ChildEnd runChild(const std::string& filter, const std::map<std::string, std::string>& environment);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_CHILD_H_
