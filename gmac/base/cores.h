// SPDX-License-Identifier: Apache-2.0
//
// The number of threads that can run at a time.
#ifndef GMAC_BASE_CORES_H_
#define GMAC_BASE_CORES_H_

#include <string>

namespace gmac {

// The cores that this process may use: those of the calling thread's affinity, or fewer where the
// CPU time of its control groups is limited to less. At least 1. Reads some files the first time,
// and answers the same from then on. Thread-safe.
unsigned usableCores();

// The limit of the control groups in whole cores, rounded up; 0: none. `process` is the folder of
// the process in /proc.
unsigned coresOfGroups(const std::string& process);

}  // namespace gmac

#endif  // GMAC_BASE_CORES_H_
