// SPDX-License-Identifier: Apache-2.0
//
// gdb, used as docs/guide.md says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/neighbours/run_program.h"

namespace gmac::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kDebugger = "/usr/bin/gdb";
constexpr const char* kGuide = "docs/guide.md";

// The guide's block of commands for gdb.
std::string guideCommands() {
  std::ifstream file(kGuide);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string mark = "\n```gdb\n";
  const std::size_t begin = text.find(mark);
  EXPECT_NE(begin, std::string::npos) << "the guide has no commands for gdb";
  return text.substr(begin + mark.size(), text.find("\n```", begin + 1) - begin - mark.size() + 1);
}

class Debugger : public ::testing::Test {
 protected:
  void SetUp() override {
    if (access(kDebugger, X_OK) != 0) GTEST_SKIP() << kDebugger << " is not installed";
    // Where the guide does not travel, programs have no names for gdb either.
    if (access(kGuide, R_OK) != 0) GTEST_SKIP() << kGuide << " is not here";
  }

  // The output of gdb when it runs a scenario with the guide's commands and these.
  static std::string debug(const std::string& scenario, const std::string& commands) {
    const std::string script = std::string(std::getenv("TEST_TMPDIR")) + "/commands.gdb";
    std::ofstream(script) << "set startup-with-shell off\n"
                             "set breakpoint pending on\n"
                             "set environment LD_PRELOAD gmac/libgmac.so\n"
                             "set environment GMAC_ACCEL host\n"
                             "set environment GMAC_HOST_MEMORY 64M\n"
                             "set environment GMAC_HOST_THREADS 1\n"
                             "set environment GMAC_BLOCK_SIZE 16K\n"
                             "set environment GMAC_TEST_SHARED yes\n"
                          << guideCommands() << commands;
    const ProgramEnd end = runProgram(
        {kDebugger, "-nx", "-batch", "-x", script, "--args", "tests/neighbours/subject", scenario},
        {});
    const bool traced = end.errors.find("Could not trace the inferior") == std::string::npos;
    return traced ? end.output + end.errors : std::string();
  }
};

TEST_F(Debugger, SeesTheCpusBytesAndTheTrueOnesAfterTheirFetch) {
  const std::string said = debug("isLookedAtByADebugger",
                                 "break stopForDebugger\n"
                                 "run\n"
                                 "printf \"before: %d\\n\", **(unsigned char**)&debuggedMemory\n"
                                 "fetch\n"
                                 "printf \"after: %d\\n\", **(unsigned char**)&debuggedMemory\n"
                                 "continue\n");
  if (said.empty()) GTEST_SKIP() << "gdb cannot trace programs here";
  EXPECT_THAT(said, HasSubstr("before: 7\n"));
  EXPECT_THAT(said, HasSubstr("after: 8\n"));
  EXPECT_THAT(said, HasSubstr("\n8 7\n"));
  EXPECT_THAT(said, HasSubstr("exited normally"));
  EXPECT_THAT(said, Not(HasSubstr("SIGSEGV")));
}

TEST_F(Debugger, StopsWhereAProgramCrashesAndNotWhereItTouchesSharedMemory) {
  const std::string said = debug("crashesUnderADebugger", "run\nbacktrace\n");
  if (said.empty()) GTEST_SKIP() << "gdb cannot trace programs here";
  EXPECT_THAT(said, HasSubstr("<signal handler called>"));
  EXPECT_THAT(said, HasSubstr("run_crashesUnderADebugger"));
  EXPECT_THAT(said, Not(HasSubstr("Program received signal SIGSEGV")));
}

}  // namespace
}  // namespace gmac::testing
