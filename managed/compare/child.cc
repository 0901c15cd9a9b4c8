// SPDX-License-Identifier: Apache-2.0
#include "managed/compare/child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace managed::compare {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void failOn(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// True when the process ended within the time.
bool waitFor(pid_t child, unsigned seconds) {
  const auto descriptor = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  if (descriptor < 0) failOn("pidfd_open");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  int ready = -1;
  do {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd entry = {descriptor, POLLIN, 0};
    ready = ::poll(&entry, 1, static_cast<int>(std::max<long>(0, left.count())));
  } while (ready < 0 && errno == EINTR);
  ::close(descriptor);
  return ready > 0;
}

}  // namespace

std::string ChildEnd::lastError() const {
  std::string last = errors;
  while (!last.empty() && last.back() == '\n') last.pop_back();
  if (const auto newline = last.rfind('\n'); newline != std::string::npos) {
    last.erase(0, newline + 1);
  }
  return last;
}

std::string ChildEnd::describe() const {
  if (timedOut) return "did not end in time";
  const std::string last = lastError();
  return signal != 0 ? fmt::format("killed by signal {} ({}){}{}", signal, ::strsignal(signal),
                                   last.empty() ? "" : ": ", last)
                     : fmt::format("exit status {}{}{}", status, last.empty() ? "" : ": ", last);
}

ScratchFolder::ScratchFolder() {
  std::string path = (fs::temp_directory_path() / "gmac-compare.XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) failOn(path);
  path_ = path;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

ChildEnd runChild(const std::vector<std::string>& words, bool gmacVariables,
                  unsigned timeoutSeconds, const fs::path& scratch) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (gmacVariables || !std::string_view(*entry).starts_with("GMAC_")) {
      environment.push_back(*entry);
    }
  }
  environment.push_back(nullptr);

  const std::string output = scratch / "output";
  const std::string errors = scratch / "errors";
  constexpr int kCreate = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const pid_t child = ::fork();
  if (child < 0) failOn("fork");
  if (child == 0) {
    // A group of its own, so that all that it starts can be ended.
    ::setpgid(0, 0);
    if (::dup2(::open(output.c_str(), kCreate, 0600), STDOUT_FILENO) < 0 ||
        ::dup2(::open(errors.c_str(), kCreate, 0600), STDERR_FILENO) < 0) {
      ::_exit(127);
    }
    ::execve(arguments[0], arguments.data(), environment.data());
    ::dprintf(STDERR_FILENO, "cannot run %s: %s\n", arguments[0], std::strerror(errno));
    ::_exit(127);
  }
  ::setpgid(child, child);  // whoever comes first
  ChildEnd end;
  end.timedOut = !waitFor(child, timeoutSeconds);
  if (end.timedOut) ::kill(-child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) failOn("waitpid");
  }
  if (WIFEXITED(status)) end.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  end.output = contents(output);
  end.errors = contents(errors);
  return end;
}

}  // namespace managed::compare
