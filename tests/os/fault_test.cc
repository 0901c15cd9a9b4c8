// SPDX-License-Identifier: Apache-2.0
//
// Fault delivery. A process has one handler for its life, so every test runs in a process of its
// own.
#include "gmac/os/fault.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "gmac/os/memory.h"

namespace gmac::os {
namespace {

constexpr std::size_t kPage = 4096;

// A child's finding, as its exit status; 0 is well.
struct Ended {
  bool exited;
  int status;  // exit status, or the signal that killed it
};

// The kernel leaves the last fault's address in the siginfo that a parent cannot see; children
// report through status.
Ended inChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? Ended{true, WEXITSTATUS(status)} : Ended{false, WTERMSIG(status)};
}

#define EXPECT_WELL(body)       \
  do {                          \
    const Ended ended = body;   \
    EXPECT_TRUE(ended.exited);  \
    EXPECT_EQ(ended.status, 0); \
  } while (false)

std::byte* ours = nullptr;  // two pages that the fault function opens
std::atomic<int> reads{0};
std::atomic<int> writes{0};

bool openOurs(void* address, bool write) noexcept {
  auto* at = static_cast<std::byte*>(address);
  if (at < ours || at >= ours + 2 * kPage) {
    return false;
  }
  ++(write ? writes : reads);
  return protect(ours + (at - ours) / kPage * kPage, kPage,
                 write ? Access::kReadWrite : Access::kRead)
      .ok();
}

void start() {
  auto place = reserve(2 * kPage, kPage);
  if (!place.ok() || !installFaultHandler(&openOurs).ok()) {
    _exit(99);
  }
  ours = static_cast<std::byte*>(*place);
}

// Through a number that the compiler does not know to be no object's address.
void writeTo(std::uintptr_t address) {
  volatile std::uintptr_t hidden = address;
  *reinterpret_cast<volatile int*>(hidden) = 1;
}

// The thread sanitizer puts a handler of its own under every one that is set through libc, so that
// what the system calls is not what the program has set.
#ifdef __SANITIZE_THREAD__
#define GMAC_SKIP_WHERE_HANDLERS_ARE_WRAPPED() \
  GTEST_SKIP() << "the thread sanitizer wraps the program's signal handlers"
#else
#define GMAC_SKIP_WHERE_HANDLERS_ARE_WRAPPED() static_cast<void>(0)
#endif

TEST(FaultDelivery, ReadsAndWritesAreToldApart) {
  EXPECT_WELL(inChild([] {
    start();
    if (*static_cast<volatile std::byte*>(ours) != std::byte{0} || reads != 1 || writes != 0) {
      return 1;
    }
    *static_cast<volatile std::byte*>(ours + 1) = std::byte{1};
    return reads == 1 && writes == 1 ? 0 : 2;
  }));
}

TEST(FaultDelivery, AFirstWriteIsOneFault) {
  EXPECT_WELL(inChild([] {
    start();
    *static_cast<volatile std::byte*>(ours + kPage) = std::byte{1};
    return reads == 0 && writes == 1 ? 0 : 1;
  }));
}

TEST(FaultDelivery, ReadModifyWriteCountsAsAWrite) {
  EXPECT_WELL(inChild([] {
    start();
    __atomic_fetch_add(reinterpret_cast<int*>(ours), 1, __ATOMIC_SEQ_CST);
    return reads == 0 && writes == 1 ? 0 : 1;
  }));
}

TEST(FaultDelivery, ErrnoIsKept) {
  EXPECT_WELL(inChild([] {
    start();
    errno = 77;
    *static_cast<volatile std::byte*>(ours) = std::byte{1};
    return errno == 77 ? 0 : 1;
  }));
}

sigjmp_buf jump;
siginfo_t seen;
void* seenContext = nullptr;

void previousHandler(int signal, siginfo_t* info, void* context) {
  seen = *info;
  seenContext = context;
  siglongjmp(jump, signal);
}

// Faults on a page of no object, repeatedly, and comes back through the handler that was there
// before.
TEST(FaultDelivery, AForeignFaultReachesThePreviousHandlerWithItsSiginfo) {
  GMAC_SKIP_WHERE_HANDLERS_ARE_WRAPPED();
  EXPECT_WELL(inChild([] {
    struct sigaction action = {};
    action.sa_sigaction = &previousHandler;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    start();
    auto* foreign = static_cast<std::byte*>(
        mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int round = 0; round < 3; ++round) {
      if (const int signal = sigsetjmp(jump, 1); signal == 0) {
        *static_cast<volatile std::byte*>(foreign + 17) = std::byte{1};
        return 1;
      } else if (signal != SIGSEGV || seen.si_addr != foreign + 17 || seen.si_code != SEGV_ACCERR ||
                 seenContext == nullptr) {
        return 2;
      }
      // Ours goes on being answered.
      *static_cast<volatile std::byte*>(ours) = std::byte{1};
    }
    return writes == 1 ? 0 : 3;
  }));
}

void plainHandler(int) { siglongjmp(jump, 1); }

TEST(FaultDelivery, AForeignFaultReachesAPreviousHandlerWithoutSiginfo) {
  GMAC_SKIP_WHERE_HANDLERS_ARE_WRAPPED();
  EXPECT_WELL(inChild([] {
    std::signal(SIGSEGV, &plainHandler);
    start();
    if (sigsetjmp(jump, 1) == 0) {
      writeTo(64);
      return 1;
    }
    return 0;
  }));
}

TEST(FaultDelivery, ARealCrashDiesOfItsOwnSignal) {
  const Ended ended = inChild([] {
    start();
    *static_cast<volatile std::byte*>(ours) = std::byte{1};
    writeTo(64);
    return 0;
  });
  EXPECT_FALSE(ended.exited);
  EXPECT_EQ(ended.status, SIGSEGV);
}

// A debugger sees the crash again at its own address, under the default action.
TEST(FaultDelivery, ARealCrashHappensAtItsOwnAddress) {
  GMAC_SKIP_WHERE_HANDLERS_ARE_WRAPPED();
  int pipeEnds[2];
  ASSERT_EQ(pipe(pipeEnds), 0);
  const pid_t child = fork();
  if (child == 0) {
    // A handler after ours, as a crash reporter installs one, sees where it happened.
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    static int out = pipeEnds[1];
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      void* address = info->si_addr;
      (void)!write(out, &address, sizeof address);
      std::signal(SIGSEGV, SIG_DFL);
    };
    sigaction(SIGSEGV, &action, nullptr);
    start();
    writeTo(0x1238);
    _exit(0);
  }
  ::close(pipeEnds[1]);
  std::uintptr_t address = 0;
  EXPECT_EQ(read(pipeEnds[0], &address, sizeof address), static_cast<ssize_t>(sizeof address));
  ::close(pipeEnds[0]);
  EXPECT_EQ(address, 0x1238u);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
}

