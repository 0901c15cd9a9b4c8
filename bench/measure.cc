// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <utility>

#include "bench/kernels_fatbin.h"

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

// Two connected descriptors, which children get only on purpose. Closed with their owner.
class Connection {
 public:
  Connection() {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_) != 0) {
      throw std::runtime_error(fmt::format("socketpair: {}", std::strerror(errno)));
    }
  }
  ~Connection() {
    closeTheirs();
    if (ends_[0] >= 0) {
      close(ends_[0]);
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int ours() const { return ends_[0]; }
  int takeOurs() { return std::exchange(ends_[0], -1); }
  int theirs() const { return ends_[1]; }
  void closeTheirs() {
    if (const int fd = std::exchange(ends_[1], -1); fd >= 0) {
      close(fd);
    }
  }

 private:
  int ends_[2];
};

// Starts this program for one measurement, with the other end of `connection` as its standard
// output, and as its input too where it `serves`.
pid_t startChild(const std::string& name, const json& parameters, const Environment& environment,
                 Connection& connection, bool serves) {
  // The parent's number makes the command line unlike that of every other process (see
  // deviceProcess()).
  std::vector<std::string> arguments = {"/proc/self/exe",  "--measure", name,
                                        parameters.dump(), "--parent",  std::to_string(getpid())};
  std::vector<std::string> variables = environmentFor(environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, connection.theirs(), STDOUT_FILENO);
  if (serves) {
    posix_spawn_file_actions_adddup2(&actions, connection.theirs(), STDIN_FILENO);
  }
  pid_t child = -1;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr,
                                pointersTo(arguments).data(), pointersTo(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  connection.closeTheirs();
  if (error != 0) {
    throw std::runtime_error(fmt::format("posix_spawn: {}", std::strerror(error)));
  }
  return child;
}

// The status that the child has ended with; "" for success.
std::string howItEnded(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return "";
  }
  return fmt::format("ended with {} {}", WIFEXITED(status) ? "status" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
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
  Connection connection;
  const pid_t child = startChild(name, parameters, environment, connection, /*serves=*/false);
  const std::string text = readAll(connection.ours());
  if (const std::string failure = howItEnded(child); !failure.empty()) {
    throw std::runtime_error(fmt::format("measurement {} {} {}", name, parameters.dump(), failure));
  }
  return json::parse(text);
}

TurnsInChild::TurnsInChild(const std::string& name, const json& parameters,
                           const Environment& environment)
    : what_(fmt::format("{} {}", name, parameters.dump())) {
  Connection connection;
  child_ = startChild(name, parameters, environment, connection, /*serves=*/true);
  answers_ = fdopen(fcntl(connection.ours(), F_DUPFD_CLOEXEC, 0), "r");
  requests_ = fdopen(connection.takeOurs(), "w");
}

TurnsInChild::~TurnsInChild() {
  (void)std::fclose(requests_);
  (void)std::fclose(answers_);
  if (child_ >= 0) {
    (void)howItEnded(child_);
  }
}

double TurnsInChild::turn() {
  double seconds = 0;
  if (std::fputs("turn\n", requests_) < 0 || std::fflush(requests_) != 0 ||
      std::fscanf(answers_, "%lf", &seconds) != 1) {
    throw std::runtime_error(
        fmt::format("measurement {} {}", what_, howItEnded(std::exchange(child_, -1))));
  }
  return seconds;
}

void serveTurns(const std::function<double()>& round) {
  for (std::string request; std::getline(std::cin, request);) {
    std::printf("%.9f\n", round());
    std::fflush(stdout);
  }
}

void check(adsmError_t error, const char* what) {
  if (error != adsmSuccess) {
    throw std::runtime_error(fmt::format("{}: {}", what, adsmLastErrorString()));
  }
}

adsmKernelDesc_t describeKernel(const char* name, std::span<const std::size_t> paramSizes,
                                adsmHostKernel_t host) {
  adsmKernelDesc_t desc{};
  desc.name = name;
  desc.paramCount = paramSizes.size();
  desc.paramSizes = paramSizes.data();
  desc.host = host;
  desc.cudaImage = bench_kernels_fatbin;
  desc.cudaName = desc.cudaImage != nullptr ? name : nullptr;
  return desc;
}

adsmKernel_t makeKernel(const char* name, std::initializer_list<std::size_t> paramSizes,
                        adsmHostKernel_t host) {
  const adsmKernelDesc_t desc = describeKernel(name, {paramSizes.begin(), paramSizes.size()}, host);
  adsmKernel_t kernel = nullptr;
  check(adsmKernelCreate(&desc, &kernel), "adsmKernelCreate");
  return kernel;
}

void* checkedAlloc(std::size_t bytes) {
  void* const object = adsmAlloc(bytes);
  if (object == nullptr) {
    throw std::runtime_error(adsmLastErrorString());
  }
  return object;
}

}  // namespace gmac::bench
