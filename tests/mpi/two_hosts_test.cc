// SPDX-License-Identifier: Apache-2.0
//
// Programs of MPI on two "hosts" of this machine (two_hosts.sh): to processes of the other host
// large messages of shared objects go in fragments where all have gmac, else by MPI's wire. Skipped
// where namespaces cannot be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
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
    std::vector<std::string> words = {fs::absolute("tools/gmac/gmac").string(), "run", "--mpi",
                                      "--",
                                      fs::absolute("tests/mpi/" + program + "_" + GetParam())};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return runWords(ranks, words, variables);
  }
  static ProgramEnd runWords(int ranks, const std::vector<std::string>& command,
                             const Variables& variables) {
    std::vector<std::string> words = {fs::absolute("tests/mpi/two_hosts.sh").string(), GetParam(),
                                      std::to_string(ranks)};
    words.insert(words.end(), command.begin(), command.end());
    Variables all = mpiVariables(variables);
    // (Over TCP, MPICH 4.0.2 hangs now and then in MPI_Finalize, without gmac as well: it helps.)
    all["TWO_HOSTS_PRELOAD"] = fs::absolute("tests/neighbours/libyielding_mpich.so").string();
    return runProgram(words, all);
  }
  // The program has a file of that name for each rank, and leaves others that begin so.
  static std::string newFile(const std::string& name) {
    std::string path = ::testing::TempDir() + "gmac_mpi_" + name + "_" + GetParam();
    for (const auto& entry : fs::directory_iterator(::testing::TempDir())) {
      if (entry.path().string().starts_with(path)) fs::remove(entry.path());
    }
    return path;
  }
};

// Messages of 1 MiB are large.
Variables withFragments(const std::string& stats) {
  return {{"GMAC_TEST_FRAGMENTED_BYTES", "1M"},
          // However busy the machine is, receivers are not late.
          {"GMAC_TEST_ANSWER_WAIT", "100000"},
          {"GMAC_STATS", stats}};
}

// How many messages of rank 0 went in fragments; -1: it does not say.
int inFragments(const ProgramEnd& end) {
  static const std::regex kSaid("([0-9]+) \\([0-9]+ bytes\\) in fragments");
  std::smatch found;
  return std::regex_search(end.errors, found, kSaid) ? std::stoi(found[1]) : -1;
}

INSTANTIATE_TEST_SUITE_P(, TwoHosts, ::testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return info.param; });

// With MPICH there are no fragments.
class Fragments : public TwoHosts {};
INSTANTIATE_TEST_SUITE_P(, Fragments, ::testing::Values("openmpi"),
                         [](const auto& info) { return info.param; });
class NoFragments : public TwoHosts {};
INSTANTIATE_TEST_SUITE_P(, NoFragments, ::testing::Values("mpich"),
                         [](const auto& info) { return info.param; });

#define SKIP_IF_REFUSED(end) \
  if ((end).exitStatus == kRefused) GTEST_SKIP() << (end).output

TEST_P(TwoHosts, MessagesThatAreNotLargeTakeTheWire) {
  const std::string file = newFile("hosts");
  const ProgramEnd end = run(1, "exchange", {}, {{"GMAC_MPI_TICKETS", "1"}, {"GMAC_STATS", file}});
  SKIP_IF_REFUSED(end);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "exchanged\n");
  EXPECT_THAT(end.errors, HasSubstr("large messages of rank 0: 0 (0 bytes) by ticket"));
  EXPECT_THAT(end.errors,
              HasSubstr("3 (2752512 bytes) by the wire to ranks that tickets do not reach"));
}

TEST_P(Fragments, LargeMessagesGoInFragments) {
  const std::string file = newFile("fragments");
  const ProgramEnd end = run(1, "fragments", {"all", file}, withFragments(file));
  SKIP_IF_REFUSED(end);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "fragments are right\n");
  EXPECT_GT(inFragments(end), 100) << end.seen();
}

// Each of the calls of the program that rank 0 makes after the first.
TEST_P(Fragments, CallsThatSendAndReceiveTakePart) {
  const std::string file = newFile("exchange");
  const ProgramEnd end = run(1, "fragments", {"exchange"}, withFragments(file));
  SKIP_IF_REFUSED(end);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "fragments are right\n");
  EXPECT_GT(inFragments(end), 40) << end.seen();
}

