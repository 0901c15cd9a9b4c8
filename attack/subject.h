// SPDX-License-Identifier: Apache-2.0
//
// Helpers of the attacks. Each attack is a function that runs in a process of its own, which
// preloads the library as `gmac run` does; it returns where the library held.
#ifndef GMAC_ATTACK_SUBJECT_H_
#define GMAC_ATTACK_SUBJECT_H_

#include <fmt/core.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmac/api/adsm.h"

namespace attack {

// How an attack's process may end.
enum class Ending {
  kWell,           // by returning
  kOrWithMessage,  // or killed by itself, with a line of gmac's that says why
};

struct Attack {
  std::string name;  // class/what
  std::function<void()> run;
  int limitSeconds = 20;
  Ending ending = Ending::kWell;
};

// For namespace scope. Names are unique.
struct Registration {
  explicit Registration(Attack attack);
  explicit Registration(std::vector<Attack> attacks);
};
const std::vector<Attack>& all();

// How long an attack without an end of its own goes on (--seconds).
int wantedSeconds();

// Ends the process: the attack failed, or cannot be made here. One line says why.
[[noreturn]] void endFailed(const std::string& why);
[[noreturn]] void endSkipped(const std::string& why);

template <typename... Args>
void require(bool well, fmt::format_string<Args...> format, Args&&... args) {
  if (!well) endFailed(fmt::format(format, std::forward<Args>(args)...));
}
// That a call of the API succeeded.
void check(adsmError_t error, const char* what);

// ---- Objects and kernels of the host accelerator

std::uint32_t* allocate(std::size_t words);
// p[i] += by for `words` words; asynchronous.
void add(std::uint32_t* p, std::size_t words, std::uint32_t by);
adsmError_t tryAdd(std::uint32_t* p, std::size_t words, std::uint32_t by);
// A kernel that uses `p` and takes that long; asynchronous.
void sleepOn(std::uint32_t* p, unsigned milliseconds);
// A kernel of this function and no parameters that is called and waited for. It uses the object at
// `used`; NULL: it may use all.
adsmError_t runKernel(const char* name, adsmHostKernel_t kernel, const void* used = nullptr);
void sync();

// Allocates, writes, calls, reads and frees: what any program does. Ends the process where a result
// is wrong.
void work();
// The same for a process under some limit: where a call fails, it must be with a text, and true is
// returned no more.
bool workOrError(std::string* why);

// ---- Processes

// This process's device process, a child of whoever started the attacks; 0: there is none yet.
pid_t devicePid();
// All of them, where there are several devices, in the order of their numbers.
std::vector<pid_t> deviceProcesses();

struct End {
  int exitStatus = -1;
  int signal = 0;
  bool timedOut = false;
  std::string output;  // both streams
  std::string text() const;
};
// Runs a function in a child of fork, or a program, and waits for its end at most that long (it is
// killed then).
End inChild(const std::function<void()>& function, int seconds = 10);
End runProgram(const std::vector<std::string>& words, int seconds,
               const std::vector<std::string>& removed = {});
// The first of these in PATH; empty: none is installed.
std::string find(const std::string& program);
// What was built beside the attacks, and the library that they preload.
std::string besideMe(const std::string& name);
std::string libraryPath();

double now();
void pause(double seconds);
// Waits until that is true, at most that long.
bool waitUntil(const std::function<bool()>& isTrue, double seconds);
// Whether that thread of this process sleeps in the kernel.
bool sleeps(pid_t thread);
std::size_t countMappings();
std::size_t countDescriptors();
std::size_t countThreads();
std::size_t residentKiB();

}  // namespace attack

#endif  // GMAC_ATTACK_SUBJECT_H_
