// SPDX-License-Identifier: Apache-2.0
#include "tests/preloaded_io/program.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tests/support/seed.h"

namespace gmac::testing {
namespace {

constexpr const char* kInChild = "GMAC_TEST_PRELOADED";

template <typename Function>
void find(Function* function, const char* name) {
  *function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  if (*function == nullptr) {
    std::fprintf(stderr, "%s is not there: the library is not preloaded\n", name);
    std::exit(1);
  }
}

Api findApi() {
  Api found;
  find(&found.alloc, "adsmAlloc");
  find(&found.free, "adsmFree");
  find(&found.kernelCreate, "adsmKernelCreate");
  find(&found.call, "adsmCall");
  find(&found.sync, "adsmSync");
  find(&found.lastErrorString, "adsmLastErrorString");
  return found;
}

// A child's variables: this process's, without what is the runtime's or a test framework's own.
std::vector<std::string> childEnvironment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool runtimes = text.starts_with("GMAC_") && !text.starts_with("GMAC_TEST_");
    const bool framework = text.starts_with("XML_OUTPUT_FILE=") || text.starts_with("GTEST_") ||
                           text.starts_with("TEST_SHARD") ||
                           text.starts_with("TEST_TOTAL_SHARDS") || text.starts_with("LD_PRELOAD=");
    if (!runtimes && !framework) variables.emplace_back(text);
  }
  return variables;
}

bool childSucceeds(char** arguments, std::vector<std::string> variables) {
  std::vector<char*> pointers;
  for (std::string& variable : variables) pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, pointers.data()) != 0 ||
      ::waitpid(child, &status, 0) != child) {
    return false;
  }
  if (WIFSIGNALED(status)) std::printf("the child died: %s\n", ::strsignal(WTERMSIG(status)));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int runPreloaded(int count, char** arguments, const std::vector<std::string>& libraries) {
  ::testing::InitGoogleTest(&count, arguments);
  if (::getenv(kInChild) != nullptr) return RUN_ALL_TESTS();

  std::string preload = "LD_PRELOAD=";
  for (const std::string& library : libraries) {
    char* const path = ::realpath(library.c_str(), nullptr);
    if (path == nullptr) {
      std::printf("%s is not there\n", library.c_str());
      return 1;
    }
    preload += path;
    preload += ':';
    std::free(path);
  }
  const std::string seed = "GMAC_TEST_SEED=" + std::to_string(testSeed());
  std::printf("%s\n", seed.c_str());
  std::fflush(stdout);
  bool succeeded = true;
  for (const char* protocol : {"batch", "lazy", "rolling"}) {
    std::printf("==== protocol %s\n", protocol);
    std::fflush(stdout);
    std::vector<std::string> variables = childEnvironment();
    for (const std::string& more :
         {preload, seed, std::string("GMAC_PROTOCOL=") + protocol, std::string("GMAC_ACCEL=host"),
          std::string("GMAC_BLOCK_SIZE=64K"), std::string(kInChild) + "=1"}) {
      variables.push_back(more);
    }
    succeeded = childSucceeds(arguments, std::move(variables)) && succeeded;
  }
  return succeeded ? 0 : 1;
}

const Api& api() {
  static const Api found = findApi();
  return found;
}

std::uint64_t Random::next() {  // splitmix64
  std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

std::size_t Random::size(std::size_t most) {
  if (oneIn(16)) return most;
  std::size_t order = 1;
  while (order < most && !oneIn(8)) order *= 4;
  return std::min(below(order + 1), most);
}

std::uint64_t testSeed() {
  // The same every time unless told otherwise: what a seed finds is then looked into, not run into.
  constexpr std::uint64_t kUsualSeed = 101;
  return seedOr(kUsualSeed);
}

std::size_t testSteps(std::size_t otherwise) { return numberFrom("GMAC_TEST_STEPS", otherwise); }

}  // namespace gmac::testing
