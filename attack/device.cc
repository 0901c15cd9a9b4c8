// SPDX-License-Identifier: Apache-2.0
//
// The device process stopped and killed in every state, kernels that fail, and threads that it
// cannot have.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "attack/subject.h"

namespace attack {
namespace {

constexpr std::size_t kWords = std::size_t{2} << 20;

std::uint32_t* words = nullptr;  // current on the accelerator alone
std::uint32_t* dirty = nullptr;  // on the CPU

// Puts the runtime into a state.
struct State {
  const char* name;
  void (*enter)();
};
const State kStates[] = {
    {"idle", [] {}},
    {"in a call", [] { sleepOn(words, 400); }},
    {"after many calls",
     [] {
       for (int i = 0; i < 50; ++i) add(words, kWords, 0);
     }},
};

// The program's next steps. Its results are right, or it is told.
struct Next {
  const char* name;
  void (*run)(bool isLost);
};
void requireLost(adsmError_t error, const char* what) {
  require(error == adsmErrorAcceleratorLost || error == adsmErrorKernel,
          "{} of a lost accelerator: {}: {}", what, adsmErrorName(error), adsmLastErrorString());
  require(*adsmLastErrorString() != '\0', "{} failed without a text", what);
}
const Next kNexts[] = {
    {"sync",
     [](bool isLost) {
       const adsmError_t error = adsmSync();
       // Nothing may have been under way.
       if (!isLost) check(error, "adsmSync");
     }},
    {"call",
     [](bool isLost) {
       adsmError_t error = tryAdd(words, kWords, 0);
       if (error == adsmSuccess) error = adsmSync();
       if (isLost) requireLost(error, "a call");
       if (!isLost) check(error, "a call");
     }},
    {"alloc",
     [](bool isLost) {
       for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{100}}) {
         auto* const more = static_cast<char*>(adsmAlloc(bytes));
         if (isLost) {
           require(more == nullptr, "adsmAlloc({}) gives a pointer", bytes);
           requireLost(adsmLastError(), "adsmAlloc");
         } else {
           require(more != nullptr, "adsmAlloc: {}", adsmLastErrorString());
           more[0] = 1;
         }
       }
     }},
    {"read what the CPU has",
     [](bool) { require(dirty[5] == 77, "the CPU's own data is {}", dirty[5]); }},
    {"read what the device has", [](bool) { require(words[5] == 4, "word 5 is {}", words[5]); }},
    {"write to a file",
     [](bool isLost) {
       std::FILE* const file = std::tmpfile();
       const bool all = std::fwrite(words, 4, kWords, file) == kWords && std::fflush(file) == 0;
       require(all || isLost, "fwrite: {}", std::strerror(errno));
     }},
    {"free",
     [](bool) {
       (void)adsmFree(words);
       (void)adsmFree(dirty);
     }},
    {"exit", [](bool) { std::exit(0); }},
};

void prepare() {
  words = allocate(kWords);
  dirty = allocate(kWords);
  auto* const small = static_cast<char*>(adsmAlloc(100));
  require(small != nullptr, "adsmAlloc");
  small[0] = 1;
  for (std::size_t i = 0; i < kWords; ++i) words[i] = 3;
  add(words, kWords, 1);
  sync();
  dirty[5] = 77;
}

void kill(const State& state, const Next& next) {
  prepare();
  const pid_t device = devicePid();
  require(device > 0, "the device process is not found");
  state.enter();
  require(::kill(device, SIGKILL) == 0, "kill: {}", std::strerror(errno));
  require(waitUntil([] { return devicePid() == 0; }, 5), "it does not end");
  next.run(true);
}

void stop(const State& state, const Next& next) {
  prepare();
  const pid_t device = devicePid();
  require(device > 0, "the device process is not found");
  state.enter();
  require(::kill(device, SIGSTOP) == 0, "kill: {}", std::strerror(errno));
  // A process, since the next may be this one's end.
  const pid_t waker = ::fork();
  if (waker == 0) {
    pause(0.5);
    ::kill(device, SIGCONT);
    ::_exit(0);
  }
  next.run(false);
  ::waitpid(waker, nullptr, 0);
  work();
}

