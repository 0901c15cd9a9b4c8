// SPDX-License-Identifier: Apache-2.0
//
// The library beside others that replace libc's functions, and in programs with large runtimes of
// their own: the address and the thread sanitizer, allocators, Python. A program that is not
// installed is named and skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/neighbours/run_program.h"

namespace gmac::testing {
namespace {

using ::testing::HasSubstr;

const std::string kLibrary = "gmac/libgmac.so";

Variables preloading(const std::string& libraries) {
  return {{"LD_PRELOAD", libraries},  {"GMAC_ACCEL", "host"},     {"GMAC_HOST_MEMORY", "64M"},
          {"GMAC_HOST_THREADS", "1"}, {"GMAC_BLOCK_SIZE", "16K"}, {"GMAC_TEST_SHARED", "yes"}};
}

std::string installed(const std::string& name) {
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu/", "/usr/lib64/", "/usr/lib/"}) {
    if (access((folder + name).c_str(), R_OK) == 0) return folder + name;
  }
  return {};
}

// ---- The address sanitizer

// Sanitizers do not travel to machines without a compiler, and neither do programs that need them.
#define SKIP_WITHOUT(program)                    \
  if (access((program), X_OK) != 0) {            \
    GTEST_SKIP() << (program) << " is not here"; \
  }

const char* const kSanitizedProgram = "tests/neighbours/subject_asan";
#define SKIP_WITHOUT_SANITIZED_PROGRAM() SKIP_WITHOUT(kSanitizedProgram)

class AddressSanitizer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { SKIP_WITHOUT_SANITIZED_PROGRAM(); }
  void expectTheSame(const std::string& libraries, const std::string& options) {
    const std::vector<std::string> words = {kSanitizedProgram, GetParam()};
    const ProgramEnd plain = runProgram(words, {{"ASAN_OPTIONS", options}});
    Variables variables = preloading(libraries);
    variables["ASAN_OPTIONS"] = options;
    const ProgramEnd preloaded = runProgram(words, variables);
    EXPECT_FALSE(plain.output.empty()) << plain.errors;
    EXPECT_EQ(preloaded.seen(), plain.seen()) << preloaded.errors;
  }
};

TEST_P(AddressSanitizer, LetsTheLibraryComeBeforeItWhenItIsTold) {
  expectTheSame(kLibrary, "detect_leaks=0:verify_asan_link_order=0");
}

TEST_P(AddressSanitizer, MayComeFirst) {
  const std::string sanitizer = installed("libasan.so.8");
  if (sanitizer.empty()) GTEST_SKIP() << "libasan.so.8 is not installed";
  expectTheSame(sanitizer + " " + kLibrary, "detect_leaks=0");
}

