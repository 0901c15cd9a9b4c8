// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/signal_mask.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <iterator>
#include <random>

namespace gmac::os {
namespace {

sigset_t randomMask(std::mt19937& random) {
  sigset_t mask;
  sigemptyset(&mask);
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    // Signals between the ordinary and the real-time ones are glibc's.
    if ((signal < 32 || signal >= SIGRTMIN) && random() % 2 == 0) sigaddset(&mask, signal);
  }
  return mask;
}

TEST(SignalMask, TheStandInIsASignalThatTheProgramDoesNotCount) {
  EXPECT_GT(standIn(), SIGRTMAX);
  EXPECT_LT(standIn(), NSIG);
  EXPECT_EQ(standIn(), standIn());
}

// Run by the next one where the system takes no action for signal 64.
TEST(SignalMask, DISABLED_TheStandInIsOneOfWhichTheSystemTakesActions) {
  struct sigaction action = {};
  ASSERT_EQ(syscall(SYS_rt_sigaction, 64, nullptr, &action, sizeof(KernelSet)), 0);
  ASSERT_NE(syscall(SYS_rt_sigaction, 64, &action, nullptr, sizeof(KernelSet)), 0);
  EXPECT_EQ(standIn(), 63);
  EXPECT_EQ(SIGRTMAX, 62);
}

TEST(SignalMask, TheStandInIsNoSignalThatTheSystemKeeps) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigaction, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 64, 0, 3),
        // A query is answered, as valgrind does.
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + sizeof(std::uint64_t)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(program), program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(2);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) _exit(3);
    execl("/proc/self/exe", "signal_mask_test", "--gtest_also_run_disabled_tests",
          "--gtest_filter=*OneOfWhichTheSystemTakesActions", nullptr);
    _exit(4);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SignalMask, ComesBackAsItWent) {
  std::mt19937 random(4711);
  for (int round = 0; round < 1000; ++round) {
    const sigset_t program = randomMask(random);
    const sigset_t kernel = kernelMask(program);
    const sigset_t back = programMask(kernel);
    for (int signal = 1; signal <= SIGRTMAX; ++signal) {
      EXPECT_EQ(sigismember(&back, signal), sigismember(&program, signal)) << signal;
      if (signal != SIGSEGV) {
        EXPECT_EQ(sigismember(&kernel, signal), sigismember(&program, signal)) << signal;
      }
    }
  }
}

TEST(SignalMask, NeverHasSigsegvInTheKernel) {
  sigset_t program;
  sigfillset(&program);
  const sigset_t blocked = kernelMask(program);
  EXPECT_EQ(sigismember(&blocked, SIGSEGV), 0);
  EXPECT_EQ(sigismember(&blocked, standIn()), 1);
  // "Everything but the faults", as programs write it.
  sigdelset(&program, SIGSEGV);
  const sigset_t open = kernelMask(program);
  EXPECT_EQ(sigismember(&open, SIGSEGV), 0);
  EXPECT_EQ(sigismember(&open, standIn()), 0);
}

TEST(SignalMask, OfAThreadIsSetAndToldAsItIs) {
  const KernelSet before = setThreadMask(kernelBit(SIGUSR1) | kernelBit(standIn()));
  EXPECT_EQ(threadMask(), kernelBit(SIGUSR1) | kernelBit(standIn()));
  {
    const SignalsBlocked blocked;
    EXPECT_EQ(threadMask() & kernelBit(SIGSEGV), 0u);
    EXPECT_NE(threadMask() & kernelBit(SIGALRM), 0u);
    EXPECT_NE(threadMask() & kernelBit(standIn()), 0u);
  }
  EXPECT_EQ(threadMask(), kernelBit(SIGUSR1) | kernelBit(standIn()));
  (void)setThreadMask(before);
}

TEST(FileSizeSignal, OfACallOfOursIsTakenAway) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{4096, before.rlim_max};
  const int fd = memfd_create("limited", MFD_CLOEXEC);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const KernelSet mask = threadMask();
  {
    const FileSizeSignalKept kept;
    EXPECT_EQ(ftruncate(fd, 8192), -1);
    EXPECT_EQ(errno, EFBIG);
  }
  // Here the signal would have killed the process.
  EXPECT_EQ(threadMask(), mask);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  close(fd);
}

TEST(FileSizeSignal, ThatTheProgramHasPendingStays) {
  const KernelSet mask = setThreadMask(threadMask() | kernelBit(SIGXFSZ));
  raise(SIGXFSZ);
  { const FileSizeSignalKept kept; }
  sigset_t pending;
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGXFSZ), 1);
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGXFSZ);
  const timespec now{};
  EXPECT_EQ(sigtimedwait(&wanted, nullptr, &now), SIGXFSZ);
  setThreadMask(mask);
}

}  // namespace
}  // namespace gmac::os