TEST(FaultDelivery, ASegmentationSignalThatWasSentKillsAsBefore) {
  GMAC_SKIP_WHERE_HANDLERS_ARE_WRAPPED();
  const Ended ended = inChild([] {
    start();
    kill(getpid(), SIGSEGV);
    sleep(10);
    return 0;
  });
  EXPECT_FALSE(ended.exited);
  EXPECT_EQ(ended.status, SIGSEGV);
}

// The kernel sends a SIGSEGV then, after which no access is repeated.
TEST(FaultDelivery, ASignalThatFindsNoStackKillsAsBefore) {
  const Ended ended = inChild([] {
    if (!installFaultHandler(&openOurs, nullptr).ok()) return 1;
    stack_t stack{};
    stack.ss_size = 16 * kPage;
    stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_ONSTACK;
    if (sigaltstack(&stack, nullptr) != 0 || sigaction(SIGUSR1, &action, nullptr) != 0) return 2;
    raise(SIGUSR1);
    return 3;  // as if the signal had never been
  });
  EXPECT_FALSE(ended.exited);
  EXPECT_EQ(ended.status, SIGSEGV);
}

TEST(FaultDelivery, ASentSignalIsDeliveredOnce) {
  GMAC_SKIP_WHERE_HANDLERS_ARE_WRAPPED();
  EXPECT_WELL(inChild([] {
    static int deliveries = 0;
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      deliveries += info->si_code <= 0 ? 1 : 100;
    };
    sigaction(SIGSEGV, &action, nullptr);
    start();
    kill(getpid(), SIGSEGV);
    return deliveries == 1 && reads + writes == 0 ? 0 : 1;
  }));
}

