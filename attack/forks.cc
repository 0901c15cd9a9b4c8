// SPDX-License-Identifier: Apache-2.0
//
// New processes by every way there is, in every state of the runtime: the child goes on without
// shared objects, what it starts goes on as if there were no library, and the parent has its data.
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "attack/subject.h"
#include "gmac/api/adsm_datatype.h"

namespace attack {
namespace {

constexpr std::size_t kWords = std::size_t{1} << 20;

// The work of a child that has not called exec: memory, streams, types, threads of its own.
[[noreturn]] void liveAsChild() {
  for (int i = 0; i < 100; ++i) std::free(std::malloc(static_cast<std::size_t>(i) * 1000 + 1));
  adsmType_t type = nullptr;
  if (adsmTypeVector(10, 1, 2, ADSM_TYPE_8, &type) != adsmSuccess ||
      adsmTypeCommit(type) != adsmSuccess || adsmTypeFree(type) != adsmSuccess) {
    ::_exit(3);
  }
  std::thread([] { std::free(std::malloc(100)); }).join();
  ::_exit(0);
}

// One child; true: it ended well. At most 5 s.
bool endsWell(pid_t child) {
  int status = 0;
  const bool ended = waitUntil([&] { return ::waitpid(child, &status, WNOHANG) == child; }, 5);
  if (!ended) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Way {
  const char* name;
  bool (*make)();
  bool inHandlers;  // whether a signal handler may do it
};

const Way kWays[] = {
    {"fork",
     [] {
       const pid_t child = ::fork();
       if (child == 0) liveAsChild();
       return child > 0 && endsWell(child);
     },
     false},
    {"fork and exec",
     [] {
       const pid_t child = ::fork();
       if (child == 0) {
         ::execl("/bin/true", "true", nullptr);
         ::_exit(9);
       }
       return child > 0 && endsWell(child);
     },
     true},
    {"_Fork and exec",
     [] {
       const pid_t child = ::_Fork();
       if (child == 0) {
         ::execl("/bin/true", "true", nullptr);
         ::_exit(9);
       }
       return child > 0 && endsWell(child);
     },
     true},
    {"vfork",
     [] {
       const pid_t child = ::vfork();
       if (child == 0) {
         ::execl("/bin/true", "true", nullptr);
         ::_exit(9);
       }
       return child > 0 && endsWell(child);
     },
     true},
    {"posix_spawn",
     [] {
       pid_t child = 0;
       char* const arguments[] = {const_cast<char*>("true"), nullptr};
       return ::posix_spawn(&child, "/bin/true", nullptr, nullptr, arguments, environ) == 0 &&
              endsWell(child);
     },
     false},
    {"clone",
     [] {
       const auto child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
       if (child == 0) {
         ::execl("/bin/true", "true", nullptr);
         ::_exit(9);
       }
       return child > 0 && endsWell(child);
     },
     true},
    {"system", [] { return std::system("exec true") == 0; }, false},
    {"popen",
     [] {
       std::FILE* const stream = ::popen("echo here", "r");
       char line[16] = "";
       const bool read = stream != nullptr && std::fgets(line, sizeof line, stream) != nullptr;
       return stream != nullptr && ::pclose(stream) == 0 && read &&
              std::strcmp(line, "here\n") == 0;
     },
     false},
    {"grandchild",
     [] {
       const pid_t child = ::fork();
       if (child == 0) {
         const pid_t grandchild = ::fork();
         if (grandchild == 0) liveAsChild();
         ::_exit(grandchild > 0 && endsWell(grandchild) ? 0 : 4);
       }
       return child > 0 && endsWell(child);
     },
     false},
    {"daemon",
     [] {
       const pid_t child = ::fork();
       if (child == 0) ::_exit(::daemon(1, 1) == 0 ? 0 : 5);
       return child > 0 && endsWell(child);
     },
     false},
};

const Way* current = nullptr;
std::atomic<int> handled{0};

void requireWell(const Way& way, int times) {
  for (int i = 0; i < times; ++i)
    require(way.make(), "{}: its child number {} did not end well", way.name, i);
}

std::uint32_t* prepared() {
  std::uint32_t* const words = allocate(kWords);
  std::memset(words, 0, kWords * sizeof *words);
  add(words, kWords, 1);
  sync();
  words[0] = 1;
  return words;
}

const struct {
  const char* name;
  void (*run)(const Way& way);
  bool handlers;
} kStates[] = {
    {"before the start",
     [](const Way& way) {
       requireWell(way, 3);
       work();
       requireWell(way, 1);
     },
     false},
    {"after a type",
     [](const Way& way) {
       adsmType_t type = nullptr;
       check(adsmTypeVector(10, 1, 2, ADSM_TYPE_8, &type), "adsmTypeVector");
       requireWell(way, 2);
       work();
       requireWell(way, 2);
     },
     false},
    {"beside objects",
     [](const Way& way) {
       std::uint32_t* const words = prepared();
       requireWell(way, 5);
       add(words, kWords, 1);
       sync();
       require(words[0] == 2 && words[kWords - 1] == 2, "the parent's data has changed");
     },
     false},
    {"during a call",
     [](const Way& way) {
       std::uint32_t* const words = prepared();
       sleepOn(words, 300);
       requireWell(way, 3);
       require(words[5] == 1, "the parent's data has changed");
     },
     false},
    {"in a handler",
     [](const Way& way) {
       std::uint32_t* const words = prepared();
       current = &way;
       struct sigaction action = {};
       action.sa_handler = [](int) { handled += current->make() ? 1 : 1000; };
       action.sa_flags = SA_RESTART;
       ::sigaction(SIGUSR1, &action, nullptr);
       for (int i = 0; i < 5; ++i) {
         add(words, kWords, 1);
         ::raise(SIGUSR1);
         require(words[100] == static_cast<std::uint32_t>(i + 2), "the parent's data has changed");
       }
       require(handled == 5, "a child of the handler did not end well ({})", handled.load());
     },
     true},
    {"beside faults",
     [](const Way& way) {
       std::uint32_t* const words = prepared();
       std::atomic<bool> stop{false};
       std::thread faults([&] {
         while (!stop) {
           for (std::size_t i = 0; i < kWords; i += 16384) {
             __atomic_fetch_add(&words[i + 1], 1, __ATOMIC_RELAXED);
           }
         }
       });
       for (int i = 0; i < 5; ++i) {
         add(words, kWords, 1);
         require(way.make(), "{}: its child number {} did not end well", way.name, i);
       }
       stop = true;
       faults.join();
       sync();
       require(words[0] == 6, "the parent's data has changed: {}", words[0]);
     },
     false},
};

std::vector<Attack> forks() {
  std::vector<Attack> attacks;
  for (const auto& state : kStates) {
    for (const Way& way : kWays) {
      if (state.handlers && !way.inHandlers) continue;
      attacks.push_back({fmt::format("fork/{}, {}", way.name, state.name),
                         [&state, &way] { state.run(way); }, 25});
    }
  }
  return attacks;
}
const Registration kForks(forks());

// This process becomes another program; the device process of the one before ends.
[[noreturn]] void becomeAnother() {
  ::execl("/proc/self/exe", "subject", "fork/.work", nullptr);
  endFailed(fmt::format("execl: {}", std::strerror(errno)));
}

const Registration kExecs({
    {"fork/.work", &work},
    {"fork/exec before the start", &becomeAnother},
    {"fork/exec beside objects",
     [] {
       (void)prepared();
       becomeAnother();
     }},
    {"fork/exec during a call",
     [] {
       sleepOn(prepared(), 300);
       becomeAnother();
     }},
    {"fork/exec in a handler",
     [] {
       std::uint32_t* const words = prepared();
       ::signal(SIGUSR1, [](int) { becomeAnother(); });
       add(words, kWords, 1);
       ::raise(SIGUSR1);
     }},
    {"fork/exec in another thread, beside faults",
     [] {
       static std::uint32_t* const kWordsOfAll = prepared();
       std::thread faults([] {
         for (;;) {
           for (std::size_t i = 0; i < kWords; i += 16384) ++kWordsOfAll[i];
           add(kWordsOfAll, kWords, 1);
         }
       });
       std::thread([] {
         pause(0.1);
         becomeAnother();
       }).join();
     }},
});

// A child that touches an object ends with a line that says why, however it was made.
constexpr int kChildWasKilled = 42;

void makeAndTouch(pid_t (*make)()) {
  std::uint32_t* const words = prepared();
  const pid_t child = make();
  if (child == 0) {
    *static_cast<volatile std::uint32_t*>(words) = 7;
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  require(words[0] == 1, "the parent's data has changed");
  ::_exit(WIFSIGNALED(status) ? kChildWasKilled : 0);
}

std::vector<Attack> touches() {
  const struct {
    const char* name;
    pid_t (*make)();
  } kinds[] = {
      {"fork", &::fork},
      {"_Fork", &::_Fork},
      {"clone", [] { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }},
  };
  std::vector<Attack> attacks;
  for (const auto& kind : kinds) {
    const std::string part = fmt::format("fork/.child of {} touches", kind.name);
    attacks.push_back({part, [make = kind.make] { makeAndTouch(make); }});
    attacks.push_back({fmt::format("fork/a child of {} touches", kind.name), [part] {
                         const End end = runProgram({"/proc/self/exe", part}, 15);
                         require(end.exitStatus == kChildWasKilled &&
                                     end.output.find("gmac: ") != std::string::npos &&
                                     end.output.find("fork") != std::string::npos,
                                 "{}", end.text());
                       }});
  }
  return attacks;
}
const Registration kTouches(touches());

// Its waits and its handler see no child but its own.
std::atomic<int> childSignals{0};
const Registration kForeignChild({"fork/no child of the library's is seen", [] {
                                    ::signal(SIGCHLD, [](int) { ++childSignals; });
                                    std::atomic<bool> stop{false};
                                    std::atomic<int> reaped{0};
                                    std::thread waiter([&] {
                                      while (!stop) {
                                        if (::waitpid(-1, nullptr, WNOHANG) > 0) ++reaped;
                                      }
                                    });
                                    work();
                                    pause(0.1);
                                    stop = true;
                                    waiter.join();
                                    require(childSignals == 0 && reaped == 0,
                                            "{} SIGCHLD, {} processes that it never made",
                                            childSignals.load(), reaped.load());
                                  }});

// As `while (wait(NULL) > 0)` in the first process of a container.
const Registration kOrphans({"fork/who gets orphans waits for all its children", [] {
                               const bool gets = ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
                               require(gets, "prctl: {}", std::strerror(errno));
                               work();
                               if (::fork() == 0) {
                                 (void)::fork();
                                 ::_exit(0);
                               }
                               int waited = 0;
                               while (::waitpid(-1, nullptr, 0) > 0) ++waited;
                               require(waited == 2, "{} children", waited);
                               work();
                             }});

}  // namespace
}  // namespace attack
