// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/fault.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include "gmac/base/ample_stack.h"
#include "gmac/base/cancellation.h"
#include "gmac/base/fork_lock.h"
#include "gmac/os/fault_stack.h"

// sigaction() under the name that no library which is put before libc stands in for.
extern "C" int __sigaction(int signal, const struct sigaction* action,
                           struct sigaction* before) noexcept;

// Called when a SIGSEGV is passed on, for debuggers to stop at: nothing that is the runtime's comes
// by. Exported, so that a stripped library has the name.
extern "C" __attribute__((visibility("default"), noinline)) void gmacPassOn() { asm volatile(""); }

namespace gmac::os {
namespace {

using SignalAction = struct sigaction;

#if defined(__SANITIZE_THREAD__)
// The thread sanitizer runs handlers in its own way and must know of them all.
int kernelAction(int signal, const SignalAction* action, SignalAction* before) noexcept {
  static const auto sanitizers =
      reinterpret_cast<SigactionFunction>(::dlsym(RTLD_NEXT, "sigaction"));
  return sanitizers(signal, action, before);
}
#else
int kernelAction(int signal, const SignalAction* action, SignalAction* before) noexcept {
  return ::__sigaction(signal, action, before);
}
#endif

std::atomic<FaultFunction> faultFunction{nullptr};
std::atomic<MayOwnFunction> mayOwnFunction{nullptr};
std::atomic<FaultFunction> secondFunction{nullptr};
std::atomic<MayOwnFunction> secondMayOwn{nullptr};

// The program's action for SIGSEGV once ours stands before it.
struct ProgramAction {
  ForkLock lock;  // under an ActionLock
  bool behindOurs = false;
  pid_t process = 0;  // whose it is: a child of vfork has this memory, but actions of its own
  SignalAction action = {};
};
constinit ProgramAction program;

// Holds the lock of the program's action with every signal blocked, SIGSEGV too: the handler
// takes it. No memory of the program may be touched meanwhile. For the stack.
class ActionLock {
 public:
  ActionLock() noexcept : before_(setThreadMask(~KernelSet{0})) { program.lock.lock(); }
  ~ActionLock() {
    program.lock.unlock();
    (void)setThreadMask(before_);
  }
  ActionLock(const ActionLock&) = delete;
  ActionLock& operator=(const ActionLock&) = delete;

