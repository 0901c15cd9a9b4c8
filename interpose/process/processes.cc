// SPDX-License-Identifier: Apache-2.0
//
// Programs that are started with a path, arguments or an environment in shared memory. The kernel
// reads these strings itself and cannot fault on a closed block, so they are opened or copied
// first. Calls that involve no shared memory go to the real function at once.
//
//  - exec replaces this process, or is called in a child of vfork, which must not change its
//    parent's memory. So the strings are only touched, and touched again when another thread's
//    kernel call has closed them meanwhile.
//  - posix_spawn, system and popen return: they get copies. (But the process's own environment,
//    which system and popen hand on, is touched: a program may change its strings in place.)
//  - A child of fork has no shared objects; such a string gives EFAULT there, and a log line says
//    why.
//
// A program that is started while SIGSEGV is blocked starts with SIGSEGV blocked, although the
// kernel's mask has another signal's bit instead here (os/signal_mask.h).
//
// All functions are thread-safe. The exec functions are async-signal-safe.
#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "gmac/base/log.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/os/signal_mask.h"
#include "interpose/base/real.h"

namespace gmac::interpose {
namespace {

using Strings = char* const*;

constinit Real<int(const char*, Strings, Strings)> realExecve("execve");
constinit Real<int(const char*, Strings, Strings)> realExecvpe("execvpe");
constinit Real<int(int, Strings, Strings)> realFexecve("fexecve");
constinit Real<int(int, const char*, Strings, Strings, int)> realExecveat("execveat");
using Spawn = int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                  Strings, Strings);
constinit Real<Spawn> realPosixSpawn("posix_spawn");
constinit Real<Spawn> realPosixSpawnp("posix_spawnp");
constinit Real<int(const char*)> realSystem("system");
constinit Real<FILE*(const char*, const char*)> realPopen("popen");

[[gnu::constructor]] void prepareProcesses() {
  resolveAtLoad(realExecve, realExecvpe, realFexecve, realExecveat, realPosixSpawn, realPosixSpawnp,
                realSystem, realPopen);
}

using coherence::anythingShared;

bool isShared(const void* address, std::size_t bytes) noexcept {
  return address != nullptr && coherence::touchesShared(address, bytes);
}

// ---- Touching

// The arguments of one exec call. For the stack.
struct Given {
  const char* path;
  Strings arguments;
  Strings environment;
};

// Reads the shared part of a string, so that its blocks are open. True when some of it is shared. A
// string may continue past the end of an object, or begin before one, so the scan stops at its NUL.
bool touch(const char* string) noexcept {
  if (string == nullptr) return false;
  bool any = false;
  for (const volatile char* next = string;; ++next) {
    const bool atStart = next == string || reinterpret_cast<std::uintptr_t>(next) % 4096 == 0;
    if (atStart && isShared(const_cast<const char*>(next), 4096)) {
      any = true;
      if (coherence::memory().inChildOfFork()) return any;
    }
    if (*next == '\0') return any;
  }
}

bool touch(Strings strings) noexcept {
  if (strings == nullptr) return false;
  bool any = false;
  for (Strings next = strings;; ++next) {
    if (isShared(next, sizeof *next)) {
      any = true;
      if (coherence::memory().inChildOfFork()) return any;
    }
    if (*next == nullptr) return any;
    any = touch(*next) || any;
  }
}

bool touch(const Given& given) noexcept {
  const bool path = touch(given.path);
  const bool arguments = touch(given.arguments);
  const bool environment = touch(given.environment);
  return path || arguments || environment;
}

// Gives the thread the mask that a new program is to inherit, for its scope. No shared memory may
// be touched meanwhile. For the stack.
class InheritedMask {
 public:
  InheritedMask() noexcept : before_(os::threadMask()) {
    const os::KernelSet ofSegv = os::kernelBit(os::standIn());
    if ((before_ & ofSegv) == 0) return;
    changed_ = true;
    (void)os::setThreadMask((before_ & ~ofSegv) | os::kernelBit(SIGSEGV));
  }
  ~InheritedMask() {
    if (changed_) (void)os::setThreadMask(before_);
  }
  InheritedMask(const InheritedMask&) = delete;
  InheritedMask& operator=(const InheritedMask&) = delete;

