// SPDX-License-Identifier: Apache-2.0
//
// Programs that this one starts, with strings that may be in shared memory.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/neighbours/subject.h"

namespace {

using subject::allocate;
using subject::close;
using subject::say;

unsigned char* memory = nullptr;

char* place(std::size_t offset, const char* text) {
  return std::strcpy(reinterpret_cast<char*>(memory + offset), text);
}

void sayEnd(const char* what, pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) say("%s: no child", what);
  say("%s: %s %d", what, WIFEXITED(status) ? "exit" : "signal",
      WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

// The parent's memory is as it was, and goes on being kept.
void sayMemory() {
  close(memory);
  memory[70000] = static_cast<unsigned char>(memory[70000] + 1);
  close(memory);
  say("memory: %d %d", memory[0], memory[70000]);
}

// "sh -c COMMAND", all of it in the memory, the array itself as well.
char** shell(const char* command) {
  auto** const arguments = reinterpret_cast<char**>(memory + 40960);
  arguments[0] = place(8192, "sh");
  arguments[1] = place(12288, "-c");
  arguments[2] = place(16384, command);
  arguments[3] = nullptr;
  return arguments;
}

char** environmentInMemory() {
  auto** const environment = reinterpret_cast<char**>(memory + 45056);
  environment[0] = place(20480, "NAME=value");
  environment[1] = nullptr;
  return environment;
}

SCENARIO(forks) {
  memory = allocate();
  for (int round = 0; round < 3; ++round) {
    close(memory);
    const pid_t child = fork();
    if (child == 0) {
      // As programs do before they start another one.
      for (int signal = 1; signal < 32; ++signal) (void)::signal(signal, SIG_DFL);
      sigset_t nothing;
      sigemptyset(&nothing);
      sigprocmask(SIG_SETMASK, &nothing, nullptr);
      execl("/bin/sh", "sh", "-c", "exit 7", static_cast<char*>(nullptr));
      _exit(99);
    }
    sayEnd("fork", child);
    sayMemory();
  }
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    volatile std::uintptr_t nowhere = 64;  // which the compiler does not know
    *reinterpret_cast<volatile int*>(nowhere) = 1;
    _exit(0);
  }
  sayEnd("fork", child);
  sayMemory();
  return 0;
}

SCENARIO(vforks) {
  memory = allocate();
  for (int round = 0; round < 3; ++round) {
    char** const arguments = shell("exit $((6 + 2))");
    char* const path = place(4096, "/bin/sh");
    close(memory);
    const pid_t child = vfork();
    if (child == 0) {
      execv(path, arguments);
      _exit(errno);
    }
    sayEnd("vfork", child);
    sayMemory();
  }
  return 0;
}

SCENARIO(spawns) {
  memory = allocate();
  char** const arguments = shell("test \"$NAME\" = value");
  char** const environment = environmentInMemory();
  char* const path = place(4096, "/bin/sh");
  close(memory);
  pid_t child = 0;
  say("posix_spawn: %d", posix_spawn(&child, path, nullptr, nullptr, arguments, environment));
  sayEnd("posix_spawn", child);
  close(memory);
  say("posix_spawnp: %d",
      posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments, environment));
  sayEnd("posix_spawnp", child);
  place(4096, "/nothing/there");
  close(memory);
  say("posix_spawn of nothing: %d",
      posix_spawn(&child, path, nullptr, nullptr, arguments, environment));
  sayMemory();
  return 0;
}

SCENARIO(commands) {
  memory = allocate();
  char* const command = place(4096, "exit 5");
  close(memory);
  say("system: %d", WEXITSTATUS(std::system(command)));
  place(4096, "echo out of a pipe");
  char* const mode = place(8192, "r");
  close(memory);
  FILE* const pipe = popen(command, mode);
  char line[64] = {};
  if (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) say("popen: %s", line);
  say("pclose: %d", pipe != nullptr ? pclose(pipe) : -1);
  say("shell: %d", std::system(nullptr) != 0);
  sayMemory();
  return 0;
}

