// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gmac {
namespace {

namespace fs = std::filesystem;

// A folder of /proc and a tree of groups, made up.
class MemoryLimit : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("gmac_groups_" + std::to_string(getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  // `groups` as in /proc/PID/cgroup; in `mounts` ROOT is this test's folder.
  std::optional<std::size_t> limit(const std::string& groups, std::string mounts) {
    for (std::size_t at = 0; (at = mounts.find("ROOT")) != std::string::npos;) {
      mounts.replace(at, 4, root_.string());
    }
    write("proc/cgroup", groups);
    write("proc/mountinfo", mounts);
    return cgroupMemoryLimit((root_ / "proc").string());
  }

  // The bytes that the process can still take, in a group of the unified hierarchy.
  std::size_t available(const std::string& group) {
    limit("0::" + group + "\n", "41 31 0:38 / ROOT/unified rw,relatime - cgroup2 cgroup2 rw\n");
    return availableMemory((root_ / "proc").string());
  }

  fs::path root_;
};

const char* const kUnified = "41 31 0:38 / ROOT/unified rw,relatime - cgroup2 cgroup2 rw\n";
const char* const kMemory =
    "35 31 0:32 / ROOT/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";
const char* const kOther = "33 31 0:30 / ROOT/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";

TEST_F(MemoryLimit, IsThatOfTheProcesssGroup) {
  write("unified/a/b/memory.max", "1000\n");
  EXPECT_EQ(limit("0::/a/b\n", kUnified), 1000u);
}

TEST_F(MemoryLimit, IsTheLeastOfTheGroupsAbove) {
  write("unified/a/memory.max", "500\n");
  write("unified/a/b/memory.max", "1000\n");
  write("unified/a/b/c/memory.max", "max\n");
  EXPECT_EQ(limit("0::/a/b/c\n", kUnified), 500u);
  EXPECT_EQ(limit("0::/a\n", kUnified), 500u);
}

TEST_F(MemoryLimit, WhatIsAvailableIsWhatTheGroupsLeaveAndCachesAreFree) {
  const std::size_t machine = available("/a");
  EXPECT_GT(machine, std::size_t{1} << 20);
  write("unified/a/memory.max", "5000\n");
  write("unified/a/memory.current", "3500\n");
  EXPECT_EQ(available("/a"), 1500u);
  write("unified/a/memory.stat", "anon 2000\nactive_file 500\ninactive_file 1000\nslab 0\n");
  EXPECT_EQ(available("/a"), 2500u);
  write("unified/a/b/memory.max", "100\n");
  write("unified/a/b/memory.current", "300\n");
  EXPECT_EQ(available("/a/b"), 0u);
  write("unified/a/b/memory.max", "max\n");
  EXPECT_EQ(available("/a/b"), 2500u);
}

TEST_F(MemoryLimit, SomeOfWhatIsAvailableIsNeverSpared) {
  write("unified/a/memory.max", "5000\n");
  write("unified/a/memory.current", "3500\n");
  available("/a");
  EXPECT_EQ(spareMemory((root_ / "proc").string()), 0u);
  EXPECT_LT(spareMemory(), usableMemory());
}

TEST_F(MemoryLimit, IsNoneWhereNoGroupHasOne) {
  write("unified/a/memory.max", "max\n");
  EXPECT_EQ(limit("0::/a\n", kUnified), std::nullopt);
  EXPECT_EQ(limit("0::/\n", kUnified), std::nullopt);
  EXPECT_EQ(limit("", ""), std::nullopt);
  EXPECT_EQ(cgroupMemoryLimit((root_ / "nowhere").string()), std::nullopt);
}

TEST_F(MemoryLimit, IsKnownInTheFirstVersionToo) {
  write("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  write("memory/a/memory.limit_in_bytes", "700\n");
  EXPECT_EQ(limit("5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/y\n", std::string(kOther) + kMemory), 700u);
}

TEST_F(MemoryLimit, IsTheLeastOfBothVersions) {
  write("memory/a/memory.limit_in_bytes", "700\n");
  write("unified/y/memory.max", "600\n");
  EXPECT_EQ(limit("4:memory:/a\n0::/y\n", std::string(kMemory) + kUnified), 600u);
}

TEST_F(MemoryLimit, IsFoundWhereAPartOfTheTreeIsMounted) {
  write("unified/inner/memory.max", "400\n");
  write("unified/memory.max", "300\n");
  const char* const mount =
      "41 31 0:38 /box ROOT/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
  EXPECT_EQ(limit("0::/box/inner\n", mount), 300u);
  EXPECT_EQ(limit("0::/elsewhere\n", mount), 300u);
  write("unified/tight/memory.max", "200\n");
  EXPECT_EQ(limit("0::/box/tight\n", mount), 200u) << "the group's own, under the mount";
}

}  // namespace
}  // namespace gmac