INSTANTIATE_TEST_SUITE_P(, AddressSanitizer,
                         ::testing::Values("strings", "sorting", "manyThreads", "threadEnd",
                                           "handlerFromBefore", "handlerFromAfter", "dies",
                                           "jumpsOutOfTheHandler", "blocked", "alarms", "vforks",
                                           "overflowedStack", "beforeAndAfterMain"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SanitizedProgram, StillHasItsErrorsFound) {
  SKIP_WITHOUT_SANITIZED_PROGRAM();
  Variables variables = preloading(kLibrary);
  variables["ASAN_OPTIONS"] = "detect_leaks=0:verify_asan_link_order=0";
  const ProgramEnd end = runProgram({kSanitizedProgram, "dies"}, variables);
  EXPECT_THAT(end.errors, HasSubstr("AddressSanitizer: SEGV on unknown address"));
}

// ---- The thread sanitizer

class ThreadSanitizer : public ::testing::Test {
 protected:
  static constexpr const char* kProgram = "tests/neighbours/subject_tsan";
  static constexpr const char* kProgramWithItInside = "tests/neighbours/subject_tsan_inside";
  void SetUp() override { SKIP_WITHOUT(kProgram); }
};

class ThreadSanitizerRuns : public ThreadSanitizer,
                            public ::testing::WithParamInterface<const char*> {
 protected:
  void expectTheSame(const std::string& libraries) {
    // As the reference says: faults are answered in a handler.
    const std::string options = "report_signal_unsafe=0";
    const std::vector<std::string> words = {kProgram, GetParam()};
    const ProgramEnd plain = runProgram(words, {{"TSAN_OPTIONS", options}});
    Variables variables = preloading(libraries);
    variables["TSAN_OPTIONS"] = options;
    const ProgramEnd preloaded = runProgram(words, variables);
    EXPECT_FALSE(plain.output.empty()) << plain.errors;
    EXPECT_EQ(preloaded.seen(), plain.seen()) << preloaded.errors;
  }
};

TEST_P(ThreadSanitizerRuns, LetsTheLibraryComeBeforeIt) { expectTheSame(kLibrary); }

TEST_P(ThreadSanitizerRuns, MayComeFirst) {
  const std::string sanitizer = installed("libtsan.so.2");
  if (sanitizer.empty()) GTEST_SKIP() << "libtsan.so.2 is not installed";
  expectTheSame(sanitizer + " " + kLibrary);
}

INSTANTIATE_TEST_SUITE_P(, ThreadSanitizerRuns,
                         ::testing::Values("strings", "sorting", "threadEnd"),
                         [](const auto& info) { return std::string(info.param); });

// Nothing is set: the library says what the sanitizer needs to know.
TEST_F(ThreadSanitizer, IsToldWhatItNeedsWhereTheLibraryComesFirst) {
  const std::vector<std::string> words = {kProgram, "startsBesideThreads"};
  const ProgramEnd end = runProgram(words, preloading(kLibrary));
  EXPECT_EQ(end.seen(), runProgram(words, {}).seen()) << end.errors;
}

// Elsewhere the program's user has to say it, and is told what: in adsmAlloc's error, after which
// the program goes on.
TEST_F(ThreadSanitizer, ElsewhereNeedsAnOptionThatTheErrorNames) {
  SKIP_WITHOUT(kProgramWithItInside);
  const std::vector<std::string> words = {kProgramWithItInside, "startsBesideThreads"};
  Variables variables = preloading(kLibrary);
  const ProgramEnd untold = runProgram(words, variables);
  EXPECT_THAT(untold.output, HasSubstr("TSAN_OPTIONS=die_after_fork=0:report_signal_unsafe=0"));
  EXPECT_THAT(untold.seen(), HasSubstr("exit status 98")) << untold.errors;
  variables["TSAN_OPTIONS"] = "die_after_fork=0:report_signal_unsafe=0";
  const ProgramEnd end = runProgram(words, variables);
  EXPECT_EQ(end.seen(), runProgram(words, {}).seen()) << end.errors;
}

// As in a program that is linked with both: the sanitizer's functions are the program's.
TEST_F(ThreadSanitizer, SeesTheLibrarysLocksWhereItComesFirst) {
  const std::string sanitizer = installed("libtsan.so.2");
  if (sanitizer.empty()) GTEST_SKIP() << "libtsan.so.2 is not installed";
  const std::vector<std::string> words = {kProgram, "allocatesInThreads"};
  Variables variables = preloading(sanitizer + " " + kLibrary);
  variables["TSAN_OPTIONS"] = "die_after_fork=0:report_signal_unsafe=0";
  const ProgramEnd end = runProgram(words, variables);
  EXPECT_EQ(end.seen(), runProgram(words, {}).seen()) << end.errors;
}

// ---- Mutexes of which something is missing in shared memory

TEST(Mutexes, SayOnceWhatTheyDoNotHaveInSharedMemory) {
  const auto errorsOf = [](const char* scenario) {
    return runProgram({"tests/neighbours/subject", scenario}, preloading(kLibrary)).errors;
  };
  const auto countOf = [](const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(countOf(errorsOf("mutexesThatInheritPriorities"), "inherits priorities"), 1);
  EXPECT_EQ(errorsOf("robustMutexes"), "");
  EXPECT_EQ(countOf(errorsOf("futexesThatInherit"), "no thread inherits a priority"), 1);
  EXPECT_EQ(countOf(errorsOf("futexesThatHandOver"), "gmac: futex operation 11 "), 1);
  EXPECT_EQ(errorsOf("mutexes"), "");
}

// ---- Allocators and Python

class Libraries : public ::testing::TestWithParam<const char*> {
 protected:
  // The library and the other one, in both orders.
  std::vector<std::string> orders() {
    const std::string name = GetParam();
    if (name.empty()) return {kLibrary};
    const std::string other = installed(name);
    if (other.empty()) return {};
    return {kLibrary + " " + other, other + " " + kLibrary};
  }
};

TEST_P(Libraries, LeaveAPythonProgramThatReadsIntoSharedMemoryAlone) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "python3 is not installed";
  if (orders().empty()) GTEST_SKIP() << GetParam() << " is not installed";
  const std::string file = std::string(std::getenv("TEST_TMPDIR")) + "/words";
  for (const std::string& order : orders()) {
    const ProgramEnd end = runProgram(
        {"/usr/bin/python3", "tests/neighbours/program.py", "tests/neighbours/libkernels.so", file},
        preloading(order));
    EXPECT_EQ(end.seen(), "well\nexit status 0") << order << "\n" << end.errors;
  }
}

TEST_P(Libraries, LeaveOtherProgramsAlone) {
  if (orders().empty()) GTEST_SKIP() << GetParam() << " is not installed";
  for (const char* scenario :
       {"handlerFromAfter", "sentWhileBlocked", "strings", "threadEnd", "spawns", "execlpOf"}) {
    const std::vector<std::string> words = {"tests/neighbours/subject", scenario};
    const ProgramEnd plain = runProgram(words, {});
    for (const std::string& order : orders()) {
      const ProgramEnd end = runProgram(words, preloading(order));
      EXPECT_EQ(end.seen(), plain.seen()) << scenario << " " << order << "\n" << end.errors;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Libraries,
                         ::testing::Values("", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.empty() ? "None" : name.substr(0, name.find_first_of("._"));
                         });

}  // namespace
}  // namespace gmac::testing
