// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <sstream>
#include <string>

#include "gmac/base/descriptor.h"

namespace gmac {
namespace {

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

// The number of cores that the thread may run on; 0: not known.
unsigned coresOfAffinity() {
  // The kernel refuses sets that are smaller than its own.
  constexpr int kMaxCores = 1 << 20;
  for (int cores = CPU_SETSIZE; cores <= kMaxCores; cores *= 2) {
    const std::unique_ptr<cpu_set_t, FreeSet> set(CPU_ALLOC(static_cast<std::size_t>(cores)));
    if (set == nullptr) return 0;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cores));
    CPU_ZERO_S(bytes, set.get());
    if (::sched_getaffinity(0, bytes, set.get()) == 0) {
      return static_cast<unsigned>(CPU_COUNT_S(bytes, set.get()));
    }
    if (errno != EINVAL) return 0;
  }
  return 0;
}

// CPU time as a number of cores, from a quota and a period in microseconds; 0: no limit.
double coresOf(double quota, double period) { return quota > 0 && period > 0 ? quota / period : 0; }

// The limit of one group; 0: none.
double limitOf(const std::string& folder, bool second) {
  double quota = 0;
  double period = 0;
  if (second) {
    // "max 100000" or "150000 100000"; "max" reads as no number.
    std::istringstream text(readWholeFile(folder + "/cpu.max").value_or(""));
    text >> quota >> period;
  } else {
    // -1: no limit.
    std::istringstream(readWholeFile(folder + "/cpu.cfs_quota_us").value_or("")) >> quota;
    std::istringstream(readWholeFile(folder + "/cpu.cfs_period_us").value_or("")) >> period;
  }
  return coresOf(quota, period);
}

bool hasController(const std::string& controllers, const std::string& wanted) {
  std::istringstream list(controllers);
  for (std::string one; std::getline(list, one, ',');) {
    if (one == wanted) return true;
  }
  return false;
}

}  // namespace

unsigned coresOfGroups(const std::string& membership, const std::string& mounted) {
  double least = 0;
  std::istringstream lines(membership);
  // "0::/a/b" of version 2, "4:cpu,cpuacct:/a/b" of version 1.
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t last = first == std::string::npos ? first : line.find(':', first + 1);
    if (last == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, last - first - 1);
    const bool second = controllers.empty();
    if (!second && !hasController(controllers, "cpu")) continue;
    const std::string root = mounted + (second ? "" : "/cpu");
    // Every group above limits it as well. In a container, its own group may be the root.
    std::string group = line.substr(last + 1);
    for (;;) {
      while (!group.empty() && group.back() == '/') group.pop_back();
      if (const double cores = limitOf(root + group, second);
          cores > 0 && (least == 0 || cores < least)) {
        least = cores;
      }
      if (group.empty()) break;
      group.erase(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
    }
  }
  return static_cast<unsigned>(std::ceil(least));
}

unsigned usableCores() {
  static const unsigned cores = [] {
    unsigned usable = coresOfAffinity();
    if (usable == 0) {
      usable = static_cast<unsigned>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L));
    }
    const unsigned limit =
        coresOfGroups(readWholeFile("/proc/self/cgroup").value_or(""), "/sys/fs/cgroup");
    return limit != 0 ? std::min(usable, limit) : usable;
  }();
  return cores;
}

}  // namespace gmac
