// SPDX-License-Identifier: Apache-2.0
//
// A program that is not linked with the library behaves the same with plain memory and, preloaded,
// with shared memory: its signals, libc's accesses, the ends of threads and of the program, and the
// programs that it starts. The scenarios are those of subject_*.cc.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/neighbours/run_program.h"

namespace gmac::testing {
namespace {

const std::string kSubject = "tests/neighbours/subject";

const Variables kPlain = {{"GMAC_TEST_LIBRARY", "tests/neighbours/libtouching.so"}};

Variables shared(const std::string& protocol, const std::string& preload) {
  Variables variables = kPlain;
  variables["GMAC_TEST_SHARED"] = "yes";
  variables["LD_PRELOAD"] = preload;
  variables["GMAC_ACCEL"] = "host";
  variables["GMAC_HOST_MEMORY"] = "64M";
  variables["GMAC_HOST_THREADS"] = "1";
  variables["GMAC_BLOCK_SIZE"] = "16K";
  variables["GMAC_PROTOCOL"] = protocol;
  return variables;
}

std::vector<std::string> scenarios() {
  std::istringstream names(runProgram({kSubject}, {}).output);
  std::vector<std::string> all;
  for (std::string name; names >> name;) all.push_back(name);
  return all;
}

class Preloaded : public ::testing::TestWithParam<std::tuple<std::string, const char*>> {};

TEST_P(Preloaded, SeesWhatItWouldSeeWithPlainMemory) {
  const auto& [scenario, protocol] = GetParam();
  const ProgramEnd plain = runProgram({kSubject, scenario}, kPlain);
  const ProgramEnd preloaded =
      runProgram({kSubject, scenario}, shared(protocol, "gmac/libgmac.so"));
  EXPECT_FALSE(plain.output.empty());
  EXPECT_EQ(preloaded.seen(), plain.seen()) << preloaded.errors;
}

INSTANTIATE_TEST_SUITE_P(, Preloaded,
                         ::testing::Combine(::testing::ValuesIn(scenarios()),
                                            ::testing::Values("batch", "lazy", "rolling")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

TEST(Scenarios, AreAllThere) { EXPECT_GT(scenarios().size(), 40u); }

}  // namespace
}  // namespace gmac::testing
