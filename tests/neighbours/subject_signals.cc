// SPDX-License-Identifier: Apache-2.0
//
// A program's view of SIGSEGV: its own handlers, masks and stacks.
#include <dlfcn.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "tests/neighbours/subject.h"

extern "C" int __sigpause(int signalOrMask, int isSignal);

namespace {

using subject::allocate;
using subject::close;
using subject::kBytes;
using subject::say;

constexpr std::size_t kPage = 4096;

unsigned char* memory = nullptr;   // shared, or plain
unsigned char* foreign = nullptr;  // a page that may not be touched
sigjmp_buf jump;

// Whether a handler jumped out of it.
[[gnu::noinline]] bool isJumpedOutOf(void (*act)(), bool savesMask = true) {
  if (sigsetjmp(jump, savesMask) != 0) return true;
  act();
  return false;
}

void prepareForeign() {
  foreign = static_cast<unsigned char*>(
      mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

void write(unsigned char* at, unsigned char value) {
  *const_cast<volatile unsigned char*>(at) = value;
}
unsigned char read(const unsigned char* at) {
  return *const_cast<const volatile unsigned char*>(at);
}

// The members of a mask among the ordinary signals.
std::string named(const sigset_t& mask) {
  std::string text;
  for (int signal = 1; signal < 32; ++signal) {
    if (sigismember(&mask, signal) == 1) text += " " + std::to_string(signal);
  }
  return text;
}

sigset_t maskNow() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return mask;
}

void sayMask(const char* when) { say("%s: blocked%s", when, named(maskNow()).c_str()); }

sigset_t only(int signal) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal);
  return mask;
}

sigset_t everything() {
  sigset_t mask;
  sigfillset(&mask);
  return mask;
}

void saySignal(int signal, const siginfo_t* info) {
  const auto* address = static_cast<unsigned char*>(info->si_addr);
  say("handler: signal %d signo %d errno %d code %d", signal, info->si_signo, info->si_errno,
      info->si_code);
  if (info->si_code > 0) say("handler: at foreign%+td", address - foreign);
  if (info->si_code <= 0) say("handler: sender is %s", info->si_pid == getpid() ? "me" : "another");
}

// Says all that it sees and opens the foreign page.
void openingHandler(int signal, siginfo_t* info, void* context) {
  saySignal(signal, info);
  sayMask("handler");
  sigset_t before;
  sigemptyset(&before);
  std::memcpy(&before, &static_cast<ucontext_t*>(context)->uc_sigmask, 8);
  say("handler: returns to%s", named(before).c_str());
  if (memory != nullptr) {
    write(memory + 3 * kPage, static_cast<unsigned char>(read(memory + 3 * kPage) + 1));
    say("handler: memory %d %d", read(memory), read(memory + 3 * kPage));
  }
  mprotect(foreign, kPage, PROT_READ | PROT_WRITE);
}

void jumpingHandler(int signal, siginfo_t* info, void*) {
  saySignal(signal, info);
  sayMask("handler");
  siglongjmp(jump, signal);
}

void plainHandler(int signal) {
  say("plain handler: signal %d", signal);
  sayMask("plain handler");
  mprotect(foreign, kPage, PROT_READ | PROT_WRITE);
}

void install(void (*handler)(int, siginfo_t*, void*), int flags, sigset_t mask,
             int signal = SIGSEGV) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  action.sa_mask = mask;
  if (sigaction(signal, &action, nullptr) != 0) say("sigaction failed");
}

sigset_t none() {
  sigset_t mask;
  sigemptyset(&mask);
  return mask;
}

void sayAction(const char* when) {
  struct sigaction now;
  if (sigaction(SIGSEGV, nullptr, &now) != 0) say("no action");
  say("%s: %s flags %x mask%s", when,
      now.sa_sigaction == &openingHandler   ? "opening"
      : now.sa_sigaction == &jumpingHandler ? "jumping"
      : now.sa_handler == &plainHandler     ? "plain"
      : now.sa_handler == SIG_DFL           ? "default"
      : now.sa_handler == SIG_IGN           ? "ignored"
                                            : "somebody's",
      now.sa_flags, named(now.sa_mask).c_str());
}

void touchForeign() {
  write(foreign + 17, 1);
  say("went on");
  mprotect(foreign, kPage, PROT_NONE);
}

