// SPDX-License-Identifier: Apache-2.0
//
// Programs of MPI under mpirun and `gmac run --mpi`, with each of the MPI libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/neighbours/mpi_ranks.h"

namespace gmac::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Large messages by ticket, those of 512 bytes too. On and off.
const Variables kTickets = {{"GMAC_MPI_TICKETS", "1"}, {"GMAC_TEST_TICKET_BYTES", "512"}};
// The number of the one-sided step of random_program.
constexpr const char* kOneSidedStep = "11";
const Variables kWays[] = {{{"GMAC_MPI_TICKETS", "0"}}, kTickets};

// By what it is given as a parameter: "openmpi" or "mpich".
class Mpi : public ::testing::TestWithParam<std::string> {
 protected:
  // The program of this folder, with libgmac_mpi.so.
  ProgramEnd run(int ranks, const std::string& program, const std::vector<std::string>& arguments,
                 const Variables& variables = {},
                 const std::vector<std::string>& launcherOptions = {}, int seconds = 120) const {
    std::vector<std::string> words = mpirun(GetParam(), ranks, seconds);
    words.insert(words.end(), launcherOptions.begin(), launcherOptions.end());
    words.insert(words.end(), {fs::absolute("tools/gmac/gmac").string(), "run", "--mpi", "--",
                               fs::absolute("tests/mpi/" + program + "_" + GetParam()).string()});
    words.insert(words.end(), arguments.begin(), arguments.end());
    ProgramEnd end = runProgram(words, mpiVariables(variables));
#ifdef GMAC_SANITIZED
    // Of any rank, however the job ends.
    for (const char* const report : {"Sanitizer", "runtime error: "}) {
      EXPECT_THAT(end.errors, Not(HasSubstr(report))) << program;
    }
#endif
    return end;
  }

  // MPI's answer, without gmac, to a window over plain memory, which some machines' Open MPI
  // refuses.
  ProgramEnd plainWindow(const Variables& variables = {}) const {
    std::vector<std::string> words = mpirun(GetParam(), 2);
    words.push_back(fs::absolute("tests/mpi/plain_window_" + GetParam()).string());
    return runProgram(words, mpiVariables(variables));
  }
  // Why tests of windows are skipped, in MPI's words; empty: they are not.
  const std::string& noWindows() const {
    static std::map<std::string, std::string> known;
    const auto [entry, isNew] = known.try_emplace(GetParam());
    if (isNew) {
      const ProgramEnd end = plainWindow();
      EXPECT_EQ(end.exitStatus, 0) << end.seen();
      if (end.output.starts_with("refused: ")) {
        entry->second = end.output.substr(9, end.output.find('\n') - 9);
      }
    }
    return entry->second;
  }
  // For programs that test windows among other things.
  Variables withoutWindows(Variables variables) const {
    if (!noWindows().empty()) variables["GMAC_TEST_NO_WINDOWS"] = noWindows();
    return variables;
  }
};

#define SKIP_WITHOUT_WINDOWS()                                                             \
  if (!noWindows().empty()) {                                                              \
    GTEST_SKIP() << "MPI itself refuses a window over plain memory here: " << noWindows(); \
  }                                                                                        \
  static_assert(true)

#ifdef GMAC_SANITIZED
#define SKIP_UNDER_A_SANITIZER(reason) GTEST_SKIP() << (reason)
#else
#define SKIP_UNDER_A_SANITIZER(reason) static_assert(true)
#endif
constexpr const char* kOwnMalloc = "the program stands in for malloc, as a sanitizer does";
constexpr const char* kFortran = "programs in Fortran have no sanitizer";

INSTANTIATE_TEST_SUITE_P(, Mpi, ::testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return info.param; });

class OpenMpi : public Mpi {};
INSTANTIATE_TEST_SUITE_P(, OpenMpi, ::testing::Values("openmpi"),
                         [](const auto& info) { return info.param; });

// The other processes of a job go on when one is killed. MPICH 4.0's launcher passes on no more of
// what they print then, with -disable-auto-cleanup neither.
class MpiAfterADeath : public Mpi {};
INSTANTIATE_TEST_SUITE_P(, MpiAfterADeath, ::testing::Values("openmpi"),
                         [](const auto& info) { return info.param; });

TEST_P(Mpi, MessagesOfEveryLengthLeaveSharedObjectsAndArrive) {
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(2, "exchange", {}, way);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "exchanged\n");
    // Nothing of "Read -1, expected 4194304, errno = 14".
    EXPECT_EQ(end.errors, "");
  }
}

// As many as the program sends from 64 KiB on.
TEST_P(Mpi, LargeMessagesGoByTicketAndTheStatisticsSaySo) {
  const std::string file = ::testing::TempDir() + "gmac_mpi_statistics_" + GetParam() + ".json";
  const ProgramEnd with = run(2, "exchange", {}, {{"GMAC_STATS", file}});
  EXPECT_THAT(with.errors, HasSubstr("gmac: mpi: large messages of rank 0: 3 (2752512 bytes) by "
                                     "ticket, 0 (0 bytes) by the wire for want of room"));
  // One of just as many bytes is large.
  Variables shorter = kTickets;
  shorter["GMAC_STATS"] = file;
  EXPECT_THAT(run(2, "exchange", {}, shorter).errors,
              HasSubstr("gmac: mpi: large messages of rank 0: 7 (2796032 bytes) by ticket"));
  const ProgramEnd without =
      run(2, "exchange", {}, {{"GMAC_MPI_TICKETS", "0"}, {"GMAC_STATS", file}});
  EXPECT_EQ(without.errors, "");
  const ProgramEnd wrong = run(2, "exchange", {}, {{"GMAC_MPI_TICKETS", "2"}});
  EXPECT_THAT(wrong.errors, HasSubstr("GMAC_MPI_TICKETS=\"2\" is not allowed; allowed: 0, 1"));
}

TEST_P(Mpi, TraceAndStatisticsOfEachRankHaveTheWayOfEachMessage) {
  const std::string folder = ::testing::TempDir() + "gmac_mpi_trace_" + GetParam() + "_";
  for (const char* const tickets : {"1", "0"}) {
    const ProgramEnd end = run(2, "exchange", {},
                               {{"GMAC_MPI_TICKETS", tickets},
                                {"GMAC_TRACE", folder + "%r.json"},
                                {"GMAC_STATS", folder + "stats_%r.json"}});
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    const auto eventsOf = [&](const char* rank, const std::string& name) {
      std::ifstream file(folder + rank + ".json");
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      const std::string quoted = "\"cat\":\"mpi\",\"name\":\"" + name + "\"";
      int count = 0;
      for (std::size_t at = 0; (at = text.find(quoted, at)) != std::string::npos; ++at) ++count;
      return count;
    };
    // As many as the program sends from 64 KiB on.
    const int large = tickets == std::string("1") ? 3 : 0;
    EXPECT_EQ(eventsOf("0", "send: ticket"), large);
    EXPECT_EQ(eventsOf("1", "receive: ticket"), large);
    EXPECT_GT(eventsOf("0", "send: wire"), 0);
    EXPECT_GT(eventsOf("1", "receive: wire"), 0);
    for (const char* const rank : {"0", "1"}) {
      std::ifstream file(folder + "stats_" + rank + ".json");
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      for (const std::string name : {"\"send: ticket\"", "\"receive: ticket\""}) {
        const std::string counts = ": {\"messages\": 3, \"bytes\": 2752512}";
        EXPECT_THAT(text, HasSubstr("\"messages\": {"));
        EXPECT_EQ(text.find(name) != std::string::npos, large != 0) << text;
        EXPECT_EQ(text.find(name + counts) != std::string::npos, large != 0) << text;
      }
      for (const std::string name : {"send: wire", "receive: wire"}) {
        EXPECT_THAT(text, HasSubstr("\"" + name + "\": {\"messages\": " +
                                    std::to_string(eventsOf(rank, name)) + ", "));
      }
    }
  }
}

