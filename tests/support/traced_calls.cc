// SPDX-License-Identifier: Apache-2.0
#include "tests/support/traced_calls.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace gmac::testing {
namespace {

constexpr int kNotTraced = 77;
// Stands before and after what is traced. Nothing else here asks for it.
constexpr long kMark = SYS_getpgid;

[[noreturn]] void traced(const std::function<void(const Traced&)>& body) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotTraced);
  raise(SIGSTOP);
  body([](const std::function<void()>& action) {
    (void)syscall(kMark, 0);
    action();
    (void)syscall(kMark, 0);
  });
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

std::optional<std::vector<long>> tracedCalls(const std::function<void(const Traced&)>& body) {
  const pid_t child = fork();
  if (child == 0) traced(body);
  EXPECT_GT(child, 0) << strerror(errno);
  std::vector<long> calls;
  bool entering = true;
  bool marked = false;
  for (int status = 0; waitpid(child, &status, 0) == child;) {
    if (!WIFSTOPPED(status)) {
      if (WIFEXITED(status) && WEXITSTATUS(status) == kNotTraced) return std::nullopt;
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
      break;
    }
    int signal = WSTOPSIG(status);
    if (signal == SIGSTOP) {
      (void)ptrace(PTRACE_SETOPTIONS, child, nullptr,
                   static_cast<long>(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
      signal = 0;
    } else if (signal == (SIGTRAP | 0x80)) {
      signal = 0;
      if (entering) {
        user_regs_struct registers = {};
        (void)ptrace(PTRACE_GETREGS, child, nullptr, &registers);
        const auto number = static_cast<long>(registers.orig_rax);
        if (number == kMark) {
          marked = !marked;
        } else if (marked) {
          calls.push_back(number);
        }
      }
      entering = !entering;
    }
    if (ptrace(PTRACE_SYSCALL, child, nullptr, static_cast<long>(signal)) != 0) break;
  }
  return calls;
}

}  // namespace gmac::testing