std::vector<Attack> losses() {
  std::vector<Attack> attacks;
  for (const State& state : kStates) {
    for (const Next& next : kNexts) {
      attacks.push_back({fmt::format("device/killed {}, then {}", state.name, next.name),
                         [&] { kill(state, next); }, 15, Ending::kOrWithMessage});
      attacks.push_back({fmt::format("device/stopped {}, then {}", state.name, next.name),
                         [&] { stop(state, next); }, 20});
    }
  }
  return attacks;
}
const Registration kLosses(losses());

// ---- Kernels that fail

const Registration kKernels({
    {"device/a kernel throws",
     [] {
       prepare();
       const adsmError_t error = runKernel("thrower", [](const adsmThreadBlock_t*, void**) {
         throw std::runtime_error("no more");
       });
       require(error == adsmErrorKernel, "{}: {}", adsmErrorName(error), adsmLastErrorString());
       const std::string text = adsmLastErrorString();
       require(
           text.find("thrower") != std::string::npos && text.find("no more") != std::string::npos,
           "the text is: {}", text);
       require(words[5] == 4, "the objects are lost");
       work();
     }},
    {"device/a kernel throws a number",
     [] {
       prepare();
       const adsmError_t error =
           runKernel("thrower", [](const adsmThreadBlock_t*, void**) { throw 5; });
       require(error == adsmErrorKernel, "{}: {}", adsmErrorName(error), adsmLastErrorString());
       require(words[5] == 4, "the objects are lost");
       work();
     }},
    {"device/a kernel crashes",
     [] {
       prepare();
       const adsmError_t error = runKernel(
           "crasher",
           [](const adsmThreadBlock_t*, void**) {
             static volatile std::uintptr_t nowhere = 64;
             *reinterpret_cast<volatile int*>(nowhere) = 1;
           },
           words);
       requireLost(error, "the kernel");
       require(std::string(adsmLastErrorString()).find("crasher") != std::string::npos,
               "the text is: {}", adsmLastErrorString());
       require(adsmAlloc(100) == nullptr && adsmAlloc(1 << 20) == nullptr,
               "a lost accelerator gives memory");
       require(dirty[5] == 77, "the CPU's own data is gone");
     }},
    {"device/a kernel ends its process",
     [] {
       prepare();
       const adsmError_t error =
           runKernel("ender", [](const adsmThreadBlock_t*, void**) { ::_exit(3); });
       requireLost(error, "the kernel");
     }},
});

// ---- Faults beside a kernel that does not end

const Registration kFaults({"device/faults on others go on beside a kernel", [] {
                              prepare();
                              std::uint32_t* const other = allocate(kWords);
                              std::memset(other, 0, kWords * sizeof *other);
                              add(other, kWords, 5);
                              sync();
                              sleepOn(words, 4000);
                              std::thread waiter(
                                  [] { require(words[5] == 4, "word 5 is {}", words[5]); });
                              pause(0.1);
                              const double start = now();
                              for (std::size_t i = 0; i < kWords; i += 4096) {
                                require(other[i] == 5, "word {} is {}", i, other[i]);
                                other[i] = 6;
                              }
                              const double seconds = now() - start;
                              require(seconds < 2, "accesses to another object took {:.2f} s",
                                      seconds);
                              waiter.join();
                            }});

// ---- Threads that the device process cannot have

std::vector<Attack> starved() {
  std::vector<Attack> attacks;
  for (const rlim_t mebibytes : {60, 80, 100, 120, 140, 160, 200, 300}) {
    attacks.push_back({fmt::format("device/64 threads in {} MiB of addresses", mebibytes),
                       [mebibytes] {
                         ::setenv("GMAC_HOST_THREADS", "64", 1);
                         for (int i = 0; i < 4; ++i) {
                           const End end = inChild(
                               [mebibytes] {
                                 const rlimit limit = {mebibytes << 20, mebibytes << 20};
                                 ::setrlimit(RLIMIT_AS, &limit);
                                 std::string why;
                                 (void)workOrError(&why);
                               },
                               8);
                           const bool told = end.signal == SIGABRT &&
                                             end.output.find("gmac: ") != std::string::npos;
                           require(end.exitStatus == 0 || told, "{}", end.text());
                         }
                       },
                       60});
  }
  return attacks;
}
const Registration kStarved(starved());

}  // namespace
}  // namespace attack
