// SPDX-License-Identifier: Apache-2.0
#include "exchange/job.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "gmac/base/descriptor.h"

namespace gmac::exchange {
namespace {

std::optional<int> numberIn(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) {
    return std::nullopt;
  }
  const std::string_view digits(text);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) {
    return std::nullopt;
  }
  return number;
}

std::string textIn(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? text : "";
}

// The process that has made the PMI socket: the launcher's daemon on this host. (The parent process
// may be a shell in between.)
std::string daemonOfSocket(int socket) {
  ucred daemon{};
  socklen_t bytes = sizeof daemon;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &daemon, &bytes) != 0 || daemon.pid <= 0) {
    return "";
  }
  const std::optional<std::uint64_t> start = startOfProcess(daemon.pid);
  return start.has_value() ? fmt::format("{}@{}", daemon.pid, *start) : "";
}

std::string statOf(int pid) { return fmt::format("/proc/{}/stat", pid); }

// The start time in a process's stat; nothing: it has ended.
std::optional<std::uint64_t> startIn(const std::string& text) {
  // The second field is the program's name in brackets, and may hold anything.
  const std::size_t name = text.rfind(')');
  if (name == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(text.substr(name + 1));
  std::string field;
  for (int number = 3; fields >> field; ++number) {
    if (number == 3 && (field == "Z" || field == "X")) {
      return std::nullopt;
    }
    if (number == 22) {
      return std::strtoull(field.c_str(), nullptr, 10);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> startOfProcess(int pid) {
  const std::optional<std::string> text = readWholeFile(statOf(pid));
  return text.has_value() ? startIn(*text) : std::nullopt;
}

bool hasEnded(int pid, std::uint64_t start) {
  const std::string path = statOf(pid);
  const std::optional<std::string> text = readWholeFile(path);
  if (!text.has_value()) {
    // (Without /proc the file of a process that lives is missing as well.)
    return errno == ESRCH || (errno == ENOENT && ::kill(pid, 0) != 0 && errno == ESRCH);
  }
  return startIn(*text) != start;
}

std::optional<Job> findJob() {
  Job job;
  std::optional<int> rank;
  std::optional<int> size;
  const auto found = [&](std::string_view source, const std::string& key, const char* rankVariable,
                         std::optional<int> count) {
    job.key += fmt::format("{}={};", source, key);
    if (!rank.has_value()) {
      rank = numberIn(rankVariable);
      size = count;
    }
  };
  if (const std::string key = textIn("PMIX_NAMESPACE"); !key.empty()) {
    // PMIx leaves no size in the environment; Open MPI and Slurm do.
    const std::optional<int> count = numberIn("OMPI_COMM_WORLD_SIZE");
    found("pmix", key, "PMIX_RANK", count.has_value() ? count : numberIn("SLURM_NTASKS"));
  }
  if (const std::optional<int> socket = numberIn("PMI_FD"); socket.has_value()) {
    if (const std::string daemon = daemonOfSocket(*socket); !daemon.empty()) {
      // A job that a process of this one has spawned may have the same daemon.
      const std::string key = daemon + "/" + textIn("PMI_JOBID") + "/" + textIn("PMI_SPAWNED");
      found("pmi", key, "PMI_RANK", numberIn("PMI_SIZE"));
    }
  }
  if (const std::string port = textIn("PMI_PORT"); !port.empty()) {
    found("port", port, "PMI_ID", numberIn("PMI_SIZE"));
  }
  if (const std::string step = textIn("SLURM_STEP_ID"); !step.empty()) {
    found("slurm", textIn("SLURM_JOB_ID") + "." + step, "SLURM_PROCID",
          numberIn("SLURM_STEP_NUM_TASKS"));
  }
  if (!rank.has_value() || !size.has_value() || *rank >= *size) {
    return std::nullopt;
  }
  job.rank = *rank;
  job.size = *size;
  return job;
}

}  // namespace gmac::exchange