 private:
  const os::KernelSet before_;
  bool changed_ = false;
};

template <typename Exec>
int execWith(const Given& given, Exec exec) {
  // Other threads may close the blocks again before the kernel has read them, but not forever.
  constexpr int kAttempts = 100;
  for (int attempt = 0;; ++attempt) {
    const bool shared = anythingShared() && touch(given);
    const int result = [&] {
      const InheritedMask mask;
      return exec();
    }();
    if (!shared || errno != EFAULT || attempt == kAttempts) return result;
    if (coherence::memory().inChildOfFork()) {
      log(LogLevel::kError,
          "a child of fork was to run a program with strings in a shared object, which the child "
          "does not have: copy them before the fork");
      errno = EFAULT;
      return result;
    }
  }
}

// The arguments of execl and its like, as an array.
template <typename Use>
int withArguments(const char* first, va_list& list, Use use) {
  va_list counting;
  va_copy(counting, list);
  std::size_t count = 1;
  if (first != nullptr) {
    while (va_arg(counting, char*) != nullptr) ++count;
    ++count;
  }
  va_end(counting);
  // On the stack, as libc does: a child of vfork must not allocate.
  auto** const arguments = static_cast<char**>(__builtin_alloca(count * sizeof(char*)));
  arguments[0] = const_cast<char*>(first);
  for (std::size_t i = 1; i < count; ++i) arguments[i] = va_arg(list, char*);
  return use(arguments);
}

// ---- Copies

// An array of strings: a copy in private memory when any of it is shared, else the array itself.
class PrivateStrings {
 public:
  explicit PrivateStrings(Strings strings) : strings_(strings) {
    if (strings == nullptr) return;
    bool any = false;
    for (Strings next = strings;; ++next) {
      any = any || isShared(next, sizeof *next);
      if (*next == nullptr) break;
      copies_.emplace_back(*next);
      any = any || isShared(*next, copies_.back().size() + 1);
    }
    if (!any) return;
    for (std::string& copy : copies_) pointers_.push_back(copy.data());
    pointers_.push_back(nullptr);
    strings_ = pointers_.data();
  }
  PrivateStrings(const PrivateStrings&) = delete;
  PrivateStrings& operator=(const PrivateStrings&) = delete;
  Strings get() const { return strings_; }

 private:
  Strings strings_;
  std::vector<std::string> copies_;
  std::vector<char*> pointers_;
};

// A private copy of what may be in shared memory, or NULL. For the stack.
template <typename Value>
class CopyOf {
 public:
  explicit CopyOf(const Value* given)
      : given_(given), copied_(isShared(given, sizeof *given)), copy_(copied_ ? *given : Value{}) {}
  CopyOf(const CopyOf&) = delete;
  CopyOf& operator=(const CopyOf&) = delete;
  const Value* get() const { return copied_ ? &copy_ : given_; }