#if GMAC_HAVE_CUDA
TEST_P(Fragments, ADeviceThatFailsInTheMiddleOfAMessageIsAnErrorAndNobodyWaits) {
  const std::string file = newFile("failing");
  Variables variables = withFragments(file);
  variables.insert(
      {{"GMAC_ACCEL", "cuda"}, {"GMAC_TEST_MIRROR", "file"}, {"GMAC_TEST_DRIVER", "fake"}});
  const ProgramEnd end = run(1, "fragments", {"failing"}, variables);
  SKIP_IF_REFUSED(end);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "fragments are right\n");
  EXPECT_THAT(end.errors, HasSubstr("its sender has failed to pack it"));
  EXPECT_GT(inFragments(end), 100) << end.seen();
}
#endif

// Whoever waits for a receiver that waits for it goes on.
TEST_P(Fragments, SendersOfFragmentsDoNotWaitForLateReceivers) {
  const std::string file = newFile("late");
  Variables variables = withFragments(file);
  variables["GMAC_TEST_ANSWER_WAIT"] = "10";
  const ProgramEnd end = run(1, "fragments", {"late"}, variables);
  SKIP_IF_REFUSED(end);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "fragments are right\n");
  EXPECT_GT(inFragments(end), 0) << end.seen();
}

TEST_P(Fragments, NothingGoesInFragmentsWhereOneProcessHasNoGmac) {
  const std::string file = newFile("some");
  const ProgramEnd end = runWords(
      1,
      {"/bin/sh", "-c",
       R"(if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then exec "$0" run --mpi -- "$@"; fi; LD_PRELOAD=)" +
           fs::absolute("gmac/libgmac.so").string() + R"( exec "$@")",
       fs::absolute("tools/gmac/gmac").string(),
       fs::absolute("tests/mpi/fragments_" + GetParam()).string(), "plain"},
      withFragments(file));
  SKIP_IF_REFUSED(end);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "fragments are right\n");
  EXPECT_EQ(inFragments(end), 0) << end.seen();
}

// As its processes know of no way to agree on them (docs/mpi.md, Between hosts).
TEST_P(NoFragments, LargeMessagesTakeTheWire) {
  const std::string file = newFile("wire");
  const ProgramEnd end = run(1, "fragments", {"plain"}, withFragments(file));
  SKIP_IF_REFUSED(end);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "fragments are right\n");
  EXPECT_EQ(inFragments(end), 0) << end.seen();
}

TEST_P(Fragments, NothingGoesInFragmentsWithoutTickets) {
  const std::string file = newFile("without");
  Variables variables = withFragments(file);
  variables.insert({"GMAC_MPI_TICKETS", "0"});
  const ProgramEnd end = run(1, "fragments", {"late"}, variables);
  SKIP_IF_REFUSED(end);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "fragments are right\n");
}

// Two ranks on each: tickets within a host, and fragments between them.
TEST_P(TwoHosts, RandomProgramsDoWhatTheyDoInPlainMemory) {
  for (const char* const tickets : {"0", "1"}) {
    const ProgramEnd end = run(2, "random_program", {"--programs", "10", "--seed", "100"},
                               {{"GMAC_MPI_TICKETS", tickets},
                                {"GMAC_TEST_TICKET_BYTES", "512"},
                                {"GMAC_TEST_FRAGMENTED_BYTES", "8K"}});
    SKIP_IF_REFUSED(end);
    EXPECT_EQ(end.exitStatus, 0) << tickets << ": " << end.seen();
    EXPECT_THAT(end.output, HasSubstr("10 programs agree"));
  }
}

// By what MPI and its launcher do about it.
TEST_P(TwoHosts, NobodyWaitsForARankThatIsKilledOnTheOtherHost) {
  for (const char* const dies : {"sending", "receiving"}) {
    const ProgramEnd end = run(1, "tickets", {dies},
                               {{"GMAC_MPI_TICKETS", "1"}, {"GMAC_TEST_FRAGMENTED_BYTES", "1M"}});
    SKIP_IF_REFUSED(end);
    EXPECT_NE(end.exitStatus, 0);
    EXPECT_NE(end.exitStatus, kLimitReached) << dies << ": " << end.seen();
    EXPECT_THAT(end.errors, Not(HasSubstr("FAILED")));
  }
}

}  // namespace
}  // namespace gmac::testing
