// SPDX-License-Identifier: Apache-2.0
//
// Static variables of functions: made once, and made again in a child of fork where another thread
// was making them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace gmac::testing {
namespace {

std::atomic<int> begun{0};
std::atomic<bool> mayGoOn{false};

int makeSlowly() {
  const int number = ++begun;
  while (!mayGoOn) std::this_thread::yield();
  return number;
}
int slowlyMade() {
  static const int number = makeSlowly();
  return number;
}

TEST(StaticVariables, ThatAnotherThreadWasMakingAtAForkAreMadeAgainInTheChild) {
  std::thread maker([] { (void)slowlyMade(); });
  while (begun == 0) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that hangs is killed
    mayGoOn = true;
    const bool once = slowlyMade() == 2 && slowlyMade() == 2;
    // Its own children wait for nothing either.
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(slowlyMade() == 2 ? 0 : 1);
    int status = 0;
    _exit(once && waitpid(grandchild, &status, 0) == grandchild && status == 0 ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  mayGoOn = true;
  maker.join();
  EXPECT_EQ(slowlyMade(), 1);
}

std::atomic<int> made{0};

int madeOnce() {
  static const int number = [] {
    std::this_thread::yield();
    return ++made;
  }();
  return number;
}

TEST(StaticVariables, AreMadeOnceByThreadsThatNeedThemAtOnce) {
  std::atomic<bool> go{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      while (!go) std::this_thread::yield();
      if (madeOnce() != 1) ++wrong;
    });
  }
  go = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(made, 1);
}

TEST(StaticVariables, WhoseInitialiserThrewAreMadeTheNextTime) {
  static int tries = 0;
  const auto value = [] {
    static const int number = ++tries == 1 ? throw std::runtime_error("the first time") : tries;
    return number;
  };
  EXPECT_THROW((void)value(), std::runtime_error);
  EXPECT_EQ(value(), 2);
  EXPECT_EQ(value(), 2);
}

}  // namespace
}  // namespace gmac::testing
