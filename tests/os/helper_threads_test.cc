// SPDX-License-Identifier: Apache-2.0
//
// The helper threads: shared work is done once and by several threads, for several callers at a
// time, and across fork.
#include "gmac/os/helper_threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace gmac::os {
namespace {

// Two parts that wait for each other need two threads.
void meet() {
  std::atomic<int> arrived{0};
  shareOut(2, 2, [&](std::size_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
}

TEST(ShareOut, CallsEveryPartOnce) {
  for (const std::size_t threads : {0, 1, 4}) {
    for (const std::size_t parts : {0, 1, 2, 3, 100, 1000}) {
      std::vector<std::atomic<int>> calls(parts);
      shareOut(threads, parts, [&](std::size_t part) { ++calls[part]; });
      for (std::size_t i = 0; i < parts; ++i) EXPECT_EQ(calls[i], 1) << i << " of " << parts;
    }
  }
}

TEST(ShareOut, HasHelpers) { meet(); }

int statusOf(pid_t child) {
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(ShareOut, HasHelpersInAChildOfForkToo) {
  meet();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    meet();
    _exit(0);
  }
  EXPECT_EQ(statusOf(child), 0);
}

// The parent's helper is at work then, and is not there in the child: the child's call returns.
TEST(ShareOut, ReturnsInAChildThatWasForkedInTheMiddleOfIt) {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> helped{false};
  std::atomic<pid_t> child{-1};
  shareOut(2, 2, [&](std::size_t) {
    if (std::this_thread::get_id() == caller) {
      while (!helped) std::this_thread::yield();
      child = fork();
      if (child == 0) alarm(30);
    } else {
      helped = true;
      while (child < 0) std::this_thread::yield();
    }
  });
  if (child == 0) {
    meet();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  EXPECT_EQ(statusOf(child), 0);
}

}  // namespace
}  // namespace gmac::os
