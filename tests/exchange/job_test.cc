// SPDX-License-Identifier: Apache-2.0
//
// The variables that launchers leave in the environment.
#include "exchange/job.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace gmac::exchange {
namespace {

class JobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* const variable :
         {"PMIX_NAMESPACE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_FD", "PMI_RANK", "PMI_SIZE",
          "PMI_JOBID", "PMI_SPAWNED", "PMI_PORT", "PMI_ID", "SLURM_JOB_ID", "SLURM_STEP_ID",
          "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"}) {
      ::unsetenv(variable);
    }
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_), 0);
  }
  void TearDown() override {
    ::close(sockets_[0]);
    ::close(sockets_[1]);
  }
  static void set(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  std::string socket() const { return std::to_string(sockets_[0]); }
  // The process that has made the socket, which here is this one.
  static std::string self() {
    return fmt::format("{}@{}", ::getpid(), startOfProcess(::getpid()).value());
  }

  int sockets_[2] = {-1, -1};
};

TEST_F(JobTest, WithoutALauncherAProcessIsAlone) { EXPECT_FALSE(findJob().has_value()); }

TEST_F(JobTest, OpenMpi) {
  set({{"PMIX_NAMESPACE", "732168193"}, {"PMIX_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  const std::optional<Job> job = findJob();
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->key, "pmix=732168193;");
  EXPECT_EQ(job->rank, 3);
  EXPECT_EQ(job->size, 4);
}

TEST_F(JobTest, Hydra) {
  set({{"PMI_FD", socket()}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  const std::optional<Job> job = findJob();
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->key, "pmi=" + self() + "//;");
  EXPECT_EQ(job->rank, 1);
  EXPECT_EQ(job->size, 2);
}

TEST_F(JobTest, HydraByPort) {
  set({{"PMI_PORT", "host:41817"}, {"PMI_ID", "1"}, {"PMI_SIZE", "2"}});
  ASSERT_TRUE(findJob().has_value());
  EXPECT_EQ(findJob()->key, "port=host:41817;");
  EXPECT_EQ(findJob()->rank, 1);
}

TEST_F(JobTest, SlurmAlone) {
  set({{"SLURM_JOB_ID", "77"},
       {"SLURM_STEP_ID", "2"},
       {"SLURM_PROCID", "5"},
       {"SLURM_STEP_NUM_TASKS", "8"}});
  ASSERT_TRUE(findJob().has_value());
  EXPECT_EQ(findJob()->key, "slurm=77.2;");
  EXPECT_EQ(findJob()->rank, 5);
  EXPECT_EQ(findJob()->size, 8);
}

// Two jobs of hydra's, each started in a process of one job of Open MPI's, are two jobs.
TEST_F(JobTest, AJobInsideAJobHasAKeyOfItsOwn) {
  set({{"PMIX_NAMESPACE", "outer"}, {"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  const std::string outer = findJob().value().key;
  set({{"PMI_FD", socket()}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  const std::string inner = findJob().value().key;
  EXPECT_EQ(inner, "pmix=outer;pmi=" + self() + "//;");
  EXPECT_NE(outer, inner);
}

TEST_F(JobTest, WhatIsNoNumberOrTooLargeIsNoJob) {
  set({{"PMIX_NAMESPACE", "a"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  for (const char* const rank : {"", "x", "1x", "-1", "2", "99999999999"}) {
    set({{"PMIX_RANK", rank}});
    EXPECT_FALSE(findJob().has_value()) << rank;
  }
  set({{"PMIX_RANK", "1"}});
  EXPECT_TRUE(findJob().has_value());
}

// The number of a socket that is closed says nothing.
TEST_F(JobTest, ASocketThatIsNoneIsNoJob) {
  set({{"PMI_FD", "987"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  EXPECT_FALSE(findJob().has_value());
}

TEST(StartOfProcess, TellsAProcessFromItsEnd) {
  EXPECT_TRUE(startOfProcess(::getpid()).has_value());
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
  }
  const std::optional<std::uint64_t> start = startOfProcess(child);
  ASSERT_TRUE(start.has_value());
  EXPECT_GE(*start, *startOfProcess(::getpid()));
  EXPECT_FALSE(hasEnded(child, *start));
  EXPECT_TRUE(hasEnded(child, *start + 1)) << "another process had the number";
  ::kill(child, SIGKILL);
  siginfo_t info{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(hasEnded(child, *start));
  EXPECT_FALSE(startOfProcess(child).has_value()) << "it has not been waited for";
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(startOfProcess(child).has_value());
  EXPECT_TRUE(hasEnded(child, *start));
}

}  // namespace
}  // namespace gmac::exchange
