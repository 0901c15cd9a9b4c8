// SPDX-License-Identifier: Apache-2.0
//
// A signal at every instruction of a fault: a tracer steps through the delivery and sends an alarm,
// whose handler faults as well, after the first instruction, then after the second, and so on.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "gmac/os/fault.h"
#include "gmac/os/memory.h"

namespace gmac::os {
namespace {

constexpr std::size_t kPage = 4096;

// ---- The process that faults

std::byte* pages = nullptr;  // two, closed in every round
stack_t alternate = {};
volatile sig_atomic_t alarms = 0;
volatile sig_atomic_t onAlternate = 0;  // whether the last alarm was handled there

bool owns(const void* address) noexcept { return address >= pages && address < pages + 2 * kPage; }

bool open(void* address, bool) noexcept {
  return owns(address) &&
         protect(pages + (static_cast<std::byte*>(address) - pages) / kPage * kPage, kPage,
                 Access::kReadWrite)
             .ok();
}

void touchOnAlarm(int) {
  auto* const own = reinterpret_cast<volatile int*>(pages + kPage);
  *own = *own + 1;
  alarms = alarms + 1;
  const char here = 0;
  onAlternate =
      static_cast<std::size_t>(&here - static_cast<char*>(alternate.ss_sp)) < alternate.ss_size;
}

// The exit status tells what went wrong.
enum Wrong { kNotTraced = 10, kNoStack, kNoAction, kNoRuntime, kNotClosed, kLost, kAlarms, kBack };

// The program's own actions' flags.
struct Flags {
  int fault;  // for SIGSEGV, which the front has as well
  int alarm;
};

// Faults once a round, and says SIGUSR1 after it, for ever.
[[noreturn]] void faultInRounds(const Flags& flags) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotTraced);
  const rlimit seconds = {20, 30};  // one that returns to a wrong place may go round there
  setrlimit(RLIMIT_CPU, &seconds);
  alternate.ss_size = 64 * 1024;
  alternate.ss_sp =
      mmap(nullptr, alternate.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (sigaltstack(&alternate, nullptr) != 0) _exit(kNoStack);

  struct sigaction action = {};
  action.sa_handler = [](int) { _exit(kLost); };
  action.sa_flags = flags.fault;
  if (sigaction(SIGSEGV, &action, nullptr) != 0) _exit(kNoAction);
  action.sa_handler = &touchOnAlarm;
  action.sa_flags = flags.alarm;
  if (sigaction(SIGALRM, &action, nullptr) != 0) _exit(kNoAction);

  auto place = reserve(2 * kPage, kPage);
  if (!place.ok() || !installFaultHandler(&open, &owns).ok()) _exit(kNoRuntime);
  pages = static_cast<std::byte*>(*place);
  auto* const value = reinterpret_cast<volatile int*>(pages);
  bool mayBeOnAlternate = true;
  for (int round = 0;; ++round) {
    if (!protect(pages, 2 * kPage, Access::kNone).ok()) _exit(kNotClosed);
    alarms = 0;
    *value = round;
    if (*value != round) _exit(kLost);
    if (alarms != (round > 0 ? 1 : 0)) _exit(kAlarms);
    // It is left early in the delivery; only what asks for it is handled there from then on.
    if (onAlternate != 0 && !mayBeOnAlternate && (flags.alarm & SA_ONSTACK) == 0) _exit(kBack);
    if (round > 0) mayBeOnAlternate = onAlternate != 0;
    raise(SIGUSR1);
  }
}

// ---- The one that steps

class Tracer {
 public:
  explicit Tracer(pid_t process) : process_(process) {}
  ~Tracer() {
    kill(process_, SIGKILL);
    (void)waitpid(process_, nullptr, 0);
  }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // The signal that the process stops with, or -1: it has ended.
  int wait() {
    if (waitpid(process_, &status_, 0) != process_) return -1;
    return WIFSTOPPED(status_) ? WSTOPSIG(status_) : -1;
  }
  int goOn(int signal) { return resume(PTRACE_CONT, signal); }
  int step(int signal) { return resume(PTRACE_SINGLESTEP, signal); }
  void send(int signal) { kill(process_, signal); }
  std::uintptr_t instruction() {
    user_regs_struct registers = {};
    ptrace(PTRACE_GETREGS, process_, nullptr, &registers);
    return registers.rip;
  }
  bool exitedWith(int status) const { return WIFEXITED(status_) && WEXITSTATUS(status_) == status; }
  std::string ending() const {
    if (WIFEXITED(status_)) return "exited with " + std::to_string(WEXITSTATUS(status_));
    if (WIFSIGNALED(status_)) return std::string("killed: ") + strsignal(WTERMSIG(status_));
    return std::string("stopped: ") + strsignal(WSTOPSIG(status_));
  }

 private:
  int resume(__ptrace_request request, int signal) {
    if (ptrace(request, process_, nullptr, static_cast<long>(signal)) != 0) return -1;
    return wait();
  }

  const pid_t process_;
  int status_ = 0;
};

class SteppedFault : public testing::TestWithParam<Flags> {};

INSTANTIATE_TEST_SUITE_P(Stacks, SteppedFault,
                         testing::Values(Flags{0, SA_RESTART}, Flags{SA_ONSTACK, SA_RESTART},
                                         Flags{0, SA_ONSTACK}, Flags{SA_ONSTACK, SA_ONSTACK}),
                         [](const testing::TestParamInfo<Flags>& info) {
                           const auto stack = [](int flags) {
                             return (flags & SA_ONSTACK) != 0 ? "OnTheAlternateStack"
                                                              : "OnItsOwnStack";
                           };
                           return std::string(stack(info.param.fault)) + "_TheAlarm" +
                                  stack(info.param.alarm);
                         });

TEST_P(SteppedFault, AnAlarmThatFaultsMayComeAtEveryInstruction) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer holds signals back; run in every other build";
#endif
  const pid_t child = fork();
  ASSERT_GE(child, 0) << strerror(errno);
  if (child == 0) faultInRounds(GetParam());
  Tracer tracer(child);
  const int first = tracer.wait();
  if (tracer.exitedWith(kNotTraced)) GTEST_SKIP() << "ptrace(PTRACE_TRACEME) is not permitted here";
  // The first round finds the functions that are bound when they are first called.
  ASSERT_EQ(first, SIGSEGV) << tracer.ending();
  ASSERT_EQ(tracer.goOn(SIGSEGV), SIGUSR1) << tracer.ending();
  bool over = false;
  int steps = 0;
  while (!over) {
    ++steps;
    ASSERT_EQ(tracer.goOn(0), SIGSEGV) << tracer.ending();
    const std::uintptr_t faulting = tracer.instruction();
    for (int step = 0; step < steps && !over; ++step) {
      ASSERT_EQ(tracer.step(step == 0 ? SIGSEGV : 0), SIGTRAP)
          << tracer.ending() << " at step " << step;
      over = tracer.instruction() == faulting;
    }
    tracer.send(SIGALRM);
    int signal = tracer.goOn(0);
    while (signal == SIGALRM || signal == SIGSEGV) signal = tracer.goOn(signal);
    ASSERT_EQ(signal, SIGUSR1) << "the alarm came after " << steps
                               << " instructions: " << tracer.ending();
  }
  EXPECT_GT(steps, 50) << "that is no whole fault";
  RecordProperty("instructions", steps);
}

}  // namespace
}  // namespace gmac::os