// With several threads that may call MPI, and with one.
TEST_P(Mpi, ShortMessagesOfObjectsTakeNoAllocationAndEndAsOthers) {
  SKIP_UNDER_A_SANITIZER(kOwnMalloc);
  for (const std::vector<std::string>& words : {std::vector<std::string>(), {"multiple"}}) {
    for (const Variables& way : kWays) {
      const ProgramEnd end = run(2, "short_messages", words, way);
      EXPECT_EQ(end.exitStatus, 0) << end.seen();
      EXPECT_EQ(end.output, "short messages are right\n");
    }
  }
}

// They are the default. With several threads that call MPI, and with one.
TEST_P(Mpi, TicketsAreToTheProgramTheMessagesThatTheyStandFor) {
  for (const std::vector<std::string>& words : {std::vector<std::string>(), {"single"}}) {
    const ProgramEnd end = run(2, "tickets", words);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "tickets are right\n");
  }
}

TEST_P(Mpi, PlainReceivesGetTicketsInEveryCallThatCompletesThem) {
  for (const std::vector<std::string>& words : {std::vector<std::string>(), {"multiple"}}) {
    for (const Variables& way : kWays) {
      const ProgramEnd end = run(2, "plain_receives", words, way);
      EXPECT_EQ(end.exitStatus, 0) << end.seen();
      EXPECT_EQ(end.output, "plain receives are right\n");
    }
  }
}

// For `tickets` with messages of that memory.
Variables variablesOf(const std::string& memory) {
  if (memory != "pinned") return {{"GMAC_MPI_TICKETS", "1"}};
  Variables variables = kTickets;
  variables["GMAC_ACCEL"] = "cuda";
  variables["GMAC_TEST_MIRROR"] = "file";
  variables["GMAC_TEST_DRIVER"] = "fake";
  return variables;
}

TEST_P(MpiAfterADeath, WhatAKilledRankHasSentByTicketArrives) {
  for (const char* const delay : {"0", "3000", "15000"}) {
    for (const std::string memory : {"", "plain", "pinned"}) {
      std::vector<std::string> words = {"sent", delay};
      if (!memory.empty()) words.insert(words.begin(), memory);
      const ProgramEnd end = run(2, "tickets", words, variablesOf(memory), {"--enable-recovery"});
      EXPECT_THAT(end.output, HasSubstr("survived")) << end.seen();
      EXPECT_THAT(end.errors, Not(HasSubstr("FAILED")));
    }
  }
}

// By what MPI and its launcher do about it; the limit is mpirun()'s.
TEST_P(Mpi, NobodyWaitsForARankThatIsKilledAmongTickets) {
  for (const char* const dies : {"sending", "receiving"}) {
    for (const std::string memory : {"", "plain", "pinned"}) {
      std::vector<std::string> words = {dies};
      if (!memory.empty()) words.insert(words.begin(), memory);
      const ProgramEnd end = run(2, "tickets", words, variablesOf(memory));
      EXPECT_NE(end.exitStatus, 0);
      EXPECT_NE(end.exitStatus, 124) << dies << ": " << end.seen();
      EXPECT_THAT(end.errors, Not(HasSubstr("FAILED")));
    }
  }
}

// The processes that have `text` in their environment, by their numbers. Waits a while for them to
// end.
std::string processesWith(const std::string& text) {
  std::string found;
  for (int round = 0; round < 100; ++round) {
    found.clear();
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator("/proc", gone)) {
      std::ifstream file(entry.path() / "environ", std::ios::binary);
      const std::string environment((std::istreambuf_iterator<char>(file)), {});
      if (environment.find(text) != std::string::npos) {
        found += entry.path().filename().string() + " ";
      }
    }
    if (found.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return found;
}

std::string filesInSharedMemory() {
  std::string found;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename().string();
    if (name.find("gmac") != std::string::npos) found += name + " ";
  }
  return found;
}

// Among messages, in a collective, in an epoch of a window: the launcher ends the job, and nothing
// of it is left, the ranks' devices included.
TEST_P(Mpi, ARankIsKilledAnywhereAndNothingOfTheJobIsLeft) {
  for (const std::string kind : {"messages", "collectives", "windows"}) {
    if (kind == "windows" && !noWindows().empty()) continue;
    for (const char* const delay : {"0", "900", "7000", "60000"}) {
      Variables variables = kTickets;
      const std::string job =
          GetParam() + "_" + kind + "_" + delay + "_" + std::to_string(::getpid());
      variables["GMAC_TEST_JOB"] = job;
      const ProgramEnd end = run(3, "deaths", {kind, delay}, variables);
      EXPECT_NE(end.exitStatus, 0) << kind;
      EXPECT_NE(end.exitStatus, 124) << kind << ", " << delay << ": " << end.seen();
      EXPECT_THAT(end.errors, Not(HasSubstr("FAILED")));
      EXPECT_EQ(processesWith("GMAC_TEST_JOB=" + job), "") << kind << ", " << delay;
    }
  }
  EXPECT_EQ(filesInSharedMemory(), "");
}

constexpr int kLimitReached = 124;
// A job with a process that is killed ends in so many seconds, however busy the machine is.
constexpr int kSecondsAfterADeath = 60;
const std::vector<std::string> kPhasesOfMessages = {
    "before_ticket", "packing",        "after_ticket", "fragments",
    "after_message", "before_receive", "unpacking",    "received_fragments"};
const std::vector<std::string> kPhasesOfCollectives = {"collective", "incomplete_collective"};
const std::vector<std::string> kPhasesOfWindows = {"fence", "lock"};

