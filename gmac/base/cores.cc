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

#include "gmac/base/control_groups.h"
#include "gmac/base/descriptor.h"

namespace gmac {
namespace {

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

// The number of cores that the thread may run on; 0: not known.
unsigned coresOfAffinity() {
  // The kernel refuses sets smaller than its own.
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
double limitOf(const ControlGroup& group) {
  double quota = 0;
  double period = 0;
  if (group.unified) {
    // "max 100000" or "150000 100000"; "max" reads as no number.
    std::istringstream text(readWholeFile(group.folder + "/cpu.max").value_or(""));
    text >> quota >> period;
  } else {
    // -1: no limit.
    std::istringstream(readWholeFile(group.folder + "/cpu.cfs_quota_us").value_or("")) >> quota;
    std::istringstream(readWholeFile(group.folder + "/cpu.cfs_period_us").value_or("")) >> period;
  }
  return coresOf(quota, period);
}

}  // namespace

unsigned coresOfGroups(const std::string& process) {
  double least = 0;
  for (const ControlGroup& group : controlGroupsOf(process, "cpu")) {
    if (const double cores = limitOf(group); cores > 0 && (least == 0 || cores < least)) {
      least = cores;
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
    const unsigned limit = coresOfGroups("/proc/self");
    return limit != 0 ? std::min(usable, limit) : usable;
  }();
  return cores;
}

}  // namespace gmac
