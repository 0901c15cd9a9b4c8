// SPDX-License-Identifier: Apache-2.0
//
// Programs of MPI on two "hosts" of this machine (two_hosts.sh): to processes of the other host all
// messages take MPI's wire, with tickets on and off. Skipped where namespaces cannot be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/neighbours/mpi_ranks.h"

namespace gmac::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRefused = 77;
constexpr int kLimitReached = 124;

// By what it is given as a parameter, an MPI that two_hosts.sh knows.
class TwoHosts : public ::testing::TestWithParam<std::string> {
 protected:
  // So many ranks on each.
  static ProgramEnd run(int ranks, const std::string& program,
                        const std::vector<std::string>& arguments, const Variables& variables) {
    std::vector<std::string> words = {fs::absolute("tests/mpi/two_hosts.sh").string(),
                                      GetParam(),
                                      std::to_string(ranks),
                                      fs::absolute("tools/gmac/gmac").string(),
                                      "run",
                                      "--mpi",
                                      "--",
                                      fs::absolute("tests/mpi/" + program + "_" + GetParam())};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return runProgram(words, mpiVariables(variables));
  }
};

// (MPICH 4.0.2 hangs now and then in MPI_Finalize over UCX's TCP, without gmac as well.)
INSTANTIATE_TEST_SUITE_P(, TwoHosts, ::testing::Values("openmpi"),
                         [](const auto& info) { return info.param; });

#define SKIP_IF_REFUSED(end) \
  if ((end).exitStatus == kRefused) GTEST_SKIP() << (end).output

TEST_P(TwoHosts, LargeMessagesTakeTheWire) {
  const std::string file = ::testing::TempDir() + "gmac_mpi_hosts_" + GetParam() + ".json";
  const ProgramEnd end = run(1, "exchange", {}, {{"GMAC_MPI_TICKETS", "1"}, {"GMAC_STATS", file}});
  SKIP_IF_REFUSED(end);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "exchanged\n");
  EXPECT_THAT(end.errors, HasSubstr("large messages of rank 0: 0 (0 bytes) by ticket"));
  EXPECT_THAT(end.errors,
              HasSubstr("3 (2752512 bytes) by the wire to ranks that tickets do not reach"));
}

// Two ranks on each: tickets within a host, and not between them.
TEST_P(TwoHosts, RandomProgramsDoWhatTheyDoInPlainMemory) {
  for (const char* const tickets : {"0", "1"}) {
    const ProgramEnd end = run(2, "random_program", {"--programs", "10", "--seed", "100"},
                               {{"GMAC_MPI_TICKETS", tickets}, {"GMAC_TEST_TICKET_BYTES", "512"}});
    SKIP_IF_REFUSED(end);
    EXPECT_EQ(end.exitStatus, 0) << tickets << ": " << end.seen();
    EXPECT_THAT(end.output, HasSubstr("10 programs agree"));
  }
}

// By what MPI and its launcher do about it.
TEST_P(TwoHosts, NobodyWaitsForARankThatIsKilledOnTheOtherHost) {
  for (const char* const dies : {"sending", "receiving"}) {
    const ProgramEnd end = run(1, "tickets", {dies}, {{"GMAC_MPI_TICKETS", "1"}});
    SKIP_IF_REFUSED(end);
    EXPECT_NE(end.exitStatus, 0);
    EXPECT_NE(end.exitStatus, kLimitReached) << dies << ": " << end.seen();
    EXPECT_THAT(end.errors, Not(HasSubstr("FAILED")));
  }
}

}  // namespace
}  // namespace gmac::testing