// The program's own environment has a string there, or is an array there.
SCENARIO(commandsWithTheEnvironment) {
  memory = allocate();
  const auto run = [] {
    close(memory);
    say("system: %d", WEXITSTATUS(std::system("echo \"$NAME\" && exit 5")));
    close(memory);
    FILE* const pipe = popen("echo \"$NAME\"", "r");
    char line[64] = {};
    if (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) say("popen: %s", line);
    say("pclose: %d", pipe != nullptr ? pclose(pipe) : -1);
  };
  putenv(place(20480, "NAME=of the environment"));
  run();
  char** const before = environ;
  environ = environmentInMemory();
  run();
  environ = before;
  sayMemory();
  return 0;
}

// Each of them replaces the program.
#define EXEC_SCENARIO(name, call)                                                   \
  SCENARIO(name) {                                                                  \
    memory = allocate();                                                            \
    [[maybe_unused]] char** const arguments = shell("echo replaced $NAME; exit 6"); \
    [[maybe_unused]] char** const environment = environmentInMemory();              \
    [[maybe_unused]] char* const path = place(4096, "/bin/sh");                     \
    close(memory);                                                                  \
    errno = 0;                                                                      \
    say("failed: %d %d", call, errno);                                              \
    return 1;                                                                       \
  }

EXEC_SCENARIO(execvOf, execv(path, arguments))
EXEC_SCENARIO(execveOf, execve(path, arguments, environment))
EXEC_SCENARIO(execvpOf, execvp(arguments[0], arguments))
EXEC_SCENARIO(execvpeOf, execvpe(arguments[0], arguments, environment))
EXEC_SCENARIO(execlOf, execl(path, arguments[0], arguments[1], arguments[2], nullptr))
EXEC_SCENARIO(execlpOf, execlp(arguments[0], arguments[0], arguments[1], arguments[2], nullptr))
EXEC_SCENARIO(execleOf,
              execle(path, arguments[0], arguments[1], arguments[2], nullptr, environment))
EXEC_SCENARIO(fexecveOf, fexecve(open("/bin/sh", O_RDONLY), arguments, environment))
EXEC_SCENARIO(execveatOf, execveat(AT_FDCWD, path, arguments, environment, 0))

SCENARIO(execOfNothing) {
  memory = allocate();
  char** const arguments = shell("true");
  char* const path = place(4096, "/nothing/there");
  close(memory);
  const int result = execv(path, arguments);
  say("%d %d", result, errno);
  const int bad = execv(reinterpret_cast<const char*>(path), reinterpret_cast<char**>(memory + 4));
  say("%d %d", bad, errno);
  sayMemory();
  return 0;
}

// A program that is started while SIGSEGV is blocked has it blocked.
SCENARIO(startedWithItBlocked) {
  memory = allocate();
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGSEGV);
  sigaddset(&mask, SIGUSR1);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  char* const arguments[] = {const_cast<char*>("grep"), const_cast<char*>("SigBlk"),
                             const_cast<char*>("/proc/self/status"), nullptr};
  char* const environment[] = {nullptr};
  pid_t child = 0;
  posix_spawn(&child, "/bin/grep", nullptr, nullptr, arguments, environment);
  sayEnd("posix_spawn", child);
  sigset_t now;
  sigprocmask(SIG_BLOCK, nullptr, &now);
  say("still blocked: %d", sigismember(&now, SIGSEGV));
  close(memory);
  say("memory: %d", memory[0]);
  execve("/bin/grep", arguments, environment);
  return 1;
}

// They have the variables of the program, the library among them, and start nothing of it.
SCENARIO(childrenWithTheLibrary) {
  memory = allocate();
  setenv("GMAC_ACCEL", "none such", 1);
  setenv("GMAC_LOG", "debug", 1);
  say("%d", WEXITSTATUS(std::system("cat /proc/version >/dev/null && echo well 2>&1")));
  return 0;
}

}  // namespace