 private:
  KernelSet before_;
};

// ActionLock across a fork, so that a child never finds the lock taken by a thread that it
// does not have. The threads that fork take turns, so one place for the mask is enough.
KernelSet maskBeforeFork = 0;
void lockForFork() {
  const KernelSet before = setThreadMask(~KernelSet{0});
  program.lock.beforeFork();
  maskBeforeFork = before;
}
void unlockInParent() {
  const KernelSet before = maskBeforeFork;
  program.lock.afterForkInParent();
  (void)setThreadMask(before);
}
void unlockInChild() {
  program.process = getpid();
  program.lock.afterForkInChild();
  (void)setThreadMask(maskBeforeFork);
}

// When the library is loaded: the handlers of everybody else, which may touch shared objects, then
// run outside of these.
[[gnu::constructor]] void watchForks() {
  (void)pthread_atfork(&lockForFork, &unlockInParent, &unlockInChild);
}

bool isHandler(const SignalAction& action) noexcept {
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

KernelSet bitsOf(const sigset_t& set) noexcept {
  KernelSet bits = 0;
  std::memcpy(&bits, &set, sizeof bits);  // the rest of a sigset_t is not the kernel's
  return bits;
}

void onSignal(int signal, siginfo_t* info, void* context);

// Our action, in front of the program's.
SignalAction frontOf(const SignalAction& behind, KernelSet mask) noexcept {
  SignalAction front = {};
  front.sa_sigaction = &onSignal;
  // SA_NODEFER: while a fault waits for a kernel, signals go on being handled, and their handlers
  // may fault. SA_ONSTACK as the program has it, so that a handler for stack overflows goes on
  // seeing them; SA_RESTART as it has it, for signals that were sent.
  front.sa_flags = SA_SIGINFO | SA_NODEFER | (behind.sa_flags & SA_ONSTACK) |
                   (isHandler(behind) ? behind.sa_flags & SA_RESTART : SA_RESTART);
  sigemptyset(&front.sa_mask);
  std::memcpy(&front.sa_mask, &mask, sizeof mask);
  return front;
}

// A fault is answered with signals blocked, and the kernel blocks them without a call of ours. (The
// stand-in is never a fault.)
bool installFront() noexcept {
  const SignalAction front = frontOf(program.action, kDeferrable);
  const SignalAction frontOfStandIn = frontOf(program.action, 0);
  return kernelAction(SIGSEGV, &front, nullptr) == 0 &&
         (standIn() == 0 || kernelAction(standIn(), &frontOfStandIn, nullptr) == 0);
}

// ---- Faults

#if defined(__x86_64__)

bool isWrite(const void* context) noexcept {
  // Bit 1 of the page-fault error code: the access was a write.
  constexpr greg_t kWriteBit = 2;
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
}

// The interrupted function may use so much below its stack pointer.
constexpr std::uintptr_t kRedZoneBytes = 128;

// Runs function(argument, left) on the stack that ends at `top`; nothing below `left` is in use on
// the stack that it leaves. No exception may come out of it.
void callOnStack(void (*function)(void*, std::uintptr_t), void* argument,
                 std::uintptr_t top) noexcept {
  asm volatile(
      "movq %%rsp, %%rbx\n\t"
      "leaq -%c[redZone](%%rsp), %%rsi\n\t"
      "movq %[top], %%rsp\n\t"
      "callq *%[function]\n\t"
      "movq %%rbx, %%rsp"
      : "+D"(argument), [function] "+a"(function), [top] "+c"(top)
      : [redZone] "i"(kRedZoneBytes)
      : "rbx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
        "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
        "xmm15", "cc", "memory");
}

#else
#error "gmac needs to know this processor's fault codes and stack pointer"
#endif

struct Fault {
  siginfo_t* info;
  ucontext_t* context;
};

using Delivery = SignalsBlocked::ByDelivery;

bool answer(const Fault& fault) noexcept {
  for (const auto* const one : {&faultFunction, &secondFunction}) {
    const FaultFunction function = one->load(std::memory_order_acquire);
    if (function != nullptr && function(fault.info->si_addr, isWrite(fault.context))) return true;
  }
  return false;
}

bool mayOwn(const void* address) noexcept {
  for (const auto* const one : {&mayOwnFunction, &secondMayOwn}) {
    const MayOwnFunction function = one->load(std::memory_order_acquire);
    if (function != nullptr && function(address)) return true;
  }
  return false;
}

bool contains(const stack_t& stack, std::uintptr_t address) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(stack.ss_sp);
  return (stack.ss_flags & SS_DISABLE) == 0 && address - begin < stack.ss_size;
}

// The part of an alternate stack that is not in use, for handlers of other signals that come while
// a fault is answered elsewhere; none where it is too small for a handler.
stack_t restOf(const stack_t& alternate, std::uintptr_t used) noexcept {
  constexpr std::uintptr_t kLeastBytes = std::uintptr_t{16} << 10;
  stack_t rest = alternate;
  rest.ss_size = used - reinterpret_cast<std::uintptr_t>(alternate.ss_sp);
  if (rest.ss_size < kLeastBytes) {
    rest = {};
    rest.ss_flags = SS_DISABLE;
  }
  return rest;
}

// A fault that is delivered on the program's alternate stack is answered on neither of the
// program's: the alternate one may have room for the program's handler and no more, and the one on
// which it happened may be a coroutine's of a few KiB. The kernel would not know that the alternate
// stack is still in use, and begin it anew for the next signal, so until the fault is answered only
// the rest of it is the alternate stack; returning from the signal brings all of it back. That
// cannot be set on the stack itself, so there is a moment at which a handler would destroy it: the
// signals are blocked then.
bool answerOnStackOfOurOwn(const Fault& fault, Delivery& delivery) noexcept {
  struct Job {
    const Fault& fault;
    Delivery& delivery;
    stack_t before;  // the kernel's alternate stack, which is none with SS_AUTODISARM
    bool answered;
  } job = {fault, delivery, {}, false};
  const FaultStack stack(FaultStack::Need::kMust);
  callOnStack(
      [](void* argument, std::uintptr_t left) {
        auto* const job = static_cast<Job*>(argument);
        const stack_t rest = restOf(job->fault.context->uc_stack, left);
        (void)syscall(SYS_sigaltstack, &rest, &job->before);
        job->answered = answer(job->fault);
        job->delivery.again();  // nor does a handler run while the stack is left
      },
      &job, stack.top());
  if (!job.answered) (void)syscall(SYS_sigaltstack, &job.before, nullptr);
  return job.answered;
}

// Runs a call of a driver's on a stack of our own, with every signal blocked: a handler there would
// find a stack that nobody knows, a garbage collector's for example.
void callWithRoom(void (*function)(void*), void* argument) noexcept {
  struct Job {
    void (*function)(void*);
    void* argument;
  } job = {function, argument};
  std::optional<SignalsBlocked> blocked;
  if (!SignalsBlocked::here()) blocked.emplace();
  const FaultStack stack(FaultStack::Need::kMay);
  if (!stack) {
    function(argument);  // there may be room enough here
    return;
  }
  callOnStack(
      [](void* given, std::uintptr_t /*left*/) {
        const auto* const job = static_cast<Job*>(given);
        job->function(job->argument);
      },
      &job, stack.top());
}

bool isAnswered(const Fault& fault) noexcept {
  Delivery delivery(bitsOf(fault.context->uc_sigmask));
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  // A fault that is not ours stays where the program's handler expects it.
  if (contains(fault.context->uc_stack, here) &&
      mayOwnFunction.load(std::memory_order_relaxed) != nullptr) {
    const StackIsShort no(nullptr);
    return mayOwn(fault.info->si_addr) && answerOnStackOfOurOwn(fault, delivery);
  }
  const StackIsShort yes(&callWithRoom);
  return answer(fault);
}

// ---- The program's part

// Sends a signal again with its own siginfo; the kernel lets a process say anything to itself.
void sendAgain(int signal, siginfo_t info) noexcept {
  const pid_t process = getpid();
  if (info.si_code == SI_TKILL || info.si_code == SI_KERNEL) {
    (void)syscall(SYS_rt_tgsigqueueinfo, process, gettid(), signal, &info);
  } else {
    (void)syscall(SYS_rt_sigqueueinfo, process, signal, &info);
  }
}

bool isPending(int signal) noexcept {
  KernelSet pending = 0;
  (void)syscall(SYS_rt_sigpending, &pending, sizeof pending);
  return (pending & kernelBit(signal)) != 0;
}

void restoreDefault() noexcept {
  SignalAction defaultAction = {};
  defaultAction.sa_handler = SIG_DFL;
  (void)kernelAction(SIGSEGV, &defaultAction, nullptr);
}

// In the mask that a handler returns to, between the kernel's form and the program's.
void moveBit(sigset_t& set, int from, int to) noexcept {
  KernelSet bits = bitsOf(set);
  if (from > 0 && (bits & kernelBit(from)) != 0) {
    bits = (bits & ~kernelBit(from)) | kernelBit(to);
    std::memcpy(&set, &bits, sizeof bits);
  }
}

// Does what the kernel would do with a SIGSEGV if we were not there. `isFault`: it is the doing of
// the interrupted instruction, which is repeated on return; else it was sent. (Not inlined:
// cancellation is on in onSignal.)
[[gnu::noinline]] void passOn(int signal, siginfo_t* info, ucontext_t* context, bool isFault) {
  // The mask that the signal met. Our action for the stand-in blocks nothing, so that it is found
  // also in the middle of a sigsuspend() or ppoll(), where the context has another; no fault
  // happens there, and a SIGSEGV that is sent meanwhile becomes the stand-in.
  const KernelSet mask = signal == SIGSEGV ? bitsOf(context->uc_sigmask) : threadMask();
  const bool blocked = (mask & kernelBit(standIn())) != 0;
  SignalAction action;
  {
    const ActionLock lock;
    action = program.action;
    if (!blocked && isHandler(action) && (action.sa_flags & SA_RESETHAND) != 0) {
      program.action.sa_handler = SIG_DFL;
    }
  }
  if (!isFault && blocked) {
    // An ordinary signal is pending once, however often it is sent.
    if (!isPending(standIn())) sendAgain(standIn(), *info);
    return;
  }
  if (!isFault && action.sa_handler == SIG_IGN) return;
  if (blocked || !isHandler(action)) {
    restoreDefault();  // under which the repeated access kills the process at its own address
    // A signal that the kernel sends without an address may not come from an access that is
    // repeated: a signal that found no room on its stack, for one.
    if (!isFault || info->si_code == SI_KERNEL) sendAgain(SIGSEGV, *info);
    return;
  }
  info->si_signo = SIGSEGV;
  moveBit(context->uc_sigmask, standIn(), SIGSEGV);
  (void)setThreadMask(mask | bitsOf(action.sa_mask) |
                      ((action.sa_flags & SA_NODEFER) != 0 ? 0 : kernelBit(standIn())));
  action.sa_sigaction(SIGSEGV, info, context);
  moveBit(context->uc_sigmask, SIGSEGV, standIn());
}

void onSignal(int signal, siginfo_t* info, void* context) {
  const int savedErrno = errno;
  const Fault fault = {info, static_cast<ucontext_t*>(context)};
  // Faults are of the kernel's making: a signal sent by kill() carries no address.
  const bool isFault = signal == SIGSEGV && info->si_code > 0;
  if (isFault && uncancelled([&]() noexcept { return isAnswered(fault); })) {
    errno = savedErrno;
    return;
  }
  errno = savedErrno;
  gmacPassOn();
  passOn(signal, info, fault.context, isFault);
}

}  // namespace

Status installFaultHandler(FaultFunction function, MayOwnFunction mayOwn) {
  const auto failed = [](const char* call) {
    return fail(adsmErrorSystem, "{}: {}", call, strerrordesc_np(errno));
  };
  const ActionLock lock;
  if (kernelAction(SIGSEGV, nullptr, &program.action) != 0) {
    return failed("sigaction(SIGSEGV)");
  }
  faultFunction.store(function, std::memory_order_release);
  mayOwnFunction.store(mayOwn, std::memory_order_release);
  if (!installFront()) {
    const Status status = failed("sigaction(SIGSEGV)");
    (void)kernelAction(SIGSEGV, &program.action, nullptr);
    return status;
  }
  program.process = getpid();
  program.behindOurs = true;
  return {};
}

void alsoAnswerFaults(FaultFunction function, MayOwnFunction mayOwn) noexcept {
  secondFunction.store(function, std::memory_order_release);
  secondMayOwn.store(mayOwn, std::memory_order_release);
}

int changeProgramAction(const struct sigaction* wanted, struct sigaction* before,
                        SigactionFunction next) noexcept {
  // Copies, because the program's own may be shared memory.
  const SignalAction fresh = wanted != nullptr ? *wanted : SignalAction{};
  SignalAction old = {};
  int result = 0;
  int error = errno;
  {
    const ActionLock lock;
    if (!program.behindOurs || program.process != getpid()) {
      result = next(SIGSEGV, wanted != nullptr ? &fresh : nullptr, &old);
      error = result != 0 ? errno : error;
    } else {
      old = program.action;
      if (wanted != nullptr) {
        const SignalAction kept = program.action;
        program.action = fresh;
        // As the kernel does for every action.
        (void)sigdelset(&program.action.sa_mask, SIGKILL);
        (void)sigdelset(&program.action.sa_mask, SIGSTOP);
        SignalAction front = {};
        if (!installFront() || kernelAction(SIGSEGV, nullptr, &front) != 0) {
          error = errno;
          program.action = kept;
          result = -1;
        } else {
          // The flags that the kernel keeps, and libc's own part of an action: a query shows them.
          constexpr int kSaRestorer = 0x04000000;
          constexpr int kSaExposeTagBits = 0x00000800;
          constexpr int kKept = SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_ONSTACK | SA_RESTART |
                                SA_NODEFER | static_cast<int>(SA_RESETHAND) | kSaExposeTagBits;
          program.action.sa_flags &= kKept;
          program.action.sa_flags |= front.sa_flags & kSaRestorer;
          program.action.sa_restorer = front.sa_restorer;
        }
      }
    }
  }
  if (result == 0 && before != nullptr) *before = old;
  errno = error;
  return result;
}

}  // namespace gmac::os