// In a chosen phase: before a ticket and after it, in the middle of a payload on either side, in a
// collective, in an epoch. Nothing is left in the temporary directory either.
TEST_P(Mpi, ARankIsKilledInEveryPhaseAndNothingOfTheJobIsLeft) {
  std::vector<std::string> phases = kPhasesOfMessages;
  phases.insert(phases.end(), kPhasesOfCollectives.begin(), kPhasesOfCollectives.end());
  if (noWindows().empty()) {
    phases.insert(phases.end(), kPhasesOfWindows.begin(), kPhasesOfWindows.end());
  }
  for (const std::string& phase : phases) {
    const std::string job = GetParam() + "_" + phase + "_" + std::to_string(::getpid());
    // (Open MPI puts sockets there, whose names have room for some 100 letters.)
    const fs::path folder = fs::path("/tmp") / ("gmac_" + job);
    fs::create_directory(folder);
    const ProgramEnd end =
        run(3, "death_phases", {phase}, {{"GMAC_TEST_JOB", job}, {"TMPDIR", folder.string()}}, {},
            kSecondsAfterADeath);
    EXPECT_NE(end.exitStatus, 0) << phase;
    EXPECT_NE(end.exitStatus, kLimitReached) << phase << ": " << end.seen();
    EXPECT_THAT(end.errors, Not(HasSubstr("FAILED"))) << phase;
    EXPECT_EQ(processesWith("GMAC_TEST_JOB=" + job), "") << phase;
    EXPECT_TRUE(fs::is_empty(folder)) << phase << ": " << *fs::directory_iterator(folder);
    fs::remove_all(folder);
  }
  EXPECT_EQ(filesInSharedMemory(), "");
}

// The call that needs it fails, and says so; messages of other memory go on, and the job ends.
TEST_P(Mpi, ARanksDeviceIsKilledInACallAndTheJobGoesOn) {
  for (const std::string phase : {"packing", "unpacking", "collective", "fence"}) {
    if (phase == "fence" && !noWindows().empty()) continue;
    const std::string job = GetParam() + "_device_" + phase + "_" + std::to_string(::getpid());
    const ProgramEnd end = run(3, "death_phases", {phase, "device"}, {{"GMAC_TEST_JOB", job}}, {},
                               kSecondsAfterADeath);
    EXPECT_EQ(end.exitStatus, 0) << phase << ": " << end.seen() << end.errors;
    EXPECT_EQ(end.output, "went on\n") << phase;
    EXPECT_THAT(end.errors, HasSubstr("rank 1: gmac: MPI_")) << phase;
    EXPECT_THAT(end.errors, HasSubstr("the host accelerator is gone: its device process "))
        << phase;
    EXPECT_THAT(end.errors, Not(HasSubstr("no memory"))) << phase;
    EXPECT_EQ(processesWith("GMAC_TEST_JOB=" + job), "") << phase;
  }
}

// What gmac itself waits for: the receiver of a ticket whose sender is no more, and its sender.
// (Without tickets, and before one has come, nobody tells MPI.)
TEST_P(MpiAfterADeath, ThePeerOfAKilledRankIsToldByItsOwnCall) {
  const struct {
    const char* phase;
    const char* says;
    bool mayArrive = false;  // the sender has left a copy for a receiver that it took for late
  } deaths[] = {
      {"after_ticket", "gmac: MPI_Recv: exchange: the process of rank 1 has ended"},
      {"fragments", "gmac: MPI_Recv: exchange: the process of rank 1 has ended"},
      {"after_message", "success"},
      {"unpacking", "gmac: MPI_Send: exchange: the process of rank 1 has ended", true},
      {"received_fragments", "gmac: MPI_Send: exchange: the process of rank 1 has ended", true}};
  for (const auto& death : deaths) {
    const ProgramEnd end =
        run(3, "death_phases", {death.phase, "survives"}, {{"GMAC_MPI_TICKETS", "1"}},
            {"--enable-recovery"}, kSecondsAfterADeath);
    EXPECT_NE(end.exitStatus, kLimitReached) << death.phase << ": " << end.seen();
    if (!death.mayArrive || end.output != "rank 0: success\n") {
      EXPECT_THAT(end.output, HasSubstr(std::string("rank 0: ") + death.says)) << death.phase;
    }
  }
}

// Read by the receiver where the kernel lets it; else packed on the way.
TEST_P(Mpi, MessagesOfPlainMemoryStayThereUntilTheirReceiversTakeThem) {
  const std::string file = ::testing::TempDir() + "gmac_mpi_transfers_" + GetParam() + ".json";
  for (const char* const how : {"readable", "guarded", "unreadable"}) {
    const ProgramEnd end =
        run(2, "transfers", {how}, {{"GMAC_MPI_TICKETS", "1"}, {"GMAC_STATS", file}});
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "transfers are right\n");
    EXPECT_EQ(end.errors.find(", 0 (0 bytes) read by their receivers") == std::string::npos,
              how != std::string("unreadable"))
        << end.errors;
    // Of the others, short pieces are packed in step with their receivers; what MPI_Sendrecv sends
    // is packed before.
    EXPECT_THAT(end.errors, HasSubstr(": 13 (4259840 bytes) by ticket"));
    EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) through a ring, ")));
    EXPECT_THAT(end.errors, HasSubstr(" copied for receivers that were late, "));
  }
  // MPI's own do the same, but for what only tickets let end.
  const ProgramEnd wire = run(2, "transfers", {"readable"}, kWays[0]);
  EXPECT_EQ(wire.exitStatus, 0) << wire.seen();
  EXPECT_EQ(wire.output, "transfers are right\n");
}

TEST_P(Mpi, RareCallsTakeSharedObjects) {
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(2, "rare_calls", {}, withoutWindows(way));
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_THAT(end.output, EndsWith("rare calls are right\n")) << end.seen();
  }
  SKIP_WITHOUT_WINDOWS();
}

// The lines of a program about what MPI itself refuses, in MPI's words.
std::string skippedOf(const std::string& output) {
  std::istringstream lines(output);
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("skipped: ")) all += line.substr(9) + "\n";
  }
  return all;
}

// Of ports, their names, sockets, and one and several commands. (MPICH 4.0 over UCX opens no ports,
// and starts no processes.)
TEST_P(Mpi, ProcessesThatAreNotOfTheJobTakeSharedObjects) {
  const ProgramEnd end =
      run(2, "rare_calls", {"others", fs::absolute("tools/gmac/gmac").string()}, kTickets);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_THAT(end.output, EndsWith("rare calls are right\n")) << end.seen();
  const std::string skipped = skippedOf(end.output);
  EXPECT_TRUE(skipped.empty() || GetParam() != "openmpi") << skipped;
  if (!skipped.empty()) GTEST_SKIP() << "MPI itself refuses: " << skipped;
}

// A process that sends receives meanwhile, however many receives it has open. (Else all that it is
// sent would be left as copies.)
TEST_P(Mpi, WhoWaitsForAReceiverIsFoundAmongItsOpenReceives) {
  const std::string file = ::testing::TempDir() + "gmac_mpi_open_" + GetParam() + ".json";
  const ProgramEnd end =
      run(2, "transfers", {"open"}, {{"GMAC_MPI_TICKETS", "1"}, {"GMAC_STATS", file}});
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "transfers are right\n");
  EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) read by their receivers")));
}

// Under every protocol.
TEST_P(Mpi, MessagesOfObjectsAreCopiedOnceAndKernelsNeedNotWaitForThem) {
  const std::string file = ::testing::TempDir() + "gmac_mpi_lent_" + GetParam() + ".json";
  for (const char* const protocol : {"rolling", "lazy", "batch"}) {
    Variables variables = kTickets;
    variables["GMAC_STATS"] = file;
    variables["GMAC_PROTOCOL"] = protocol;
    const ProgramEnd end = run(2, "lent", {}, variables);
    EXPECT_EQ(end.exitStatus, 0) << protocol << ": " << end.seen();
    EXPECT_EQ(end.output, "lent objects are right\n");
    EXPECT_THAT(end.errors, HasSubstr(" mapped by their receivers, "));
    EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) mapped by their receivers"))) << protocol;
    EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) copied for receivers"))) << protocol;
  }
}

