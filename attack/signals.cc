// SPDX-License-Identifier: Apache-2.0
//
// Storms of signals whose handlers touch objects, and faults on stacks that have little room.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "attack/subject.h"

namespace attack {
namespace {

constexpr std::size_t kWords = std::size_t{1} << 20;

std::uint32_t* worked = nullptr;   // that the program and kernels use
std::uint32_t* handled = nullptr;  // that the handlers use
std::atomic<std::uint32_t> signals{0};
void (*handle)(std::uint32_t number) = nullptr;

void onSignal(int) {
  const std::uint32_t number = signals++;
  if (handle != nullptr) handle(number);
}

void prepare() {
  worked = allocate(kWords);
  handled = allocate(kWords);
  std::memset(worked, 0, kWords * sizeof *worked);
  std::memset(handled, 0, kWords * sizeof *handled);
}

void storm(int flags) {
  struct sigaction action = {};
  action.sa_handler = &onSignal;
  action.sa_flags = flags;
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval often = {{0, 100}, {0, 100}};
  require(::setitimer(ITIMER_REAL, &often, nullptr) == 0, "setitimer");
}
void calm() {
  const itimerval never = {};
  ::setitimer(ITIMER_REAL, &never, nullptr);
}

// Calls, reads and I/O of the program under the storm; what the handlers have added is all there.
void workInTheStorm(double seconds) {
  std::uint32_t rounds = 0;
  std::FILE* const file = std::tmpfile();
  for (const double end = now() + seconds; now() < end;) {
    add(worked, kWords, 1);
    ++rounds;
    for (std::size_t i = 0; i < kWords; i += 4096) {
      require(worked[i] == rounds, "word {} is {}, not {}", i, worked[i], rounds);
    }
    std::rewind(file);
    require(std::fwrite(worked, 4, 50000, file) == 50000, "fwrite");
    std::rewind(file);
    require(std::fread(worked, 4, 50000, file) == 50000, "fread");
    auto* const more = static_cast<char*>(adsmAlloc(300000));
    require(more != nullptr, "adsmAlloc: {}", adsmLastErrorString());
    more[12345] = 1;
    check(adsmFree(more), "adsmFree");
  }
  calm();
}

void requireHandled() {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kWords; ++i) sum += handled[i];
  require(sum == signals, "handlers added {}, and {} is there", signals.load(), sum);
}

const Registration kStorms({
    {"signals/storm, handlers do nothing",
     [] {
       prepare();
       storm(SA_RESTART);
       workInTheStorm(4);
     },
     40},
    {"signals/storm, handlers touch another object",
     [] {
       prepare();
       handle = [](std::uint32_t number) {
         __atomic_fetch_add(&handled[number * 977 % kWords], 1, __ATOMIC_RELAXED);
       };
       storm(SA_RESTART);
       workInTheStorm(4);
       requireHandled();
     },
     40},
    {"signals/storm, handlers touch the same object",
     [] {
       prepare();
       handle = [](std::uint32_t number) {
         __atomic_fetch_add(&worked[number * 977 % kWords], 0, __ATOMIC_RELAXED);
       };
       storm(SA_RESTART);
       workInTheStorm(4);
     },
     40},
    {"signals/storm on an alternate stack",
     [] {
       prepare();
       handle = [](std::uint32_t number) {
         __atomic_fetch_add(&handled[number * 977 % kWords], 1, __ATOMIC_RELAXED);
       };
       const stack_t stack = {std::malloc(65536), 0, 65536};
       ::sigaltstack(&stack, nullptr);
       storm(SA_RESTART | SA_ONSTACK);
       workInTheStorm(4);
       requireHandled();
     },
     40},
    {"signals/storm on threads",
     [] {
       prepare();
       struct sigaction action = {};
       action.sa_handler = &onSignal;
       action.sa_flags = SA_RESTART;
       ::sigaction(SIGUSR1, &action, nullptr);
       handle = [](std::uint32_t number) {
         __atomic_fetch_add(&handled[number * 977 % kWords], 1, __ATOMIC_RELAXED);
       };
       std::atomic<bool> stop{false};
       std::vector<std::thread> threads;
       for (std::size_t id = 0; id < 4; ++id) {
         threads.emplace_back([&stop, id] {
           while (!stop) {
             for (std::size_t i = id; i < kWords; i += 4096) {
               __atomic_fetch_add(&worked[i], 1, __ATOMIC_RELAXED);
             }
           }
         });
       }
       for (const double end = now() + 4; now() < end;) {
         add(worked, kWords, 1);
         for (int i = 0; i < 100; ++i) {
           ::pthread_kill(threads[static_cast<std::size_t>(i) % 4].native_handle(), SIGUSR1);
           pause(0.00001);
         }
       }
       stop = true;
       for (std::thread& thread : threads) thread.join();
       sync();
       requireHandled();
     },
     60},
});

// ---- A program's own faults

sigjmp_buf back;
void* volatile faultAddress = nullptr;

const Registration kOwnFaults({"signals/own faults reach the program's handler", [] {
                                 prepare();
                                 struct sigaction action = {};
                                 action.sa_sigaction = [](int, siginfo_t* info, void*) {
                                   faultAddress = info->si_addr;
                                   ::siglongjmp(back, 1);
                                 };
                                 action.sa_flags = SA_SIGINFO;
                                 ::sigaction(SIGSEGV, &action, nullptr);
                                 for (std::uint32_t round = 0; round < 200; ++round) {
                                   add(worked, kWords, 1);
                                   if (::sigsetjmp(back, 1) == 0) {
                                     static volatile std::uintptr_t nowhere = 64;
                                     *reinterpret_cast<volatile int*>(nowhere) = 1;
                                     endFailed("the fault went unseen");
                                   }
                                   require(reinterpret_cast<std::uintptr_t>(faultAddress) == 64,
                                           "the fault's address is {}",
                                           static_cast<void*>(faultAddress));
                                   require(worked[round] == round + 1, "word {} is {}", round,
                                           worked[round]);
                                 }
                               }});

// ---- Stacks

ucontext_t here;
ucontext_t there;

void touchEverything() {
  for (std::size_t i = 0; i < kWords; i += 4096) ++worked[i];
}

// Touches from a coroutine with that much stack, whose guard ends the process where it overflows.
void touchFromCoroutine(std::size_t stackBytes) {
  prepare();
  constexpr std::size_t kGuard = 65536;
  char* const memory = static_cast<char*>(
      ::mmap(nullptr, stackBytes + kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::mprotect(memory + kGuard, stackBytes, PROT_READ | PROT_WRITE);
  for (std::uint32_t round = 1; round <= 3; ++round) {
    add(worked, kWords, 1);
    ::getcontext(&there);
    there.uc_stack.ss_sp = memory + kGuard;
    there.uc_stack.ss_size = stackBytes;
    there.uc_link = &here;
    ::makecontext(&there, &touchEverything, 0);
    ::swapcontext(&here, &there);
    require(worked[4096] == 2 * round, "word 4096 is {}, not {}", worked[4096], 2 * round);
  }
}

std::vector<Attack> stacks() {
  std::vector<Attack> attacks;
  for (const std::size_t kib : {12, 16, 20, 32}) {
    attacks.push_back(
        {fmt::format("stacks/coroutine of {} KiB", kib), [kib] { touchFromCoroutine(kib << 10); }});
  }
  // As Go has it: small stacks for its code, and 32 KiB where signals are handled.
  attacks.push_back({"stacks/coroutine of 4 KiB, alternate stack of 32", [] {
                       const stack_t stack = {std::malloc(32768), 0, 32768};
                       ::sigaltstack(&stack, nullptr);
                       struct sigaction action = {};
                       action.sa_sigaction = [](int, siginfo_t*, void*) {
                         endFailed("the program's handler was asked");
                       };
                       action.sa_flags = SA_SIGINFO | SA_ONSTACK;
                       ::sigaction(SIGSEGV, &action, nullptr);
                       touchFromCoroutine(4096);
                     }});
  attacks.push_back({"stacks/threads of 24 KiB", [] {
                       prepare();
                       pthread_attr_t attributes;
                       ::pthread_attr_init(&attributes);
                       require(::pthread_attr_setstacksize(&attributes, 24576) == 0,
                               "pthread_attr_setstacksize");
                       for (int round = 0; round < 24; ++round) {
                         add(worked, kWords, 1);
                         pthread_t thread;
                         require(::pthread_create(
                                     &thread, &attributes,
                                     [](void*) -> void* {
                                       touchEverything();
                                       return nullptr;
                                     },
                                     nullptr) == 0,
                                 "pthread_create");
                         ::pthread_join(thread, nullptr);
                       }
                       require(worked[4096] == 48, "word 4096 is {}, not 48", worked[4096]);
                     }});
  return attacks;
}
const Registration kStacks(stacks());

}  // namespace
}  // namespace attack