void touchMemory() {
  close(memory);
  write(memory + kPage, static_cast<unsigned char>(read(memory + kPage) + 1));
  say("memory: %d %d", read(memory), read(memory + kPage));
}

SCENARIO(handlerFromBefore) {
  prepareForeign();
  sayAction("at first");
  install(&openingHandler, SA_RESTART, only(SIGUSR1));
  sayAction("installed");
  memory = allocate();
  touchMemory();
  sayAction("after the start");
  for (int round = 0; round < 3; ++round) {
    close(memory);
    touchForeign();
    touchMemory();
  }
  sayMask("at last");
  return 0;
}

SCENARIO(handlerFromAfter) {
  prepareForeign();
  memory = allocate();
  touchMemory();
  sayAction("at first");
  install(&openingHandler, 0, only(SIGUSR2));
  sayAction("installed");
  touchForeign();
  touchMemory();
  install(&openingHandler, SA_NODEFER, only(SIGTERM));
  sayAction("installed");
  touchForeign();
  touchMemory();
  sayMask("at last");
  return 0;
}

SCENARIO(oldHandlersAreReturned) {
  prepareForeign();
  memory = allocate();
  const auto describe = [](void (*handler)(int)) {
    return handler == SIG_DFL         ? "default"
           : handler == SIG_IGN       ? "ignored"
           : handler == SIG_HOLD      ? "hold"
           : handler == &plainHandler ? "plain"
                                      : "other";
  };
  say("signal: %s", describe(signal(SIGSEGV, &plainHandler)));
  sayAction("signal");
  touchForeign();
  say("signal: %s", describe(signal(SIGSEGV, SIG_IGN)));
  sayAction("ignored");
  say("sysv_signal: %s", describe(sysv_signal(SIGSEGV, &plainHandler)));
  sayAction("sysv_signal");
  touchForeign();
  sayAction("after sysv_signal's handler");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  say("sigset: %s", describe(sigset(SIGSEGV, &plainHandler)));
  sayAction("sigset");
  touchForeign();
  say("sigset hold: %s", describe(sigset(SIGSEGV, SIG_HOLD)));
  sayMask("held");
  touchMemory();
  say("sigset default: %s", describe(sigset(SIGSEGV, SIG_DFL)));
  sayMask("not held");
  sigignore(SIGSEGV);
  sayAction("sigignore");
  signal(SIGSEGV, &plainHandler);
  siginterrupt(SIGSEGV, 1);
  sayAction("siginterrupt");
  signal(SIGSEGV, &plainHandler);
  sayAction("signal after siginterrupt");
#pragma GCC diagnostic pop
  touchMemory();
  struct sigaction wrong = {};
  const int refused = sigaction(4711, &wrong, nullptr);
  say("sigaction of no signal: %d %d", refused, errno);
  return 0;
}

SCENARIO(aHandlerOfOneUse) {
  prepareForeign();
  memory = allocate();
  install(&openingHandler, SA_RESETHAND, none());
  touchForeign();
  sayAction("used");
  touchMemory();
  touchForeign();
  return 0;
}

SCENARIO(jumpsOutOfTheHandler) {
  prepareForeign();
  memory = allocate();
  install(&jumpingHandler, 0, only(SIGUSR1));
  for (int round = 0; round < 5; ++round) {
    if (isJumpedOutOf(&touchForeign)) sayMask("jumped");
    touchMemory();
  }
  return 0;
}

// The mask stays as in the handler: the next fault of the program's own kills it.
SCENARIO(jumpsWithoutTheMask) {
  prepareForeign();
  memory = allocate();
  install(&jumpingHandler, 0, only(SIGUSR1));
  for (int round = 0; round < 5; ++round) {
    if (isJumpedOutOf(&touchForeign, false)) sayMask("jumped");
    touchMemory();
  }
  return 0;
}

SCENARIO(dies) {
  prepareForeign();
  memory = allocate();
  touchMemory();
  touchForeign();
  return 0;
}

SCENARIO(diesWithItBlocked) {
  prepareForeign();
  memory = allocate();
  install(&openingHandler, 0, none());
  const sigset_t mask = only(SIGSEGV);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  touchMemory();
  touchForeign();
  return 0;
}

