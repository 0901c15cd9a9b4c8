// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace gmac::bench {
namespace {

std::map<std::string, Measure>& registry() {
  static std::map<std::string, Measure> measures;
  return measures;
}

std::vector<std::string> environmentFor(const Environment& wanted) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("GMAC_")) {
      entries.emplace_back(*entry);
    }
  }
  for (const auto& [name, value] : wanted) {
    entries.push_back(fmt::format("{}={}", name, value));
  }
  return entries;
}

std::vector<char*> pointersTo(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) {
    pointers.push_back(string.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::string readAll(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return text;
    }
  }
}

}  // namespace

Registration::Registration(const char* name, Measure measure) { registry()[name] = measure; }

json measureHere(const std::string& name, const json& parameters) {
  const auto found = registry().find(name);
  if (found == registry().end()) {
    throw std::runtime_error(fmt::format("there is no measurement named {}", name));
  }
  return found->second(parameters);
}

json measureInChild(const std::string& name, const json& parameters,
                    const Environment& environment) {
  // The parent's number makes the command line unlike that of every other process (see
  // deviceProcess()).
  std::vector<std::string> arguments = {"/proc/self/exe",  "--measure", name,
                                        parameters.dump(), "--parent",  std::to_string(getpid())};
  std::vector<std::string> variables = environmentFor(environment);
  int ends[2];
  if (pipe(ends) != 0) {
    throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  pid_t child = -1;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr,
                                pointersTo(arguments).data(), pointersTo(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    throw std::runtime_error(fmt::format("posix_spawn: {}", std::strerror(error)));
  }
  const std::string text = readAll(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error(
        fmt::format("measurement {} {} ended with {} {}", name, parameters.dump(),
                    WIFEXITED(status) ? "status" : "signal",
                    WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
  }
  return json::parse(text);
}

void check(adsmError_t error, const char* what) {
  if (error != adsmSuccess) {
    throw std::runtime_error(fmt::format("{}: {}", what, adsmLastErrorString()));
  }
}

void* checkedAlloc(std::size_t bytes) {
  void* const object = adsmAlloc(bytes);
  if (object == nullptr) {
    throw std::runtime_error(adsmLastErrorString());
  }
  return object;
}

}  // namespace gmac::bench