// The same where the accelerator has them, by the receiver's device.
TEST_P(Mpi, MessagesOfObjectsOnTheDeviceAreCopiedOnceAndKernelsNeedNotWaitForThem) {
  const std::string file = ::testing::TempDir() + "gmac_mpi_lent_there_" + GetParam() + ".json";
  for (const char* const protocol : {"rolling", "lazy", "batch"}) {
    Variables variables = kTickets;
    variables["GMAC_STATS"] = file;
    variables["GMAC_PROTOCOL"] = protocol;
    const ProgramEnd end = run(2, "lent_on_device", {}, variables);
    EXPECT_EQ(end.exitStatus, 0) << protocol << ": " << end.seen();
    EXPECT_EQ(end.output, "objects on devices are right\n");
    EXPECT_THAT(end.errors, HasSubstr(" copied by their receivers' devices"));
    EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) copied by their receivers' devices")))
        << protocol;
    EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) copied for receivers"))) << protocol;
  }
}

// More of them under way than there is room for payloads.
const Variables kWithLittleRoom = {{"GMAC_MPI_TICKETS", "1"}, {"GMAC_TEST_TICKET_ROOM", "8M"}};
void expectNoneForWantOfRoom(const ProgramEnd& end) {
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "objects on devices are right\n");
  EXPECT_THAT(end.errors, HasSubstr(", 0 (0 bytes) by the wire for want of room"));
  EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) copied by their receivers' devices")));
  EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) copied for receivers")));
}

TEST_P(Mpi, WindowsOfMessagesOfObjectsNeedNoRoomForPayloads) {
  Variables variables = kWithLittleRoom;
  variables["GMAC_STATS"] = ::testing::TempDir() + "gmac_mpi_windows_" + GetParam() + ".json";
  expectNoneForWantOfRoom(run(2, "lent_on_device", {"together", "windows"}, variables));
}

#if GMAC_HAVE_CUDA
// On a driver without a device.
const Variables kOnCuda = {{"GMAC_ACCEL", "cuda"}, {"GMAC_TEST_MIRROR", "file"}};

TEST_P(Mpi, WindowsOfMessagesOfObjectsOnCudaDevicesNeedNoRoomForPayloads) {
  for (const char* const devices : {"together", "apart"}) {
    Variables variables = kOnCuda;
    for (const auto& [name, value] : kWithLittleRoom) variables[name] = value;
    variables["GMAC_TEST_DRIVER"] = "fake";
    variables["GMAC_STATS"] =
        ::testing::TempDir() + "gmac_mpi_windows_cuda_" + GetParam() + ".json";
    expectNoneForWantOfRoom(run(2, "lent_on_device", {devices, "windows"}, variables));
  }
}

TEST_P(Mpi, DeviceMemoryGoesWhereOtherMemoryGoes) {
  for (const char* const accelerator : {"cuda", "host"}) {
    for (const char* const order : {"default", "streams"}) {
      const bool ordered = std::string(order) == "streams";
      Variables variables = kOnCuda;
      variables["GMAC_ACCEL"] = accelerator;
      variables["GMAC_MPI_ORDER"] = order;
      const ProgramEnd end =
          run(2, "device_memory",
              ordered ? std::vector<std::string>{"ordered"} : std::vector<std::string>(),
              withoutWindows(variables));
      EXPECT_EQ(end.exitStatus, 0) << accelerator << ", " << order << ": " << end.seen();
      EXPECT_THAT(end.output, HasSubstr("device memory is right\n"));
    }
  }
  SKIP_WITHOUT_WINDOWS();
}

// Where the receiver's driver imports the sender's memory; else as other messages.
TEST_P(Mpi, MessagesBetweenDeviceMemoriesAreCopiedOnceByTheReceiversDevice) {
  const std::string file = ::testing::TempDir() + "gmac_mpi_copies_" + GetParam() + ".json";
  for (const std::string refused :
       {"", "unimported", "unexported", "unproved", "once", "later", "failing", "column"}) {
    const bool packed = refused == "unimported" || refused == "unexported" || refused == "column";
    Variables variables = kOnCuda;
    variables["GMAC_MPI_TICKETS"] = "1";
    variables["GMAC_STATS"] = file;
    const ProgramEnd end = run(2, "device_copies", {refused}, variables);
    EXPECT_EQ(end.exitStatus, 0) << refused << ": " << end.seen();
    EXPECT_EQ(end.output, "copies are right\n");
    EXPECT_EQ(
        end.errors.find(", 0 (0 bytes) copied by their receivers' devices") == std::string::npos,
        !packed)
        << end.errors;
    EXPECT_THAT(end.errors, Not(HasSubstr(": 0 (0 bytes) by ticket")));
  }
}

// The same where all streams of the application are waited for, and not the default ones alone.
TEST_P(Mpi, MessagesBetweenDeviceMemoriesComeAfterAllStreamsWhereThatIsAsked) {
  Variables variables = kOnCuda;
  variables["GMAC_MPI_TICKETS"] = "1";
  variables["GMAC_MPI_ORDER"] = "streams";
  variables["GMAC_STATS"] = ::testing::TempDir() + "gmac_mpi_streams_" + GetParam() + ".json";
  const ProgramEnd end = run(2, "device_copies", {}, variables);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "copies are right\n");
  EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) copied by their receivers' devices")));
}

// Where the receivers' devices do not reach the senders' memory, they go through memory that both
// devices reach, to each kind of memory; and to receivers that are late, as copies.
TEST_P(Mpi, MessagesOfDeviceMemoryThatIsNotReachedGoThroughPinnedMemory) {
  const std::string file = ::testing::TempDir() + "gmac_mpi_pinned_" + GetParam() + ".json";
  const struct {
    int ranks;
    const char* program;
    std::vector<std::string> words;
    const char* output;
  } runs[] = {
      {2, "device_copies", {"unimported", "pinned"}, "copies are right\n"},
      {2, "device_copies", {"unexported", "pinned"}, "copies are right\n"},
      {3, "pinned_messages", {"around"}, "messages through pinned memory are right\n"},
      {6, "pinned_messages", {"several"}, "messages through pinned memory are right\n"},
      {2, "pinned_messages", {"unpinned", "0"}, "messages through pinned memory are right\n"},
      {2, "pinned_messages", {"unpinned", "1"}, "messages through pinned memory are right\n"},
      {2, "pinned_messages", {"failing"}, "messages through pinned memory are right\n"},
      {3, "pinned_messages", {"exchanged"}, "messages through pinned memory are right\n"},
  };
  for (const auto& one : runs) {
    const std::string what = std::string(one.program) + " " + one.words.front() + ": ";
    Variables variables = kOnCuda;
    for (const auto& [name, value] : kTickets) variables[name] = value;
    variables["GMAC_TEST_DRIVER"] = "fake";
    variables["GMAC_STATS"] = file;
    const ProgramEnd end = run(one.ranks, one.program, one.words, variables);
    EXPECT_EQ(end.exitStatus, 0) << what << end.seen();
    EXPECT_EQ(end.output, one.output) << what;
    EXPECT_THAT(end.errors, HasSubstr(" bytes) through pinned memory, ")) << what;
    EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) through pinned memory, "))) << what;
  }
}

