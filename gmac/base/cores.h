// SPDX-License-Identifier: Apache-2.0
//
// How many threads can run at a time.
#ifndef GMAC_BASE_CORES_H_
#define GMAC_BASE_CORES_H_

#include <string>

namespace gmac {

// The cores that this process may use: those of the calling thread's affinity, or fewer where the
// CPU time of its control groups is limited to less. At least 1. Reads some files the first time,
// and answers the same from then on. Thread-safe.
unsigned usableCores();

// The part of it that control groups decide: their limit in whole cores, rounded up; 0: none.
// `membership` has the contents of /proc/self/cgroup, and `mounted` is where the groups are mounted
// (/sys/fs/cgroup).
unsigned coresOfGroups(const std::string& membership, const std::string& mounted);

}  // namespace gmac

#endif  // GMAC_BASE_CORES_H_
