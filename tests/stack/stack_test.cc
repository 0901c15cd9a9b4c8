// SPDX-License-Identifier: Apache-2.0
//
// The stack that a fault takes is what docs/reference.md says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include "tests/neighbours/run_program.h"

namespace gmac::testing {
namespace {

using ::testing::HasSubstr;

// The largest frame that the system may put on a stack for a signal; the rest is ours.
std::size_t frameBytes() { return getauxval(AT_MINSIGSTKSZ); }
constexpr std::size_t kFaultBytes = 4608;
// With an alternate stack: of the stack on which it happens, and of the alternate one.
constexpr std::size_t kOwnStackBytes = 512;
constexpr std::size_t kAlternateBytes = 2048;

struct Use {
  std::string name;
  std::size_t own = 0;
  std::size_t alternate = 0;
};

class StackUse : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
#if GMAC_WALK
    GTEST_SKIP() << "frames of debug builds are larger";
#endif
    if (accelerator() == "cuda" && access(kDriver, R_OK) != 0) {
      GTEST_SKIP() << kDriver << " is not here";
    }
  }

  static constexpr const char* kDriver = "tests/cuda/libfakecuda.so";
  static std::string accelerator() { return GetParam(); }

  static ProgramEnd run(const std::vector<std::string>& arguments) {
    std::vector<std::string> words = {"tests/stack/faulting"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Variables variables = {{"GMAC_ACCEL", accelerator()}, {"GMAC_HOST_MEMORY", "128M"},
                           {"GMAC_HOST_THREADS", "1"},    {"GMAC_BLOCK_SIZE", "64K"},
                           {"GMAC_TEST_MIRROR", "file"},  {"GMAC_ROLLING_SIZE", "4"}};
    if (accelerator() == "cuda") {
      variables["LD_PRELOAD"] = kDriver;
      variables["FAKE_CUDA_STACK"] = "16384";  // more than all that there is
    }
    return runProgram(words, variables);
  }

  static std::vector<Use> measured(const std::string& what, std::size_t rounds) {
    const ProgramEnd end = run({what});
    EXPECT_EQ(end.exitStatus, 0) << end.errors;
    std::vector<Use> uses;
    std::istringstream lines(end.output);
    for (Use use; std::getline(lines, use.name, ':') && lines >> use.own >> use.alternate;) {
      lines.ignore(1, '\n');
      uses.push_back(use);
    }
    EXPECT_EQ(uses.size(), 11 * rounds) << end.output;
    return uses;
  }
};

INSTANTIATE_TEST_SUITE_P(, StackUse, ::testing::Values("host", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(StackUse, OfAFaultIsBounded) {
  for (const Use& use : measured("own", 2)) {
    EXPECT_LE(use.own, frameBytes() + kFaultBytes) << use.name;
  }
}

TEST_P(StackUse, OfAFaultWithAnAlternateStackIsTheFrame) {
  for (const Use& use : measured("alternate", 1)) {
    EXPECT_LE(use.own, kOwnStackBytes) << use.name;
    EXPECT_LE(use.alternate, frameBytes() + kAlternateBytes) << use.name;
  }
}

TEST_P(StackUse, IsEnoughForTheReasonOfAFailure) {
  const ProgramEnd end = run({"dies", std::to_string(frameBytes() + kFaultBytes)});
  EXPECT_EQ(end.signal, SIGABRT);
  EXPECT_THAT(end.errors, HasSubstr("noticed by a read fault that waited for it: "));
}

}  // namespace
}  // namespace gmac::testing
