// SPDX-License-Identifier: Apache-2.0
//
// Small objects: how fast they come and go, and what memory they take on each side.
#include <sys/types.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "bench/measure.h"
#include "bench/vecadd.h"

namespace gmac::bench {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The `host` accelerator's device process: the other process with this one's command line.
std::optional<pid_t> deviceProcess() {
  const std::string own = contents("/proc/self/cmdline");
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    const pid_t pid = std::stoi(name);
    if (pid != getpid() && contents(entry.path() / "cmdline") == own) {
      return pid;
    }
  }
  return std::nullopt;
}

// Bytes of the process that a line of its status file names. Pages that it maps twice count twice.
double residentBytes(pid_t pid) {
  std::istringstream status(contents("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) {
      return std::stod(line.substr(6)) * 1024;
    }
  }
  throw std::runtime_error("no VmRSS of process " + std::to_string(pid));
}

// Bytes in use on the accelerator's side.
double acceleratorBytes() {
  if (const auto pid = deviceProcess()) {
    return residentBytes(*pid);
  }
  return cudaBytesInUse();
}

// {bytes, live, pairs, rounds}: operations a second (an allocation and a free are two) as pairs,
// and as `live` allocations, then as many frees; memory beyond the objects' own when all are live
// and written, MiB.
json smallObjects(const json& parameters) {
  const std::size_t bytes = parameters["bytes"];
  const std::size_t pairs = parameters["pairs"];
  std::vector<void*> live(parameters["live"].get<std::size_t>());
  // The runtime has started, and what it needs once is there, before anything is counted.
  check(adsmFree(checkedAlloc(bytes)), "adsmFree");

  const double appBefore = residentBytes(getpid());
  const double acceleratorBefore = acceleratorBytes();
  for (void*& object : live) {
    object = checkedAlloc(bytes);
    std::memset(object, 1, bytes);
  }
  const double own = static_cast<double>(bytes * live.size());
  constexpr double kMiB = 1 << 20;
  const double appExtra = (residentBytes(getpid()) - appBefore - own) / kMiB;
  const double acceleratorExtra = (acceleratorBytes() - acceleratorBefore - own) / kMiB;
  for (void* object : live) {
    check(adsmFree(object), "adsmFree");
  }

  std::vector<double> paired;
  std::vector<double> massed;
  for (std::size_t round = 0; round < parameters["rounds"].get<std::size_t>(); ++round) {
    {
      const Stopwatch watch;
      for (std::size_t i = 0; i < pairs; ++i) {
        void* const object = adsmAlloc(bytes);
        if (object == nullptr || adsmFree(object) != adsmSuccess) {
          throw std::runtime_error(adsmLastErrorString());
        }
      }
      paired.push_back(2 * static_cast<double>(pairs) / watch.seconds());
    }
    const Stopwatch watch;
    for (void*& object : live) {
      object = checkedAlloc(bytes);
    }
    for (void* object : live) {
      check(adsmFree(object), "adsmFree");
    }
    massed.push_back(2 * static_cast<double>(live.size()) / watch.seconds());
  }
  return {{"operationsPerSecond", median(paired)},
          {"massedOperationsPerSecond", median(massed)},
          {"appExtraMiB", appExtra},
          {"acceleratorExtraMiB", acceleratorExtra}};
}
const Registration kSmallObjects("smallObjects", &smallObjects);

}  // namespace
}  // namespace gmac::bench