SCENARIO(diesWithItIgnored) {
  prepareForeign();
  memory = allocate();
  signal(SIGSEGV, SIG_IGN);
  raise(SIGSEGV);
  kill(getpid(), SIGSEGV);
  say("ignored");
  touchMemory();
  touchForeign();
  return 0;
}

SCENARIO(diesOfOneThatWasSent) {
  memory = allocate();
  touchMemory();
  kill(getpid(), SIGSEGV);
  say("still here");
  return 0;
}

SCENARIO(diesOfAHandlerThatFaults) {
  prepareForeign();
  memory = allocate();
  install(
      [](int, siginfo_t*, void*) {
        touchMemory();
        touchForeign();
      },
      0, none());
  touchForeign();
  return 0;
}

void* sayInThread(void*) {
  sayMask("thread");
  touchMemory();
  return nullptr;
}

SCENARIO(blocked) {
  prepareForeign();
  // A thread from before the runtime's start must be able to fault, too.
  static pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, 2);
  const sigset_t all = everything();
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &all, &before);
  say("before:%s", named(before).c_str());
  pthread_t early;
  pthread_create(
      &early, nullptr,
      [](void*) -> void* {
        pthread_barrier_wait(&barrier);  // is there
        pthread_barrier_wait(&barrier);  // is to go on
        return sayInThread(nullptr);
      },
      nullptr);
  // The runtime's start forks, and the address sanitizer's allocator does not survive a fork while
  // another thread is in it, as a starting thread is.
  pthread_barrier_wait(&barrier);
  memory = allocate();
  touchMemory();
  sayMask("all");
  pthread_barrier_wait(&barrier);
  pthread_join(early, nullptr);
  pthread_t thread;
  pthread_create(&thread, nullptr, &sayInThread, nullptr);
  pthread_join(thread, nullptr);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  const sigset_t mask = only(SIGSEGV);
  pthread_attr_setsigmask_np(&attributes, &mask);
  sigset_t told;
  const int answer = pthread_attr_getsigmask_np(&attributes, &told);
  say("attribute: %d%s", answer, named(told).c_str());
  pthread_create(&thread, &attributes, &sayInThread, nullptr);
  pthread_join(thread, nullptr);
  const sigset_t some = only(SIGSEGV);
  sigprocmask(SIG_UNBLOCK, &some, nullptr);
  sayMask("all but one");
  sigprocmask(SIG_SETMASK, &some, &before);
  say("before:%s", named(before).c_str());
  sayMask("one");
  touchMemory();
  sigprocmask(SIG_SETMASK, nullptr, &before);
  say("asked:%s", named(before).c_str());
  const int wrong = sigprocmask(99, &some, nullptr);
  say("wrong: %d %d", wrong, errno);
  return 0;
}

SCENARIO(sentWhileBlocked) {
  prepareForeign();
  memory = allocate();
  install(&openingHandler, SA_NODEFER, none());
  const sigset_t mask = only(SIGSEGV);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  for (int round = 0; round < 2; ++round) {
    raise(SIGSEGV);
    raise(SIGSEGV);
    sigset_t pending;
    sigpending(&pending);
    say("pending:%s", named(pending).c_str());
    touchMemory();
    sigprocmask(SIG_UNBLOCK, &mask, nullptr);
    sigpending(&pending);
    say("not pending:%s", named(pending).c_str());
    sigprocmask(SIG_BLOCK, &mask, nullptr);
  }
  sigval value = {};
  value.sival_int = 4711;
  sigqueue(getpid(), SIGSEGV, value);
  siginfo_t info = {};
  say("sigwaitinfo: %d", sigwaitinfo(&mask, &info));
  say("info: %d %d %d", info.si_signo, info.si_code, info.si_value.sival_int);
  kill(getpid(), SIGSEGV);
  int got = 0;
  say("sigwait: %d", sigwait(&mask, &got));
  say("got %d", got);
  const timespec soon = {0, 1000};
  errno = 0;
  const int late = sigtimedwait(&mask, &info, &soon);
  say("sigtimedwait: %d %d", late, errno);
  const int descriptor = signalfd(-1, &mask, SFD_NONBLOCK);
  pollfd waiting = {descriptor, POLLIN, 0};
  say("poll: %d", poll(&waiting, 1, 0));
  kill(getpid(), SIGSEGV);
  say("poll: %d", poll(&waiting, 1, 1000));
  sigprocmask(SIG_UNBLOCK, &mask, nullptr);
  say("poll: %d", poll(&waiting, 1, 0));
  return 0;
}