// Senders of MPI_Isend need no receiver for that, once it has that memory: each such message has
// gone that way, though the receiver was elsewhere.
TEST_P(Mpi, MessagesThroughPinnedMemoryAreLeftToReceiversThatAreElsewhere) {
  Variables variables = kOnCuda;
  for (const auto& [name, value] : kTickets) variables[name] = value;
  variables["GMAC_TEST_DRIVER"] = "fake";
  variables["GMAC_STATS"] = ::testing::TempDir() + "gmac_mpi_left_" + GetParam() + ".json";
  const ProgramEnd end = run(2, "pinned_messages", {"left"}, variables);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "20\nmessages through pinned memory are right\n");
  EXPECT_THAT(end.errors, HasSubstr(", 20 (1966080 bytes) through pinned memory, "));
}

// Rank 0 says so for both ranks, and nothing of messages that are as fast as they may be.
TEST_P(Mpi, SlowMessagesOfDeviceMemoryAreToldAtTheEnd) {
  const std::string ofRank0 = " of rank 0: 5 messages (20971520 bytes) of device memory at ";
  const std::string ofRank1 = " of rank 1: 5 messages (20971520 bytes) of device memory at ";
  const struct {
    const char* memory;
    const char* how;
    std::string begins;  // empty: nothing is said
    const char* reason = "";
  } runs[] = {
      {"device", "all", ""},
      {"objects", "all", ""},
      {"device", "unimported", "MPI_Recv" + ofRank1, "have not imported the senders' memory"},
      {"device", "unexported", "MPI_Recv" + ofRank1, "cannot import the sender's memory"},
      {"device", "synchronous", "MPI_Ssend" + ofRank0, "take MPI's own wire"},
      {"objects", "synchronous", "MPI_Ssend" + ofRank0, "take MPI's own wire"},
      {"device", "replaced", "MPI_Sendrecv_replace" + ofRank0, "take MPI's own wire"},
      {"device", "groups", "MPI_Send of rank 0: 2 messages (50331648 bytes) of device memory at ",
       "in another group"},
      // The receiver's memory is the CPU's, where messages have no faster way.
      {"plain", "all", ""},
      {"plain", "unexported", ""},
      {"plain", "synchronous", ""},
  };
  for (const auto& one : runs) {
    Variables variables = kOnCuda;
    variables["GMAC_TEST_DRIVER"] = "fake";
    const std::string what = std::string(one.memory) + ", " + one.how + ": ";
    const ProgramEnd end = run(2, "slow_messages", {one.memory, one.how}, variables);
    EXPECT_EQ(end.exitStatus, 0) << what << end.seen();
    EXPECT_EQ(end.output, "slow or not\n") << what;
    if (one.begins.empty()) {
      EXPECT_EQ(end.errors, "") << what;
      continue;
    }
    EXPECT_THAT(end.errors, HasSubstr("gmac: mpi: slow: " + one.begins)) << what;
    EXPECT_THAT(end.errors, HasSubstr(one.reason)) << what;
    EXPECT_EQ(std::count(end.errors.begin(), end.errors.end(), '\n'), 1) << what << end.errors;
  }
  // Its device's memory is the CPU's.
  const ProgramEnd host = run(2, "slow_messages", {"objects", "synchronous"},
                              {{"GMAC_ACCEL", "host"}, {"GMAC_TEST_DRIVER", "fake"}});
  EXPECT_EQ(host.exitStatus, 0) << host.seen();
  EXPECT_EQ(host.errors, "");
}

// The library has a threshold of its own for what GMAC_LOG wants.
TEST_P(Mpi, WhyDeviceMemoryIsNotImportedIsSaidAtLevelInfo) {
  for (const std::string level : {"info", "debug", "error", ""}) {
    Variables variables = kOnCuda;
    variables["GMAC_MPI_TICKETS"] = "1";
    if (!level.empty()) variables["GMAC_LOG"] = level;
    const ProgramEnd end = run(2, "device_copies", {"unproved"}, variables);
    EXPECT_EQ(end.exitStatus, 0) << level << ": " << end.seen();
    const bool isSaid =
        end.errors.find(
            "gmac: mpi: messages of rank 0's device memory are packed: exchange: this "
            "process has not proved that it reaches the device of rank 0") != std::string::npos;
    EXPECT_EQ(isSaid, level == "info" || level == "debug") << level << ": " << end.errors;
  }
}

// On one device of both ranks; on one of each; where those do not reach each other; and as managed
// memory.
TEST_P(Mpi, MessagesOfObjectsOnCudaDevicesAreCopiedOnceAndKernelsNeedNotWaitForThem) {
  const std::string file = ::testing::TempDir() + "gmac_mpi_lent_cuda_" + GetParam() + ".json";
  const struct {
    std::string word;
    const char* protocol;
  } runs[] = {{"", "rolling"},      {"", "lazy"},           {"", "batch"},
              {"apart", "rolling"}, {"managed", "rolling"}, {"unreached", "rolling"}};
  for (const auto& [word, protocol] : runs) {
    Variables variables = kOnCuda;
    for (const auto& [name, value] : kTickets) variables[name] = value;
    variables["GMAC_TEST_DRIVER"] = "fake";
    variables["GMAC_STATS"] = file;
    variables["GMAC_PROTOCOL"] = protocol;
    if (word == "managed") variables["GMAC_MANAGED"] = "1";
    const std::string what = word + ", " + protocol + ": ";
    const ProgramEnd end =
        run(2, "lent_on_device", word.empty() ? std::vector<std::string>() : std::vector{word},
            variables);
    EXPECT_EQ(end.exitStatus, 0) << what << end.seen();
    EXPECT_EQ(end.output, "objects on devices are right\n") << what;
    const auto says = [&](const char* text) { return end.errors.find(text) != std::string::npos; };
    EXPECT_TRUE(says(" copied by their receivers' devices")) << what << end.errors;
    const bool packed = word == "unreached";
    EXPECT_EQ(says(", 0 (0 bytes) copied by their receivers' devices"), packed)
        << what << end.errors;
    EXPECT_TRUE(packed || !says(", 0 (0 bytes) copied for receivers")) << what << end.errors;
  }
}

TEST_P(Mpi, AMessageBetweenDevicesAsksTheDriverForLittle) {
  for (const char* const memory : {"objects", "device"}) {
    Variables variables = kOnCuda;
    variables["GMAC_MPI_TICKETS"] = "1";
    variables["GMAC_TEST_DRIVER"] = "fake";
    const ProgramEnd end = run(2, "message_calls", {memory}, variables);
    EXPECT_EQ(end.exitStatus, 0) << memory << ": " << end.seen();
    EXPECT_EQ(end.output, "calls are few\n") << memory;
  }
}

