// SPDX-License-Identifier: Apache-2.0
//
// Every interposed I/O call does on shared memory what it does on plain memory: the return value,
// errno, the bytes on both sides, and all other visible effects, whatever state the blocks are in.
// GMAC_TEST_SEED repeats a run, GMAC_TEST_STEPS sets how often each call is made.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tests/preloaded_io/memory.h"
#include "tests/preloaded_io/operations.h"
#include "tests/preloaded_io/program.h"

namespace gmac::testing {
namespace {

TwoSides& sides() {
  static TwoSides the;
  return the;
}

bool isBatch() { return std::strcmp(std::getenv("GMAC_PROTOCOL"), "batch") == 0; }

class EveryCall : public ::testing::TestWithParam<Operation> {};

TEST_P(EveryCall, DoesAsOnPlainMemory) {
  const Operation& operation = GetParam();
  const std::size_t steps = testSteps(12);
  std::uint64_t seed = testSeed();
  for (const char* letter = operation.name; *letter != '\0'; ++letter) {
    seed = seed * 31 + static_cast<unsigned char>(*letter);
  }
  for (std::size_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(std::string(operation.name) + ", step " + std::to_string(step));
    Random random(seed + step);
    sides().stir(random);
    sides().remember();
    const std::uint64_t draws = random.next();
    const Outcome wanted = operation.run(Random(draws), sides().plain());
    if (!wanted.parts.empty()) {
      sides().settle(wanted.parts, static_cast<std::size_t>(std::max(wanted.result, 0L)));
    }
    const Outcome got = operation.run(Random(draws), sides().shared());
    EXPECT_EQ(got.result, wanted.result);
    EXPECT_EQ(got.error, wanted.error) << std::strerror(got.error);
    EXPECT_TRUE(got.rest == wanted.rest)
        << "what else can be seen differs: " << got.rest.size() << " bytes instead of "
        << wanted.rest.size() << ", from byte "
        << std::mismatch(got.rest.begin(), got.rest.end(), wanted.rest.begin(), wanted.rest.end())
                   .first -
               got.rest.begin();
    // Whoever looks first sees the states as the call left them.
    if (random.oneIn(2)) {
      EXPECT_EQ(sides().difference(), "");
      EXPECT_EQ(sides().differenceOnAccelerator(), "");
    } else {
      EXPECT_EQ(sides().differenceOnAccelerator(), "");
      EXPECT_EQ(sides().difference(), "");
    }
    if (HasFailure()) break;
  }
}

std::string nameOf(const ::testing::TestParamInfo<Operation>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Descriptors, EveryCall, ::testing::ValuesIn(descriptorOperations()),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Sockets, EveryCall, ::testing::ValuesIn(socketOperations()), nameOf);
INSTANTIATE_TEST_SUITE_P(Streams, EveryCall, ::testing::ValuesIn(streamOperations()), nameOf);
INSTANTIATE_TEST_SUITE_P(Others, EveryCall, ::testing::ValuesIn(otherOperations()), nameOf);

TEST(Differential, SomeRangesEndInNothing) {
  EXPECT_TRUE(sides().shared().endsInNothing) << "no call has met the end of its memory";
}

// Past libc, whose syscall() is stood in for as well.
long bareRead(int file, void* to, std::size_t bytes) {
  long result = SYS_read;
  asm volatile("syscall" : "+a"(result) : "D"(file), "S"(to), "d"(bytes) : "rcx", "r11", "memory");
  return result;
}

// Without this the rest would prove nothing: a system call that is not intercepted fails.
TEST(Differential, ABareSystemCallCannotReachClosedBlocks) {
  if (isBatch()) GTEST_SKIP() << "batch never closes blocks";
  const int file = ::open(inputPath().c_str(), O_RDONLY);
  unsigned char* const at = sides().shared().at + Memory::kControlBytes;
  ASSERT_EQ(sides().differenceOnAccelerator(), "");  // by a kernel that may have written anything
  EXPECT_EQ(bareRead(file, at, 100), -EFAULT);
  EXPECT_EQ(::pread(file, at, 100, 0), 100);
  std::memcpy(sides().plain().at + Memory::kControlBytes, at, 100);
  ::close(file);
}

}  // namespace
}  // namespace gmac::testing

int main(int count, char** arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  return gmac::testing::runPreloaded(count, arguments, {"gmac/libgmac.so"});
}