int changeAction(const struct sigaction* wanted, struct sigaction* before) {
  return changeProgramAction(wanted, before, &::sigaction);
}

TEST(FaultDelivery, TheProgramsActionIsTheKernelsUntilOursStandsBeforeIt) {
  GMAC_SKIP_WHERE_HANDLERS_ARE_WRAPPED();
  EXPECT_WELL(inChild([] {
    struct sigaction action = {};
    action.sa_handler = &plainHandler;
    struct sigaction now = {};
    if (changeAction(&action, nullptr) != 0 || sigaction(SIGSEGV, nullptr, &now) != 0 ||
        now.sa_handler != &plainHandler) {
      return 1;
    }
    start();
    if (changeAction(nullptr, &now) != 0 || now.sa_handler != &plainHandler) return 2;
    return sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_handler != &plainHandler ? 0 : 3;
  }));
}

TEST(FaultDelivery, AnActionThatIsSetAfterwardsGetsTheForeignFaults) {
  GMAC_SKIP_WHERE_HANDLERS_ARE_WRAPPED();
  EXPECT_WELL(inChild([] {
    start();
    struct sigaction action = {};
    action.sa_sigaction = &previousHandler;
    action.sa_flags = SA_SIGINFO;
    struct sigaction before = {};
    if (changeAction(&action, &before) != 0 || before.sa_handler != SIG_DFL) return 1;
    if (sigsetjmp(jump, 1) == 0) {
      writeTo(0x1238);
      return 2;
    }
    *static_cast<volatile std::byte*>(ours) = std::byte{1};
    return seen.si_addr == reinterpret_cast<void*>(0x1238) && writes == 1 ? 0 : 3;
  }));
}

TEST(FaultDelivery, AForeignFaultWhileTheProgramBlocksItKills) {
  GMAC_SKIP_WHERE_HANDLERS_ARE_WRAPPED();
  const Ended ended = inChild([] {
    std::signal(SIGSEGV, &plainHandler);
    start();
    (void)setThreadMask(kernelBit(standIn()));
    *static_cast<volatile std::byte*>(ours) = std::byte{1};
    if (writes != 1) return 1;
    if (sigsetjmp(jump, 1) == 0) writeTo(64);
    return 2;
  });
  EXPECT_FALSE(ended.exited);
  EXPECT_EQ(ended.status, SIGSEGV);
}

TEST(FaultDelivery, ManyThreadsFaultAtOnce) {
  EXPECT_WELL(inChild([] {
    start();
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back([&, i] {
        auto* byte = static_cast<volatile std::byte*>(ours + i);
        *byte = static_cast<std::byte>(i);
        wrong += *byte != static_cast<std::byte>(i);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return wrong == 0 ? 0 : 1;
  }));
}

TEST(SignalsBlocked, LeavesSynchronousFaultsAndRestoresTheMask) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const SignalsBlocked blocked;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    EXPECT_EQ(sigismember(&now, SIGALRM), 1);
    EXPECT_EQ(sigismember(&now, SIGUSR1), 1);
    EXPECT_EQ(sigismember(&now, SIGSEGV), 0);
    EXPECT_EQ(sigismember(&now, SIGBUS), 0);
  }
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < 64; ++signal) {
    EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal)) << signal;
  }
}

}  // namespace
}  // namespace gmac::os
