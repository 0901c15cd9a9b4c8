// SPDX-License-Identifier: Apache-2.0
//
// Stacks in shared memory: signals are handled while the blocks of an alternate stack are closed,
// and no thread gets a stack that would be closed under it.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>

#include "tests/preloaded_io/functions.h"
#include "tests/preloaded_io/program.h"

namespace gmac::testing {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;

class Stacks : public ::testing::Test {
 protected:
  Stacks()
      : stack_(static_cast<char*>(api().alloc(kStackBytes))),
        data_(static_cast<char*>(api().alloc(kStackBytes))) {
    std::memset(stack_, 1, kStackBytes);
    std::memset(data_, 1, kStackBytes);
  }
  ~Stacks() override {
    const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    ::sigaltstack(&none, nullptr);
    std::signal(SIGSEGV, SIG_DFL);
    api().free(data_);
    api().free(stack_);
  }

  void handleOnStack(void (*handler)(int)) const {
    const stack_t given = {.ss_sp = stack_, .ss_flags = 0, .ss_size = kStackBytes};
    ASSERT_EQ(::sigaltstack(&given, nullptr), 0) << std::strerror(errno);
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    ASSERT_EQ(::sigaction(SIGSEGV, &action, nullptr), 0);
    ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  }

  char* const stack_;
  char* const data_;
};

sigjmp_buf back;
volatile int handled = 0;

void jumpBack(int) { siglongjmp(back, 1); }
void count(int) { handled = handled + 1; }

TEST_F(Stacks, FaultsAreAnsweredWhileTheAlternateStackIsClosed) {
  handleOnStack(jumpBack);
  closeAllBlocks();
  data_[5] = 2;
  EXPECT_EQ(data_[5], 2);
}

TEST_F(Stacks, TheProgramsHandlersRunWhileTheAlternateStackIsClosed) {
  handleOnStack(jumpBack);
  closeAllBlocks();
  volatile bool returned = false;
  if (sigsetjmp(back, 1) == 0) {
    int* volatile nothing = nullptr;
    *nothing = 1;
  } else {
    returned = true;
  }
  EXPECT_TRUE(returned);
  handleOnStack(count);
  closeAllBlocks();
  handled = 0;
  ::raise(SIGUSR1);
  EXPECT_EQ(handled, 1);
}

TEST_F(Stacks, TheProgramIsToldTheStackThatItGave) {
  handleOnStack(count);
  closeAllBlocks();
  stack_t told = {};
  ASSERT_EQ(::sigaltstack(nullptr, &told), 0);
  EXPECT_EQ(told.ss_sp, stack_);
  EXPECT_EQ(told.ss_size, kStackBytes);
  // Another one, told in its place, and the old one again.
  static char plain[kStackBytes];
  const stack_t other = {.ss_sp = plain, .ss_flags = 0, .ss_size = sizeof plain};
  ASSERT_EQ(::sigaltstack(&other, &told), 0);
  EXPECT_EQ(told.ss_sp, stack_);
  stack_t last = {};
  ASSERT_EQ(::sigaltstack(&told, &last), 0);
  EXPECT_EQ(last.ss_sp, plain);
  const stack_t tooSmall = {.ss_sp = stack_, .ss_flags = 0, .ss_size = 100};
  EXPECT_EQ(::sigaltstack(&tooSmall, nullptr), -1);
  EXPECT_EQ(errno, ENOMEM);
}

void* handleInThread(void* stack) {
  const stack_t given = {.ss_sp = stack, .ss_flags = 0, .ss_size = kStackBytes};
  if (::sigaltstack(&given, nullptr) != 0) return nullptr;
  closeAllBlocks();
  ::raise(SIGUSR1);
  return stack;
}

TEST_F(Stacks, ThreadsHaveTheirOwn) {
  handleOnStack(count);
  handled = 0;
  for (int i = 0; i < 3; ++i) {
    pthread_t thread;
    void* result = nullptr;
    ASSERT_EQ(::pthread_create(&thread, nullptr, handleInThread, stack_), 0);
    ASSERT_EQ(::pthread_join(thread, &result), 0);
    EXPECT_EQ(result, stack_);
  }
  EXPECT_EQ(handled, 3);
}

TEST_F(Stacks, AThreadsStackIsRefused) {
  pthread_attr_t attributes;
  ASSERT_EQ(::pthread_attr_init(&attributes), 0);
  EXPECT_EQ(::pthread_attr_setstack(&attributes, stack_, kStackBytes), EACCES);
  static char plain[kStackBytes] __attribute__((aligned(4096)));
  EXPECT_EQ(::pthread_attr_setstack(&attributes, plain, sizeof plain), 0);
  EXPECT_EQ(::pthread_attr_setstack(&attributes, plain, 1), EINVAL);
  ::pthread_attr_destroy(&attributes);
}

}  // namespace
}  // namespace gmac::testing

int main(int count, char** arguments) {
  return gmac::testing::runPreloaded(count, arguments, {"gmac/libgmac.so"});
}