// Two ranks of one device have no link between them.
TEST_P(Mpi, TheCopyEngineIsForMessagesOverALink) {
  for (const char* devices : {"apart", "together"}) {
    Variables variables = kOnCuda;
    variables["GMAC_MPI_TICKETS"] = "1";
    variables["GMAC_TEST_DRIVER"] = "fake";
    variables["GMAC_STATS"] = ::testing::TempDir() + "gmac_mpi_engines_" + GetParam() + ".json";
    const ProgramEnd end = run(2, "lent_on_device", {devices, "long"}, variables);
    EXPECT_EQ(end.exitStatus, 0) << devices << ": " << end.seen();
    EXPECT_EQ(end.output, "objects on devices are right\n") << devices;
    EXPECT_THAT(end.errors, Not(HasSubstr(", 0 (0 bytes) copied by their receivers' devices")));
  }
}

// Where both ranks have one device, which they use in turns, the wire is faster.
TEST_P(Mpi, ShortMessagesGoByTheDeviceBetweenTwoDevicesOnly) {
  for (const char* devices : {"apart", "together"}) {
    Variables variables = kOnCuda;
    variables["GMAC_MPI_TICKETS"] = "1";
    variables["GMAC_TEST_DRIVER"] = "fake";
    const ProgramEnd end = run(2, "lent_on_device", {devices, "short"}, variables);
    EXPECT_EQ(end.exitStatus, 0) << devices << ": " << end.seen();
    EXPECT_EQ(end.output, "objects on devices are right\n") << devices;
  }
}

// As on `host`, in the tests below.
TEST_P(Mpi, ObjectsOnACudaDeviceAreServedAsThoseOfHostAre) {
  const struct {
    const char* program;
    int ranks;
    std::vector<std::string> arguments;
    const char* says;
  } programs[] = {
      {"exchange", 2, {}, "exchanged\n"},
      {"requests", 2, {}, "requests are right\n"},
      {"windows", 3, {}, "windows are right\n"},
      {"intercommunicators", 3, {}, "groups agree\n"},
      {"threads", 2, {}, "threads are right\n"},
      {"tickets", 2, {}, "tickets are right\n"},
      {"random_program", 2, {"--programs", "100", "--seed", "7000"}, " programs agree"},
      {"random_program", 3, {"--programs", "40", "--seed", "8000"}, " programs agree"},
  };
  Variables variables = kOnCuda;
  variables["GMAC_TEST_DRIVER"] = "fake";
  for (const auto& [name, value] : kTickets) variables[name] = value;
  for (const auto& one : programs) {
    if (one.program == std::string("windows") && !noWindows().empty()) continue;
    const ProgramEnd end = run(one.ranks, one.program, one.arguments, variables);
    EXPECT_EQ(end.exitStatus, 0) << one.program << ": " << end.seen();
    EXPECT_THAT(end.output, HasSubstr(one.says));
  }
}

TEST_P(Mpi, RanksThatChooseNoDeviceHaveThemInTurn) {
  Variables variables = kOnCuda;
  variables["GMAC_LOG"] = "info";
  // Two ranks have a device each, of two; and rank 2 has the first again.
  ProgramEnd end = run(3, "which_device", {"2"}, variables);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "rank 0: 0\nrank 1: 1\nrank 2: 0\n");
  EXPECT_THAT(end.errors, HasSubstr("gmac: mpi: local rank 1 has device 1 of 2, "));
  // A program that has chosen is obeyed.
  end = run(2, "which_device", {"3", "2"}, variables);
  EXPECT_EQ(end.output, "rank 0: 2\nrank 1: 2\n") << end.seen();
  variables["GMAC_DEVICE"] = "1";
  end = run(2, "which_device", {"2"}, variables);
  EXPECT_EQ(end.output, "rank 0: 1\nrank 1: 1\n") << end.seen();
  variables["GMAC_DEVICE"] = "4";
  end = run(1, "which_device", {"2"}, variables);
  EXPECT_NE(end.exitStatus, 0);
  EXPECT_THAT(end.errors,
              HasSubstr("GMAC_DEVICE=4: the CUDA driver sees 2 devices, so allowed is 0 to 1"));
}

// By the engine; and by copies, where the runtime's device is another one.
TEST_P(Mpi, RandomProgramsDoInDeviceMemoryWhatTheyDoInPlainMemory) {
  for (const char* const accelerator : {"cuda", "host"}) {
    for (const Variables& way : kWays) {
      Variables variables = kOnCuda;
      variables["GMAC_ACCEL"] = accelerator;
      for (const auto& [name, value] : way) variables[name] = value;
      const ProgramEnd end =
          run(2, "random_program", {"--programs", "120", "--seed", "5000", "--memory", "device"},
              variables);
      EXPECT_EQ(end.exitStatus, 0) << accelerator << ": " << end.seen();
      EXPECT_THAT(end.output, HasSubstr(" programs agree"));
    }
  }
}

// GMAC_TEST_STEPS messages from seed GMAC_TEST_SEED on, by the receivers' devices and by the wire.
TEST_P(Mpi, RandomTransfersOfAllKindsOfMemoryArrive) {
  const char* const steps = std::getenv("GMAC_TEST_STEPS");
  const char* const seed = std::getenv("GMAC_TEST_SEED");
  for (const std::string devices : {"apart", "together", "unexported", "unimported"}) {
    for (const Variables& way : kWays) {
      // (The wire is the same for all.)
      if (devices.starts_with("un") && &way == &kWays[0]) continue;
      Variables variables = kOnCuda;
      variables["GMAC_TEST_DRIVER"] = "fake";
      for (const auto& [name, value] : way) variables[name] = value;
      const ProgramEnd end =
          run(2, "random_transfers",
              {steps != nullptr ? steps : "150", seed != nullptr ? seed : "1", devices}, variables);
      EXPECT_EQ(end.exitStatus, 0) << devices << ": " << end.seen();
      EXPECT_THAT(end.output, HasSubstr(" transfers are right, "));
    }
  }
}

// The receivers' devices copy large ones.
TEST_P(Mpi, RandomProgramsOfSeveralRanksExchangeDeviceMemory) {
  for (const int ranks : {3, 4}) {
    Variables variables = kOnCuda;
    for (const auto& [name, value] : kTickets) variables[name] = value;
    const ProgramEnd end =
        run(ranks, "random_program",
            {"--programs", "60", "--seed", std::to_string(9000 * ranks), "--memory", "device"},
            variables);
    EXPECT_EQ(end.exitStatus, 0) << ranks << ": " << end.seen();
    EXPECT_THAT(end.output, HasSubstr(" programs agree"));
  }
}
#endif

// GMAC_TEST_STEPS programs from seed GMAC_TEST_SEED on. Some of the memory of each rank is plain.
TEST_P(Mpi, FilesWithRandomViewsHaveTheSameBytesWhateverTheMemory) {
  const char* const steps = std::getenv("GMAC_TEST_STEPS");
  const char* const seed = std::getenv("GMAC_TEST_SEED");
  for (const int ranks : {2, 3}) {
    const ProgramEnd end =
        run(ranks, "random_program",
            {"--programs",
             steps != nullptr ? steps
             : ranks == 2     ? "30"
                              : "15",
             "--seed", seed != nullptr ? seed : std::to_string(1000 * ranks), "--step", "views"});
    EXPECT_EQ(end.exitStatus, 0) << ranks << ": " << end.seen() << end.errors;
    EXPECT_THAT(end.output, HasSubstr(" programs agree; 0 steps of rank 0 not compared"));
  }
}

