// SPDX-License-Identifier: Apache-2.0
//
// The programs of mpi/examples/, as they are and with gmac: they print the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "tests/neighbours/mpi_ranks.h"

namespace gmac::testing {
namespace {

namespace fs = std::filesystem;

// With four ranks.
ProgramEnd runRanks(const std::string& mpi, const std::vector<std::string>& program,
                    const Variables& variables) {
  std::vector<std::string> words = mpirun(mpi, 4);
  words.insert(words.end(), program.begin(), program.end());
  return runProgram(words, mpiVariables(variables));
}

class Example : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  // With `before` in front of the program.
  static ProgramEnd run(const std::vector<std::string>& before, const Variables& variables) {
    const auto& [program, mpi] = GetParam();
    std::vector<std::string> words = before;
    words.push_back(fs::absolute("mpi/examples/" + program + "_" + mpi).string());
    return runRanks(mpi, words, variables);
  }
};

INSTANTIATE_TEST_SUITE_P(
    , Example,
    ::testing::Combine(::testing::Values("halo", "halo_fortran", "particles", "transpose"),
                       ::testing::Values("openmpi", "mpich")),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

TEST_P(Example, PrintsTheSameWithSharedObjects) {
  const ProgramEnd alone = run({}, {});
  ASSERT_EQ(alone.exitStatus, 0) << alone.seen();
  ASSERT_NE(alone.output, "");
  for (const char* const protocol : {"rolling", "lazy", "batch"}) {
    const ProgramEnd with = run({fs::absolute("tools/gmac/gmac").string(), "run", "--mpi", "--"},
                                {{"GMAC_PROTOCOL", protocol}});
    EXPECT_EQ(with.exitStatus, 0) << protocol << ": " << with.seen();
    EXPECT_EQ(with.output, alone.output) << protocol;
    EXPECT_EQ(with.errors, "") << protocol;
  }
  if (std::get<0>(GetParam()) == "transpose") {
    EXPECT_EQ(alone.output, "transpose: 0 of 13824 elements are wrong\n");
  }
}

// MPI is loaded by the interpreter, long after the program has begun. (Debian's mpi4py is Open
// MPI's.)
TEST(PythonExample, PrintsTheSameWithSharedObjectsAndWithItsOwnMemory) {
  const std::string python = "/usr/bin/python3";
  if (runProgram({python, "-c", "import mpi4py, numpy"}, {}).exitStatus != 0) {
    GTEST_SKIP() << "python3-mpi4py and python3-numpy are not installed";
  }
  const std::vector<std::string> program = {python, fs::absolute("mpi/examples/heat.py").string()};
  const ProgramEnd alone = runRanks("openmpi", program, {});
  ASSERT_EQ(alone.exitStatus, 0) << alone.seen();
  ASSERT_EQ(alone.output.substr(0, 6), "heat: ") << alone.seen();
  std::vector<std::string> words = {fs::absolute("tools/gmac/gmac").string(), "run", "--mpi", "--"};
  words.insert(words.end(), program.begin(), program.end());
  for (const char* const tickets : {"0", "1"}) {
    for (const char* const protocol : {"rolling", "lazy", "batch"}) {
      const ProgramEnd with =
          runRanks("openmpi", words, {{"GMAC_PROTOCOL", protocol}, {"GMAC_MPI_TICKETS", tickets}});
      EXPECT_EQ(with.exitStatus, 0) << protocol << ": " << with.seen();
      EXPECT_EQ(with.output, alone.output) << protocol;
      EXPECT_EQ(with.errors, "") << protocol;
    }
  }
  words.emplace_back("plain");
  const ProgramEnd plain = runRanks("openmpi", words, {});
  EXPECT_EQ(plain.output, alone.output) << plain.seen();
}

}  // namespace
}  // namespace gmac::testing