SCENARIO(sentWhileWaiting) {
  prepareForeign();
  memory = allocate();
  install(&openingHandler, SA_RESTART, none());
  const sigset_t all = everything();
  const sigset_t nothing = none();
  sigprocmask(SIG_BLOCK, &all, nullptr);
  const timespec soon = {2, 0};
  const int epoll = epoll_create1(0);
  epoll_event event = {};
  const auto round = [&](const char* name, auto wait) {
    raise(SIGSEGV);
    errno = 0;
    const int result = wait();
    say("%s: %d %d", name, result, errno);
    sayMask(name);
    touchMemory();
  };
  round("sigsuspend", [&] { return sigsuspend(&nothing); });
  round("ppoll", [&] { return ppoll(nullptr, 0, &soon, &nothing); });
  round("pselect", [&] { return pselect(0, nullptr, nullptr, nullptr, &soon, &nothing); });
  round("epoll_pwait", [&] { return epoll_pwait(epoll, &event, 1, 2000, &nothing); });
  round("epoll_pwait2", [&] { return epoll_pwait2(epoll, &event, 1, &soon, &nothing); });
  const timespec now = {};
  say("ppoll: %d", ppoll(nullptr, 0, &now, &all));
  say("ppoll without a mask: %d", ppoll(nullptr, 0, &now, nullptr));
  return 0;
}

// Whether a thread of this process sleeps in the kernel.
bool isAsleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name = line.rfind(')');
  return name != std::string::npos && line.at(name + 2) == 'S';
}

// From another thread, once this one sleeps in the wait.
SCENARIO(sentDuringWaits) {
  prepareForeign();
  memory = allocate();
  install(&openingHandler, SA_RESTART, none());
  const sigset_t all = everything();
  const sigset_t nothing = none();
  const timespec late = {60, 0};
  const int epoll = epoll_create1(0);
  epoll_event event = {};
  const auto round = [&](const char* name, auto wait) {
    const pthread_t waiting = pthread_self();
    const pid_t id = gettid();
    std::atomic<bool> waits{false};
    std::thread sender([&] {
      while (!waits || !isAsleep(id)) std::this_thread::yield();
      pthread_kill(waiting, SIGSEGV);
    });
    errno = 0;
    waits = true;
    const int result = wait();
    const int error = errno;
    sender.join();
    say("%s: %d %d", name, result, error);
    sayMask(name);
    touchMemory();
  };
  for (const sigset_t* own : {&all, &nothing}) {
    sigprocmask(SIG_SETMASK, own, nullptr);
    round("sigsuspend", [&] { return sigsuspend(&nothing); });
    round("ppoll", [&] { return ppoll(nullptr, 0, &late, &nothing); });
    round("pselect", [&] { return pselect(0, nullptr, nullptr, nullptr, &late, &nothing); });
    round("epoll_pwait", [&] { return epoll_pwait(epoll, &event, 1, 60000, &nothing); });
    round("epoll_pwait2", [&] { return epoll_pwait2(epoll, &event, 1, &late, &nothing); });
  }
  return 0;
}

SCENARIO(oldMasks) {
  prepareForeign();
  memory = allocate();
  install(&openingHandler, 0, none());
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const int segv = 1 << (SIGSEGV - 1);
  say("sigblock: %x", sigblock(segv));
  sayMask("sigblock");
  touchMemory();
  // Not by its name, at which the linker warns.
  say("siggetmask: %x", reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "siggetmask"))());
  say("sigsetmask: %x", sigsetmask(1 << (SIGUSR1 - 1)));
  say("sigsetmask: %x", sigsetmask(-1));
  touchMemory();
  sayMask("all");
  sigsetmask(0);
  sighold(SIGSEGV);
  sayMask("sighold");
  touchMemory();
  raise(SIGSEGV);
  say("sigrelse");
  sigrelse(SIGSEGV);
  sayMask("sigrelse");
  sighold(SIGSEGV);
  raise(SIGSEGV);
  say("sigpause: %d", __sigpause(0, 0));
  raise(SIGSEGV);
  say("sigpause: %d", __sigpause(SIGSEGV, 1));
  sayMask("sigpause");
