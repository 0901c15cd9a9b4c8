// SPDX-License-Identifier: Apache-2.0
//
// The managed-memory programs on a real GPU, each of their cases in a process of its own: first
// with real managed memory, which checks that programs may expect what the case expects, then with
// the library preloaded, under every protocol. Their CUDA runtime is the static one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cuda/managed_cases.h"

namespace gmac {
namespace {

#define GMAC_TEXT(name) GMAC_TEXT_(name)
#define GMAC_TEXT_(name) #name

struct ProgramEnd {
  int exitStatus = -1;  // -1: killed
  int signal = 0;       // that killed it
  std::string output;
};

// Runs "VARIABLE=VALUE... PROGRAM CASE" in a shell.
ProgramEnd run(const std::string& environment, const std::string& program,
               const std::string& words) {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string command =
      "exec env " + environment + " '" + (here / program).string() + "' " + words + " 2>&1";
  ProgramEnd result;
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[4096];
  for (std::size_t count = 0; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    result.output.append(buffer, count);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) {
    result.exitStatus = WEXITSTATUS(status);
  } else {
    result.signal = WTERMSIG(status);
  }
  return result;
}

std::string preloaded(const std::string& more) {
  return "LD_PRELOAD=" + std::filesystem::absolute("gmac/libgmac.so").string() +
         " GMAC_MANAGED=1 GMAC_ACCEL=cuda " + more;
}

// The failure, with all output of the program.
std::string describe(const ProgramEnd& run) {
  return "status " + std::to_string(run.exitStatus) + ", signal " + std::to_string(run.signal) +
         ":\n" + run.output;
}

class ManagedProgram : public ::testing::TestWithParam<const char*> {
 protected:
  // With real managed memory, or a reason to skip.
  void SetUp() override {
    static const ProgramEnd plain = run("", "managed_program", "hasManagedMemory");
    if (plain.exitStatus == GMAC_MANAGED_NO_DEVICE) GTEST_SKIP() << plain.output;
    hasManagedMemory_ = plain.exitStatus == 0;
  }
  bool hasManagedMemory_ = false;
};

TEST_P(ManagedProgram, PassesWithTheDevicesOwnManagedMemory) {
  if (!hasManagedMemory_) GTEST_SKIP() << "needs an NVIDIA GPU with managed memory";
  const ProgramEnd plain = run("", "managed_program", GetParam());
  EXPECT_EQ(plain.exitStatus, 0) << describe(plain);
}

TEST_P(ManagedProgram, PassesUnderTheLibrary) {
  for (const char* protocol : {"rolling", "lazy", "batch"}) {
    const ProgramEnd managed =
        run(preloaded(std::string("GMAC_PROTOCOL=") + protocol), "managed_program", GetParam());
    EXPECT_EQ(managed.exitStatus, 0) << protocol << ": " << describe(managed);
  }
}

TEST_P(ManagedProgram, PassesUnderTheLibraryWithSmallBlocksInMemoryFiles) {
  const ProgramEnd managed =
      run(preloaded("GMAC_TEST_MIRROR=file GMAC_BLOCK_SIZE=64K GMAC_ROLLING_SIZE=3"),
          "managed_program", GetParam());
  EXPECT_EQ(managed.exitStatus, 0) << describe(managed);
}

#define GMAC_NAME(name) #name,
INSTANTIATE_TEST_SUITE_P(Cases, ManagedProgram,
                         ::testing::ValuesIn({GMAC_MANAGED_CASES(GMAC_NAME)}),
                         [](const auto& info) { return std::string(info.param); });

class PoolProgram : public ManagedProgram {};

TEST_P(PoolProgram, PassesWithTheDevicesOwnManagedMemory) {
  if (!hasManagedMemory_) GTEST_SKIP() << "needs an NVIDIA GPU with managed memory";
  const ProgramEnd plain = run("", "pool_program", GetParam());
  EXPECT_EQ(plain.exitStatus, 0) << describe(plain);
}

TEST_P(PoolProgram, PassesUnderTheLibraryAndHasAPageWithOneCopy) {
  const std::string file = ::testing::TempDir() + "pool_stats.json";
  for (const char* protocol : {"rolling", "lazy", "batch"}) {
    const ProgramEnd managed = run(preloaded("GMAC_STATS=" + file + " GMAC_PROTOCOL=" + protocol),
                                   "pool_program", GetParam());
    ASSERT_EQ(managed.exitStatus, 0) << protocol << ": " << describe(managed);
    if (std::string(protocol) == "rolling") {
      EXPECT_GE(nlohmann::json::parse(std::ifstream(file))["zeroCopies"], 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PoolProgram, ::testing::ValuesIn({GMAC_POOL_CASES(GMAC_NAME)}),
                         [](const auto& info) { return std::string(info.param); });

// The driver reads them inside a launch that has closed their pages; the library, before it.
TEST(ManagedProgramThat, KeepsKernelArgumentsInManagedMemoryPasses) {
  const ProgramEnd managed =
      run(preloaded(""), "managed_program", GMAC_TEXT(GMAC_MANAGED_ARGUMENTS));
  if (managed.exitStatus == GMAC_MANAGED_NO_DEVICE) GTEST_SKIP() << managed.output;
  EXPECT_EQ(managed.exitStatus, 0) << describe(managed);
}

// Promises: what the program says is believed, and it keeps to it.
TEST(ManagedProgramThat, IsTrustedStillPasses) {
  for (const char* one :
       {"attaches", "answersForRanges", "prefetchesBothWays", "followsPointers"}) {
    const ProgramEnd managed = run(preloaded("GMAC_MANAGED=trust"), "managed_program", one);
    if (managed.exitStatus == GMAC_MANAGED_NO_DEVICE) GTEST_SKIP() << managed.output;
    EXPECT_EQ(managed.exitStatus, 0) << one << ": " << describe(managed);
  }
}

}  // namespace
}  // namespace gmac
