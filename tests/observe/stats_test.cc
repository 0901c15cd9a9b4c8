// SPDX-License-Identifier: Apache-2.0
#include "gmac/observe/stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/observe/report_file.h"

namespace gmac {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const RunDescription kRun = {"host", "a \"quoted\" device\n", "rolling", 2097152, "file"};

std::string pathOf(const std::string& name) {
  return ::testing::TempDir() + name + "." + std::to_string(::getpid());
}

std::string contentsOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

double allPhases() {
  double sum = 0;
  for (std::size_t index = 0; index < kPhaseCount; ++index) {
    sum += phaseSeconds(static_cast<Phase>(index));
  }
  return sum;
}

void pass(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(Stats, CountsOfManyThreadsAddUp) {
  const std::uint64_t before = stats().readFaults.value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 10000; ++j) stats().readFaults.add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stats().readFaults.value() - before, 80000u);
}

TEST(Stats, JsonHasEveryNameAndTheCounts) {
  stats().bytesToAccelerator.add(std::uint64_t{5} << 32);
  const json written = json::parse(statsJson(kRun));
  EXPECT_EQ(written.at("accelerator"), "host");
  EXPECT_EQ(written.at("device"), "a \"quoted\" device\n");
  EXPECT_EQ(written.at("protocol"), "rolling");
  EXPECT_EQ(written.at("blockBytes"), 2097152);
  EXPECT_EQ(written.at("mirror"), "file");
  EXPECT_EQ(written.at("deviceCalls"), json::array({0}));
  EXPECT_EQ(written.at("bytesToAccelerator"), stats().bytesToAccelerator.value());
  for (const char* name : {"bytesToHost",
                           "readFaults",
                           "writeFaults",
                           "fetches",
                           "flushes",
                           "evictions",
                           "evictionsWasted",
                           "calls",
                           "syncs",
                           "allocations",
                           "frees",
                           "coarsenings",
                           "splits",
                           "windows",
                           "windowsOutgrown",
                           "populatedBytes",
                           "reusedAllocations",
                           "driverAllocations",
                           "stripedAllocations",
                           "spills",
                           "spilledBytes",
                           "peerSpills",
                           "peerSpilledBytes",
                           "broughtBack",
                           "zeroCopies",
                           "zeroCopiesEnded",
                           "awaitedCalls",
                           "repeatedCalls",
                           "listedCalls",
                           "migrations",
                           "migratedBytes",
                           "readBacks"}) {
    EXPECT_TRUE(written.contains(name)) << name;
  }
  for (const char* name : {"copy", "malloc", "free", "launch", "sync", "signal", "cudaMalloc",
                           "cudaFree", "cudaLaunch", "gpu", "ioRead", "ioWrite", "cpu"}) {
    EXPECT_TRUE(written.at("time").contains(name)) << name;
  }
  EXPECT_EQ(written.at("time").size(), 13u);
}

TEST(Stats, MessagesAreCountedByTheirWay) {
  MessageCounts counts;
  const std::string elsewhere = "send: ring";  // the same name, at another address
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) {
        counts.add("send: ticket", 3);
        counts.add("send: ring", 5);
        counts.add(elsewhere.c_str(), 7);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> seen;
  counts.each([&](const char* way, std::uint64_t messages, std::uint64_t bytes) {
    EXPECT_TRUE(seen.emplace(way, std::pair(messages, bytes)).second) << way;
  });
  EXPECT_THAT(seen, UnorderedElementsAre(Pair("send: ticket", Pair(8000u, 24000u)),
                                         Pair("send: ring", Pair(16000u, 96000u))));
}

TEST(Stats, MoreWaysOfMessagesThanThereIsRoomForAreCountedTogether) {
  MessageCounts counts;
  std::vector<std::string> ways;
  for (std::size_t i = 0; i < MessageCounts::kMaxWays + 3; ++i) {
    ways.push_back("way " + std::to_string(i));
  }
  for (int round = 0; round < 2; ++round) {
    for (const std::string& way : ways) counts.add(way.c_str(), 10);
  }
  std::vector<std::string> seen;
  counts.each([&](const char* way, std::uint64_t messages, std::uint64_t bytes) {
    seen.emplace_back(way);
    EXPECT_EQ(messages, seen.size() <= MessageCounts::kMaxWays ? 2u : 6u) << way;
    EXPECT_EQ(bytes, messages * 10) << way;
  });
  ways.resize(MessageCounts::kMaxWays);
  ways.emplace_back("others");
  EXPECT_EQ(seen, ways);
}

TEST(Stats, JsonHasTheMessages) {
  messageCounts().add("send: \"quoted\"", 5);
  messageCounts().add("receive: ticket", 11);
  messageCounts().add("receive: ticket", 22);
  const json written = json::parse(statsJson(kRun)).at("messages");
  EXPECT_EQ(written.at("send: \"quoted\""), json({{"messages", 1}, {"bytes", 5}}));
  EXPECT_EQ(written.at("receive: ticket"), json({{"messages", 2}, {"bytes", 33}}));
}

TEST(Stats, ATimedScopeCountsNothingWhileTimingIsOff) {
  if (internal::timing) GTEST_SKIP() << "another test of this process has started the clock";
  const double before = allPhases();
  {
    Timed timed(Phase::kSync);
    pass(2);
  }
  EXPECT_EQ(allPhases(), before);
}

