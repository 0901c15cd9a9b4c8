// SPDX-License-Identifier: Apache-2.0
//
// Every function of libc that gives the kernel an address of the program's does with arguments in
// closed blocks of an object what it does with arguments in plain memory: result, errno, and the
// bytes afterwards.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/preloaded_io/functions.h"
#include "tests/preloaded_io/program.h"

namespace gmac::testing {
namespace {

class EveryFunction : public ::testing::TestWithParam<Function> {
 protected:
  std::string attempt(unsigned char* memory, Place place) const {
    std::string path = ::testing::TempDir() + "/XXXXXX";
    if (::mkdtemp(path.data()) == nullptr || ::chdir(path.c_str()) != 0) std::abort();
    Attempt attempt(memory, place);
    GetParam().run(attempt);
    if (::chdir("/") != 0) std::abort();
    std::filesystem::remove_all(path);
    return attempt.noted();
  }
};

unsigned char* plainMemory() {
  static std::vector<unsigned char> memory(kMemoryBytes);
  return memory.data();
}

unsigned char* sharedMemory() {
  static auto* const object = static_cast<unsigned char*>(api().alloc(kMemoryBytes));
  return object;
}

TEST_P(EveryFunction, TakesArgumentsInClosedBlocks) {
  ASSERT_NE(sharedMemory(), nullptr) << api().lastErrorString();
  for (const Place place : {Place::kInBlock, Place::kAcrossBlocks}) {
    SCOPED_TRACE(place == Place::kInBlock ? "in a block each" : "each across two blocks");
    EXPECT_EQ(attempt(sharedMemory(), place), attempt(plainMemory(), place));
  }
}

std::string nameOf(const ::testing::TestParamInfo<Function>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Names, EveryFunction, ::testing::ValuesIn(nameFunctions()), nameOf);
INSTANTIATE_TEST_SUITE_P(Structures, EveryFunction, ::testing::ValuesIn(structureFunctions()),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Waits, EveryFunction, ::testing::ValuesIn(waitFunctions()), nameOf);
INSTANTIATE_TEST_SUITE_P(Numbers, EveryFunction, ::testing::ValuesIn(numberFunctions()), nameOf);

}  // namespace
}  // namespace gmac::testing

int main(int count, char** arguments) {
  return gmac::testing::runPreloaded(count, arguments, {"gmac/libgmac.so"});
}
