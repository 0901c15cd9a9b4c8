// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gmac {
namespace {

namespace fs = std::filesystem;

// Control groups as the kernel shows them.
class CoresOfGroups : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_ / "a/b");
    fs::create_directories(root_ / "cpu/a/b");
    fs::create_directories(root_ / "proc");
    put("proc/mountinfo", ("41 31 0:38 / " + root_.string() + " rw - cgroup2 cgroup2 rw\n" +
                           "33 31 0:30 / " + root_.string() + "/cpu rw - cgroup cgroup rw,cpu\n")
                              .c_str());
  }
  void put(const char* file, const char* text) const { std::ofstream(root_ / file) << text; }
  unsigned of(const char* membership) const {
    put("proc/cgroup", membership);
    return coresOfGroups((root_ / "proc").string());
  }
  // Once `file` says `text`, the group a/b has as many.
  void expectOfGroup(const char* file, const char* text, unsigned cores) const {
    put(file, text);
    EXPECT_EQ(of("0::/a/b\n"), cores) << file << ": " << text;
  }

  const fs::path root_ = fs::path(::testing::TempDir()) / "cores";
};

TEST_F(CoresOfGroups, AreTheQuotaRoundedUp) {
  expectOfGroup("a/b/cpu.max", "400000 100000\n", 4);
  expectOfGroup("a/b/cpu.max", "150000 100000\n", 2);
  expectOfGroup("a/b/cpu.max", "50000 100000\n", 1);
}

TEST_F(CoresOfGroups, AreTheLeastOfAllGroupsAbove) {
  expectOfGroup("a/b/cpu.max", "max 100000\n", 0);
  expectOfGroup("a/cpu.max", "300000 100000\n", 3);
  expectOfGroup("cpu.max", "200000 100000\n", 2);
  EXPECT_EQ(of("0::/\n"), 2U) << "in a container the group is the root";
}

TEST_F(CoresOfGroups, AreOfTheFirstVersionToo) {
  put("cpu/a/b/cpu.cfs_quota_us", "500000\n");
  put("cpu/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(of("9:memory:/x\n4:cpu,cpuacct:/a/b\n1:name=systemd:/\n0::/\n"), 5U);
  EXPECT_EQ(of("4:cpuset:/a/b\n"), 0U);
  put("cpu/a/b/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(of("4:cpu,cpuacct:/a/b\n"), 0U);
}

TEST_F(CoresOfGroups, AreNoLimitWhereNothingIsSaid) {
  EXPECT_EQ(of(""), 0U);
  EXPECT_EQ(of("0::/a/b\n"), 0U);
  EXPECT_EQ(of("nonsense\n:\n"), 0U);
  expectOfGroup("a/b/cpu.max", "nonsense\n", 0);
}

// In a process of its own: the answer stays the same for a process.
TEST(UsableCores, AreThoseOfTheAffinity) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    if (::sched_getaffinity(0, sizeof mine, &mine) != 0) _exit(2);
    int first = 0;
    while (!CPU_ISSET(first, &mine)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) _exit(3);
    _exit(usableCores() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_GE(usableCores(), 1U);
}

}  // namespace
}  // namespace gmac