TEST(StatsTiming, NestedPhasesCountNoMomentTwice) {
  startStats("", kRun);
  const double sync = phaseSeconds(Phase::kSync);
  const double gpu = phaseSeconds(Phase::kGpu);
  const double copy = phaseSeconds(Phase::kCopy);
  const auto start = std::chrono::steady_clock::now();
  const double cpu = cpuSeconds();
  {
    Timed outer(Phase::kSync);
    pass(10);
    {
      Timed inner(Phase::kGpu);
      pass(20);
      {
        Timed innermost(Phase::kCopy);
        pass(5);
      }
      pass(20);
    }
    pass(10);
  }
  const double ofCpu = cpuSeconds() - cpu;
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double ofSync = phaseSeconds(Phase::kSync) - sync;
  const double ofGpu = phaseSeconds(Phase::kGpu) - gpu;
  const double ofCopy = phaseSeconds(Phase::kCopy) - copy;
  EXPECT_GE(ofSync, 0.020);
  EXPECT_GE(ofGpu, 0.040);
  EXPECT_GE(ofCopy, 0.005);
  // A busy machine adds to one of them and takes from none: the sum is the wall time, never more.
  EXPECT_LE(ofSync + ofGpu + ofCopy, wall);
  EXPECT_LE(ofSync, wall - 0.045);
  EXPECT_LE(ofGpu, wall - 0.025);
  EXPECT_LE(ofCpu, wall - 0.065);
}

TEST(StatsTiming, APhaseInsideItselfCountsOnce) {
  startStats("", kRun);
  const double before = phaseSeconds(Phase::kMalloc);
  const auto start = std::chrono::steady_clock::now();
  {
    Timed outer(Phase::kMalloc);
    Timed inner(Phase::kMalloc);
    pass(5);
  }
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GE(phaseSeconds(Phase::kMalloc) - before, 0.005);
  EXPECT_LE(phaseSeconds(Phase::kMalloc) - before, wall);
}

TEST(StatsTiming, OtherThreadsTakeNothingFromTheFirstThreadsCpuTime) {
  startStats("", kRun);
  const double cpu = cpuSeconds();
  const double launch = phaseSeconds(Phase::kLaunch);
  std::thread([] {
    Timed timed(Phase::kLaunch);
    pass(20);
  }).join();
  EXPECT_GE(phaseSeconds(Phase::kLaunch) - launch, 0.020);
  EXPECT_GE(cpuSeconds() - cpu, 0.020);
}

using StatsDeathTest = ::testing::Test;

TEST(StatsDeathTest, TheFileIsWrittenAtExitAndNotByChildren) {
  const std::string path = pathOf("stats.json");
  EXPECT_EXIT(
      {
        startStats(path, kRun);
        stats().evictions.add(7);
        if (::fork() == 0) {
          stats().evictions.add(1000);
          std::exit(0);
        }
        pass(50);
        if (::access(path.c_str(), F_OK) == 0) std::exit(1);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  const json written = json::parse(contentsOf(path));
  EXPECT_EQ(written.at("evictions"), stats().evictions.value() + 7);
  EXPECT_NE(::access((path + ".tmp").c_str(), F_OK), 0);
  ::unlink(path.c_str());
}

TEST(StatsDeathTest, AFileThatCannotBeWrittenIsSaid) {
  EXPECT_EXIT(
      {
        startStats("/nowhere/stats.json", kRun);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      "gmac: the statistics are lost: cannot create /nowhere/stats.json.*No such file");
}

TEST(ReportFile, ReplacesAFileOnlyWhenCommitted) {
  const std::string path = pathOf("report");
  std::ofstream(path) << "old";
  {
    ReportFile file;
    ASSERT_TRUE(file.open(path).ok());
    ASSERT_TRUE(file.append("half").ok());
  }
  EXPECT_EQ(contentsOf(path), "old");
  {
    ReportFile file;
    ASSERT_TRUE(file.open(path).ok());
    ASSERT_TRUE(file.append("ne").ok());
    ASSERT_TRUE(file.append("w").ok());
    EXPECT_EQ(contentsOf(path), "old");
    ASSERT_TRUE(file.commit().ok());
  }
  EXPECT_EQ(contentsOf(path), "new");
  ::unlink(path.c_str());
}

TEST(ReportFile, WritesThroughALinkAndIntoAPipe) {
  const std::string target = pathOf("target");
  const std::string link = pathOf("link");
  std::ofstream(target) << "old";
  ASSERT_EQ(::symlink(target.c_str(), link.c_str()), 0);
  ReportFile file;
  ASSERT_TRUE(file.open(link).ok());
  ASSERT_TRUE(file.append("new").ok());
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(contentsOf(target), "new");
  ::unlink(link.c_str());
  ::unlink(target.c_str());

  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ReportFile pipe;
  ASSERT_TRUE(pipe.open("/dev/fd/" + std::to_string(ends[1])).ok()) << lastErrorText();
  ASSERT_TRUE(pipe.append("through").ok());
  ASSERT_TRUE(pipe.commit().ok());
  char text[16];
  EXPECT_EQ(::read(ends[0], text, sizeof text), 7);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(ReportFile, AFullDeviceIsAnErrorThatNamesIt) {
  ReportFile file;
  ASSERT_TRUE(file.open("/dev/full").ok());
  ASSERT_TRUE(file.append("text").ok());
  EXPECT_EQ(file.commit().code(), adsmErrorSystem);
  EXPECT_THAT(lastErrorText(), HasSubstr("/dev/full"));
  EXPECT_THAT(lastErrorText(), HasSubstr("No space left"));
}

}  // namespace
}  // namespace gmac