// Under the other protocols, and where the kernel lets no process read another one's memory, as far
// as MPI is told.
TEST_P(Mpi, RandomProgramsAgreeUnderEveryProtocolAndWithoutReadsOfOtherProcesses) {
  const Variables kWithoutReads = {{"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
                                   {"UCX_TLS", "self,posix,sysv,tcp"}};
  for (Variables variables : {Variables{{"GMAC_PROTOCOL", "lazy"}},
                              Variables{{"GMAC_PROTOCOL", "batch"}}, kWithoutReads}) {
    for (const Variables& way : kWays) {
      for (const auto& [name, value] : way) variables[name] = value;
      const ProgramEnd end =
          run(2, "random_program", {"--programs", "60", "--seed", "20000"}, variables);
      EXPECT_EQ(end.exitStatus, 0) << end.seen();
      EXPECT_THAT(end.output, HasSubstr(" programs agree"));
    }
  }
}

// By sockets alone.
TEST_P(Mpi, RandomProgramsAgreeOverTcp) {
  for (const Variables& way : kWays) {
    Variables variables = {
        {"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl", "self,tcp"}, {"UCX_TLS", "self,tcp"}};
    for (const auto& [name, value] : way) variables[name] = value;
    const ProgramEnd end =
        run(2, "random_program", {"--programs", "30", "--seed", "20000"}, variables);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_THAT(end.output, HasSubstr(" programs agree"));
  }
}

// GMAC_TEST_STEPS programs from seed GMAC_TEST_SEED on.
TEST_P(Mpi, RandomProgramsDoInSharedObjectsWhatTheyDoInPlainMemory) {
  for (const char* const memory : {"shared", "mixed", "plain"}) {
    for (const int ranks : {2, 3}) {
      for (const std::string threads : {"0", "1"}) {
        if (threads == "1" && memory != std::string("plain")) continue;
        const ProgramEnd end =
            run(ranks, "random_program",
                {"--programs", ranks == 2 ? "150" : "70", "--seed", std::to_string(3000 * ranks),
                 "--memory", memory, "--threads", threads},
                kTickets);
        EXPECT_EQ(end.exitStatus, 0) << memory << ": " << end.seen();
        EXPECT_THAT(end.output, HasSubstr(" programs agree"));
      }
    }
  }
  const char* const steps = std::getenv("GMAC_TEST_STEPS");
  const char* const seed = std::getenv("GMAC_TEST_SEED");
  // On a busy machine, 400 programs take as long as a launch may.
  constexpr unsigned long long kOfALaunch = 100;
  for (const int ranks : {2, 3}) {
    const unsigned long long first =
        seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1000ULL * static_cast<unsigned>(ranks);
    const unsigned long long programs = steps != nullptr ? std::strtoull(steps, nullptr, 0)
                                        : ranks == 2     ? 400
                                                         : 120;
    for (unsigned long long done = 0; done < programs; done += kOfALaunch) {
      const ProgramEnd end =
          run(ranks, "random_program",
              {"--programs", std::to_string(std::min(kOfALaunch, programs - done)), "--seed",
               std::to_string(first + done)},
              {{"GMAC_MPI_TICKETS", "0"}});
      ASSERT_EQ(end.exitStatus, 0) << end.seen();
      EXPECT_THAT(end.output, HasSubstr(" programs agree"));
    }
  }
}

TEST_P(Mpi, RequestsEndAsInPlainMemoryAndOtherCallsAreRefusedByName) {
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(2, "requests", {}, way);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "requests are right\n");
    // No process has read the other one's protected pages.
    EXPECT_THAT(end.errors, Not(HasSubstr("Read -1")));
  }
}

// Of messages, persistent and partitioned ones, collectives, operations on windows and transfers of
// files; the latter two are the same without tickets.
TEST_P(Mpi, TypesThatAreFreedAtOnceLiveAsLongAsWhatNamesThem) {
  const std::vector<std::string> messages = {
      "isend",       "issend",   "unexpected", "orphaned",  "persistent",
      "partitioned", "sendrecv", "collective", "broadcast", "persistent_collective"};
  for (const Variables& way : kWays) {
    const bool tickets = &way == &kWays[1];
    const ProgramEnd end =
        run(2, "freed_types", tickets ? std::vector<std::string>() : messages, withoutWindows(way));
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_THAT(end.output, EndsWith("freed types are right\n"));
  }
  SKIP_WITHOUT_WINDOWS();
}

TEST_P(Mpi, AnErrorHandlerThatThrowsLeavesNoRequestAndNoTicketBehind) {
  const std::string file = ::testing::TempDir() + "gmac_mpi_throwing_" + GetParam() + ".json";
  for (Variables way : kWays) {
    way["GMAC_STATS"] = file;
    const ProgramEnd end = run(2, "throwing", {}, way);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "exceptions are right\n");
    if (way.at("GMAC_MPI_TICKETS") == "1") {
      EXPECT_THAT(end.errors, HasSubstr("0 (0 bytes) by the wire for want of room"));
    }
  }
}

TEST_P(Mpi, WindowsOverSharedObjectsFollowEverySynchronisation) {
  SKIP_WITHOUT_WINDOWS();
  const ProgramEnd end = run(3, "windows", {});
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "windows are right\n");
}

// Of MPI 4.
class Mpi4 : public Mpi {};
INSTANTIATE_TEST_SUITE_P(, Mpi4, ::testing::Values("mpich"),
                         [](const auto& info) { return info.param; });

TEST_P(Mpi4, PartitionsArePackedWhenReadyAndDeliveredWhenArrived) {
  const ProgramEnd end = run(2, "partitioned", {});
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "partitions are right\n");
}

TEST_P(Mpi4, ASendAndReceiveIsOneRequest) {
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(2, "send_receive", {}, way);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "sends and receives are right\n");
  }
}

TEST_P(Mpi4, FormsForLargeCountsTakeSharedObjectsAndOpenNothing) {
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(2, "large_count_calls", {}, way);
    EXPECT_EQ(end.exitStatus, 0) << end.seen() << end.errors;
    EXPECT_EQ(end.output, "large counts are right\n");
  }
}

TEST_P(Mpi4, ObjectsAreSentBySessions) {
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(2, "sessions", {}, way);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "sessions are right\n");
    EXPECT_EQ(end.errors, "");
  }
}

TEST_P(Mpi, ATypeOfSeveralAllocationsSpansWhateverIsBetweenThem) {
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(2, "wide_types", {}, way);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "wide\n");
  }
}

// The receiver has another type. (The third message is of a type that each process makes for
// itself.)
TEST_P(Mpi, LayoutsOfTypesThatAreCommittedTogetherAreKnown) {
  Variables variables = kTickets;
  variables["GMAC_STATS"] =
      ::testing::TempDir() + "gmac_mpi_collective_types_" + GetParam() + ".json";
  const ProgramEnd with = run(2, "collective_types", {"known"}, variables);
  EXPECT_EQ(with.exitStatus, 0) << with.seen();
  EXPECT_EQ(with.output, "collective types are right\n");
  EXPECT_THAT(with.errors, HasSubstr("layouts of messages for rank 0: 2 known, 1 read"));
  EXPECT_EQ(run(2, "collective_types", {"known"}, kWays[0]).output, with.output);
}