 private:
  const Value* const given_;
  const bool copied_;
  const Value copy_;
};

// (libc's child reads its arguments in this process's memory with SIGSEGV blocked.)
int spawn(Real<Spawn>& real, pid_t* child, const char* path,
          const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
          Strings arguments, Strings environment) {
  pid_t id = 0;
  int result = 0;
  if (!anythingShared()) {
    const InheritedMask mask;
    return real(child, path, actions, attributes, arguments, environment);
  }
  try {
    const std::string pathCopy(path);
    const PrivateStrings argumentCopies(arguments);
    const PrivateStrings environmentCopies(environment);
    const CopyOf actionsCopy(actions);
    const CopyOf attributesCopy(attributes);
    const InheritedMask mask;
    result = real(&id, pathCopy.c_str(), actionsCopy.get(), attributesCopy.get(),
                  argumentCopies.get(), environmentCopies.get());
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  if (result == 0 && child != nullptr) *child = id;
  return result;
}

// Calls a function with a private copy of a string where that is shared.
template <typename Call, typename Failure>
auto withCopy(const char* string, Failure failure, Call call) {
  if (string == nullptr || !anythingShared()) return call(string);
  try {
    const std::string copy(string);
    return call(copy.c_str());
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return failure;
  }
}

// Opens what is shared of the environment that a shell is about to get.
void touchEnvironment() noexcept {
  if (anythingShared()) (void)touch(environ);
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace processes = gmac::interpose;

extern "C" {

GMAC_INTERPOSED int execve(const char* path, char* const* arguments,
                           char* const* environment) noexcept {
  return processes::execWith({path, arguments, environment},
                             [&] { return processes::realExecve(path, arguments, environment); });
}

GMAC_INTERPOSED int execv(const char* path, char* const* arguments) noexcept {
  return execve(path, arguments, environ);
}

GMAC_INTERPOSED int execvpe(const char* file, char* const* arguments,
                            char* const* environment) noexcept {
  return processes::execWith({file, arguments, environment},
                             [&] { return processes::realExecvpe(file, arguments, environment); });
}

GMAC_INTERPOSED int execvp(const char* file, char* const* arguments) noexcept {
  return execvpe(file, arguments, environ);
}

GMAC_INTERPOSED int fexecve(int descriptor, char* const* arguments,
                            char* const* environment) noexcept {
  return processes::execWith({nullptr, arguments, environment}, [&] {
    return processes::realFexecve(descriptor, arguments, environment);
  });
}

GMAC_INTERPOSED int execveat(int folder, const char* path, char* const* arguments,
                             char* const* environment, int flags) noexcept {
  return processes::execWith({path, arguments, environment}, [&] {
    return processes::realExecveat(folder, path, arguments, environment, flags);
  });
}

GMAC_INTERPOSED int execl(const char* path, const char* first, ...) noexcept {
  va_list list;
  va_start(list, first);
  const int result = processes::withArguments(
      first, list, [&](char** arguments) { return execve(path, arguments, environ); });
  va_end(list);
  return result;
}

GMAC_INTERPOSED int execlp(const char* file, const char* first, ...) noexcept {
  va_list list;
  va_start(list, first);
  const int result = processes::withArguments(
      first, list, [&](char** arguments) { return execvpe(file, arguments, environ); });
  va_end(list);
  return result;
}

GMAC_INTERPOSED int execle(const char* path, const char* first, ...) noexcept {
  va_list list;
  va_start(list, first);
  const int result = processes::withArguments(first, list, [&](char** arguments) {
    return execve(path, arguments, va_arg(list, char* const*));
  });
  va_end(list);
  return result;
}

GMAC_INTERPOSED int posix_spawn(pid_t* child, const char* path,
                                const posix_spawn_file_actions_t* actions,
                                const posix_spawnattr_t* attributes, char* const* arguments,
                                char* const* environment) {
  return processes::spawn(processes::realPosixSpawn, child, path, actions, attributes, arguments,
                          environment);
}

GMAC_INTERPOSED int posix_spawnp(pid_t* child, const char* file,
                                 const posix_spawn_file_actions_t* actions,
                                 const posix_spawnattr_t* attributes, char* const* arguments,
                                 char* const* environment) {
  return processes::spawn(processes::realPosixSpawnp, child, file, actions, attributes, arguments,
                          environment);
}

GMAC_INTERPOSED int system(const char* command) {
  return processes::withCopy(command, -1, [](const char* c) {
    processes::touchEnvironment();
    return processes::realSystem(c);
  });
}

GMAC_INTERPOSED FILE* popen(const char* command, const char* mode) {
  return processes::withCopy(command, static_cast<FILE*>(nullptr), [&](const char* c) {
    return processes::withCopy(mode, static_cast<FILE*>(nullptr), [&](const char* m) {
      processes::touchEnvironment();
      return processes::realPopen(c, m);
    });
  });
}

}  // extern "C"