#pragma GCC diagnostic pop
  return 0;
}

// Handlers of other signals, which block everything meanwhile, touch memory as well.
SCENARIO(otherHandlers) {
  prepareForeign();
  memory = allocate();
  const auto handler = [](int signal, siginfo_t*, void*) {
    say("signal %d", signal);
    sayMask("other handler");
    touchMemory();
  };
  install(handler, 0, everything(), SIGUSR1);
  install(handler, SA_NODEFER, only(SIGSEGV), SIGUSR2);
  struct sigaction told;
  sigaction(SIGUSR1, nullptr, &told);
  say("told:%s", named(told.sa_mask).c_str());
  raise(SIGUSR1);
  raise(SIGUSR2);
  sayMask("after");
  install(&openingHandler, 0, none());
  install(
      [](int, siginfo_t*, void*) {
        raise(SIGSEGV);
        touchMemory();
        say("still in it");
      },
      0, everything(), SIGUSR1);
  raise(SIGUSR1);
  touchForeign();
  return 0;
}

SCENARIO(busErrors) {
  memory = allocate();
  char name[] = "/tmp/subject.XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  (void)!ftruncate(file, kPage);
  auto* const mapped = static_cast<unsigned char*>(
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  (void)!ftruncate(file, 0);
  foreign = mapped;
  install(&jumpingHandler, 0, everything(), SIGBUS);
  struct sigaction told;
  sigaction(SIGBUS, nullptr, &told);
  say("told: %d%s", told.sa_sigaction == &jumpingHandler, named(told.sa_mask).c_str());
  for (int round = 0; round < 2; ++round) {
    const bool jumped = isJumpedOutOf([] {
      close(memory);
      write(foreign + 5, 1);
    });
    say("jumped: %d", jumped);
    sayMask("jumped");
    touchMemory();
  }
  return 0;
}

// ---- Stacks

stack_t alternate = {};

void makeAlternateStack(std::size_t bytes) {
  // With inaccessible pages before and after it.
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  auto* const begin = static_cast<unsigned char*>(
      mmap(nullptr, rounded + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(begin + kPage, rounded, PROT_READ | PROT_WRITE);
  alternate.ss_sp = begin + kPage;
  alternate.ss_size = bytes;
  sigaltstack(&alternate, nullptr);
}

bool onAlternateStack() {
  const char here = 0;
  const auto offset = &here - static_cast<char*>(alternate.ss_sp);
  return offset >= 0 && static_cast<std::size_t>(offset) < alternate.ss_size;
}

[[gnu::noinline]] int overflow(int depth) {
  volatile unsigned char frame[1024];
  frame[0] = static_cast<unsigned char>(depth);
  return depth < 1 << 30 ? overflow(depth + 1) + frame[0] : 0;
}

void stackHandler(int, siginfo_t*, void*) {
  stack_t now;
  sigaltstack(nullptr, &now);
  // No formatted output here: the stack is as small as it may be.
  const char text[] = "handler\nhandler on the alternate stack\n";
  (void)!::write(1, onAlternateStack() && (now.ss_flags & SS_ONSTACK) != 0 ? text + 8 : text,
                 onAlternateStack() ? sizeof text - 9 : 8);
  siglongjmp(jump, 1);
}

// Shared memory is touched where there is hardly an alternate stack.
SCENARIO(smallAlternateStack) {
  prepareForeign();
  makeAlternateStack(static_cast<std::size_t>(sysconf(_SC_MINSIGSTKSZ)) + 4096);
  install(&stackHandler, SA_ONSTACK, none());
  memory = allocate();
  for (int round = 0; round < 3; ++round) {
    touchMemory();
    (void)isJumpedOutOf(&touchForeign);
    stack_t now;
    sigaltstack(nullptr, &now);
    say("stack: %d %x", now.ss_sp == alternate.ss_sp && now.ss_size == alternate.ss_size,
        now.ss_flags);
  }
  return 0;
}

SCENARIO(overflowedStack) {
  prepareForeign();
  makeAlternateStack(64 * kPage);
  memory = allocate();
  install(&stackHandler, SA_ONSTACK, none());
  for (int round = 0; round < 3; ++round) {
    (void)isJumpedOutOf([] { (void)overflow(0); });
    touchMemory();
  }
  return 0;
}

// A handler that runs on the alternate stack touches memory there.
SCENARIO(touchesOnTheAlternateStack) {
  prepareForeign();
  makeAlternateStack(64 * kPage);
  memory = allocate();
  install(
      [](int, siginfo_t*, void*) {
        say("%d", onAlternateStack());
        touchMemory();
      },
      SA_ONSTACK, none(), SIGUSR1);
  install(&openingHandler, SA_ONSTACK, none());
  raise(SIGUSR1);
  touchForeign();
  raise(SIGUSR1);
  return 0;
}

// ---- Threads that libc makes for events; those of timers have every signal blocked

SCENARIO(timerThreads) {
  memory = allocate();
  static std::atomic<int> expirations{0};
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD;
  event.sigev_notify_function = [](sigval value) {
    auto* const at = static_cast<unsigned char*>(value.sival_ptr);
    close(memory);
    write(at, static_cast<unsigned char>(read(at) + 1));
    if (++expirations == 1) sayMask("the timer's thread");
  };
  const auto expire = [&](unsigned char* at) {
    event.sigev_value.sival_ptr = at;
    timer_t timer = {};
    say("made: %d", timer_create(CLOCK_MONOTONIC, &event, &timer));
    for (int round = 0; round < 5; ++round) {
      const int before = expirations;
      const itimerspec soon = {.it_interval = {}, .it_value = {0, 1'000'000}};
      timer_settime(timer, 0, &soon, nullptr);
      while (expirations == before) usleep(1000);
    }
    timer_delete(timer);
    say("expired: %d", read(at));
  };
  expire(memory + kPage);
  expire(memory + 2 * kPage);
  return 0;
}

SCENARIO(queueThreads) {
  memory = allocate();
  static std::atomic<int> messages{0};
  const std::string name = "/gmac_subject_" + std::to_string(getpid());
  mq_attr limits = {};
  limits.mq_maxmsg = 2;
  limits.mq_msgsize = 8;
  const mqd_t queue = mq_open(name.c_str(), O_RDWR | O_CREAT, 0600, &limits);
  mq_unlink(name.c_str());
  auto* const event = reinterpret_cast<sigevent*>(memory + 2 * kPage);
  event->sigev_notify = SIGEV_THREAD;
  event->sigev_notify_function = [](sigval value) {
    auto* const at = static_cast<unsigned char*>(value.sival_ptr);
    write(at, static_cast<unsigned char>(read(at) + 1));
    sayMask("the queue's thread");
    ++messages;
  };
  event->sigev_value.sival_ptr = memory + kPage;
  for (int message = 1; message <= 2; ++message) {
    close(memory);
    say("asked: %d", mq_notify(queue, event));
    close(memory);
    const int sent = mq_send(queue, "1234567", 8, 0);
    while (messages < message) usleep(1000);
    say("sent: %d", sent);
    char text[8];
    unsigned priority = 0;
    say("%zd, %d", mq_receive(queue, text, sizeof text, &priority), read(memory + kPage));
  }
  say("no more: %d", mq_notify(queue, nullptr));
  return 0;
}

// ---- Storms

volatile sig_atomic_t ticks = 0;

// Handlers touch the memory while the program is in the middle of whatever it does with it.
int runAlarms(unsigned char* handlers) {
  static unsigned char* own;
  own = handlers;
  install(
      [](int, siginfo_t*, void*) {
        write(own, static_cast<unsigned char>(read(own) + 1));
        ticks = ticks + 1;
      },
      SA_RESTART, everything(), SIGALRM);
  itimerval often = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &often, nullptr);
  int wrong = 0;
  unsigned char calls = 0;
  while (ticks < 300) {
    close(memory);
    ++calls;
    wrong += read(memory) != calls;
    write(memory + kPage, calls);
    wrong += read(memory + kPage) != calls;
  }
  often = {};
  setitimer(ITIMER_REAL, &often, nullptr);
  say("wrong: %d", wrong);
  say("ticks: %d", read(own) == static_cast<unsigned char>(ticks));
  return 0;
}

SCENARIO(alarms) {
  memory = allocate();
  return runAlarms(memory + kBytes / 2);
}

SCENARIO(alarmsOnTheSameBlock) {
  memory = allocate();
  return runAlarms(memory + 8);
}

}  // namespace