TEST_P(Mpi, TypesAreCommittedTogetherWithoutTheLibraryToo) {
  std::vector<std::string> words = mpirun(GetParam(), 2);
  words.insert(words.end(), {fs::absolute("tools/gmac/gmac").string(), "run", "--",
                             fs::absolute("tests/mpi/collective_types_" + GetParam()).string()});
  const ProgramEnd end = runProgram(words, mpiVariables({}));
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "collective types are right\n");
}

TEST_P(Mpi, CollectivesBetweenGroupsDoWhatTheyDoInPlainMemory) {
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(3, "intercommunicators", {}, way);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "groups agree\n");
  }
}

TEST_P(Mpi, ThreadsSendSharedObjectsAtTheSameTime) {
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(2, "threads", {}, way);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "threads are right\n");
  }
}

#if GMAC_HAVE_CUDA
TEST_P(Mpi, ACopyOfTheDevicesThatFailsIsAnErrorOfItsCallAndNoMore) {
  Variables variables = kOnCuda;
  variables["GMAC_TEST_DRIVER"] = "fake";
  const ProgramEnd end = run(1, "failing_copies", {}, variables);
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "failures of copies are right\n");
}
#endif

// Of every allocation of the library's own.
TEST_P(Mpi, AnAllocationThatFailsIsAnErrorOfItsCallAndNoMore) {
  SKIP_UNDER_A_SANITIZER(kOwnMalloc);
  const ProgramEnd end = run(1, "failures", {}, {{"GMAC_MPI_TICKETS", "0"}});
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "failures are right\n");
}

TEST_P(Mpi, AProfilerSeesEveryCallOnce) {
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(2, "profiled", {}, way);
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_EQ(end.output, "every call once\n");
  }
}

TEST_P(Mpi, FortranArraysAreSharedObjects) {
  SKIP_UNDER_A_SANITIZER(kFortran);
  for (const Variables& way : kWays) {
    const ProgramEnd end = run(2, "fortran", {}, withoutWindows(way));
    EXPECT_EQ(end.exitStatus, 0) << end.seen();
    EXPECT_THAT(end.output, HasSubstr("Fortran is right\n"));
    EXPECT_EQ(end.errors, "");
  }
  SKIP_WITHOUT_WINDOWS();
}

// By each of the three bindings: GMAC_TEST_STEPS programs from seed GMAC_TEST_SEED on.
TEST_P(Mpi, RandomProgramsInFortranDoInSharedObjectsWhatTheyDoInPlainMemory) {
  SKIP_UNDER_A_SANITIZER(kFortran);
  const char* const steps = std::getenv("GMAC_TEST_STEPS");
  const char* const seed = std::getenv("GMAC_TEST_SEED");
  for (const std::string binding : {"mpif", "module", "f08"}) {
    for (const int ranks : {2, 3}) {
      const std::string first = seed != nullptr ? seed : std::to_string(1000 * ranks);
      const ProgramEnd end = run(ranks, "random_fortran_" + binding,
                                 {steps != nullptr ? steps : "150", first}, kWays[ranks % 2]);
      EXPECT_EQ(end.exitStatus, 0) << binding << ", from " << first << ": " << end.seen();
      EXPECT_THAT(end.output, HasSubstr("they agree"));
    }
  }
}

// As on machines that none of its components for windows serves.
TEST_P(OpenMpi, WhereMpiHasNoWindowsTheirTestsNameWhatItSays) {
  const Variables none = {{"OMPI_MCA_osc", "sm"}};
  const ProgramEnd plain = plainWindow(none);
  EXPECT_EQ(plain.exitStatus, 0) << plain.seen();
  EXPECT_EQ(plain.output, "refused: MPI_ERR_WIN: invalid window\n");
  Variables told = none;
  told["GMAC_TEST_NO_WINDOWS"] = "MPI_ERR_WIN: invalid window";
  const ProgramEnd skipped = run(2, "fortran", {}, told);
  EXPECT_EQ(skipped.exitStatus, 0) << skipped.seen();
  EXPECT_THAT(skipped.output, HasSubstr("skipped: windows: MPI refuses one over plain memory: "
                                        "MPI_ERR_WIN: invalid window\n"));
  EXPECT_THAT(skipped.output, HasSubstr("Fortran is right\n"));
  // Random programs leave those windows out, and say why.
  const ProgramEnd random =
      run(2, "random_program", {"--programs", "8", "--seed", "1", "--step", kOneSidedStep}, none);
  EXPECT_EQ(random.exitStatus, 0) << random.seen();
  EXPECT_THAT(random.output, HasSubstr("MPI's own errors in plain memory: "));
  EXPECT_THAT(random.output, HasSubstr(": MPI_ERR_WIN: invalid window\n"));
}

TEST_P(Mpi, ASecondMpiLibraryIsNamedAndNotCalled) {
  const bool isOpenMpi = GetParam() == "openmpi";
  const std::string other = isOpenMpi ? "libmpich.so.12" : "libmpi.so.40";
  const ProgramEnd end = run(2, "exchange", {other});
  EXPECT_EQ(end.exitStatus, 0) << end.seen();
  EXPECT_EQ(end.output, "exchanged\n");
  EXPECT_THAT(end.errors, HasSubstr("gmac: mpi: two MPI libraries are loaded, "));
  EXPECT_THAT(end.errors, HasSubstr(other + "; calls go to the first\n"));
}

TEST_P(Mpi, AnotherLibrarysLauncherIsNamed) {
  // Of a launcher that told each process of two.
  const ProgramEnd end =
      runProgram({fs::absolute("tools/gmac/gmac").string(), "run", "--mpi", "--",
                  fs::absolute("tests/mpi/exchange_" + GetParam()).string()},
                 {{"GMAC_ACCEL", "host"},
                  {GetParam() == "openmpi" ? "PMI_SIZE" : "OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_THAT(end.errors, HasSubstr("gmac: mpi: mpirun has started 2 processes, and to this "
                                    "program's MPI library each is alone"));
}

TEST(Launch, AProgramThatNeverCallsMpiIsTold) {
  const ProgramEnd end =
      runProgram({fs::absolute("tools/gmac/gmac").string(), "run", "--mpi", "--", "/bin/true"},
                 {{"PMI_RANK", "0"}});
  EXPECT_EQ(end.exitStatus, 0);
  EXPECT_EQ(end.errors, "gmac: --mpi: the program has ended and never called MPI\n");
}

TEST(Launch, NoLauncherIsTold) {
  const ProgramEnd end =
      runProgram({fs::absolute("tools/gmac/gmac").string(), "run", "--mpi", "--", "/bin/true"}, {});
  EXPECT_THAT(end.errors, HasSubstr("gmac: --mpi: no launcher has started this"));
}

}  // namespace
}  // namespace gmac::testing
