// SPDX-License-Identifier: Apache-2.0
//
// A thread that is cancelled in any call ends as it does without the library and leaves nothing
// behind, with the library preloaded and with the runtime started. The scenarios are those of
// cancelled.c.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/neighbours/run_program.h"

namespace gmac::testing {
namespace {

const std::string kProgram = "tests/neighbours/cancelled";

const Variables kPreloading = {
    {"LD_PRELOAD", "gmac/libgmac.so"},
    {"GMAC_ACCEL", "host"},
    {"GMAC_HOST_MEMORY", "64M"},
    {"GMAC_HOST_THREADS", "1"},
    {"GMAC_BLOCK_SIZE", "16K"},
    // Written by whichever thread ends the program.
    {"GMAC_STATS", "/dev/null"},
    {"GMAC_TRACE", "/dev/null"},
};

std::vector<std::string> scenarios() {
  std::istringstream names(runProgram({kProgram}, {}).output);
  std::vector<std::string> all;
  for (std::string name; names >> name;) all.push_back(name);
  return all;
}

class Cancelled : public ::testing::TestWithParam<std::tuple<std::string, const char*>> {};

TEST_P(Cancelled, EndsAsOnPlainMemory) {
  const auto& [scenario, memory] = GetParam();
  const ProgramEnd plain = runProgram({kProgram, scenario, "plain"}, {});
  const ProgramEnd preloaded = runProgram({kProgram, scenario, memory}, kPreloading);
  EXPECT_EQ(plain.signal, 0) << plain.seen();
  EXPECT_FALSE(plain.output.empty() && plain.exitStatus != 5) << plain.seen();
  EXPECT_EQ(preloaded.seen(), plain.seen()) << preloaded.errors;
}

INSTANTIATE_TEST_SUITE_P(, Cancelled,
                         ::testing::Combine(::testing::ValuesIn(scenarios()),
                                            ::testing::Values("plain", "started", "shared")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

TEST(Scenarios, AreAllThere) { EXPECT_GT(scenarios().size(), 60u); }

}  // namespace
}  // namespace gmac::testing
