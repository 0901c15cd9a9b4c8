// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BASE_MEMORY_LIMIT_H_
#define GMAC_BASE_MEMORY_LIMIT_H_

#include <cstddef>
#include <optional>
#include <string>

namespace gmac {

// The memory that a process's control groups allow it: the least limit of its own group and of
// those above it, of both versions. Nothing when none limits it. `process` is its folder in /proc.
std::optional<std::size_t> cgroupMemoryLimit(const std::string& process = "/proc/self");

// How much of the machine's memory this process can still take without anything being swapped out,
// or less if its control groups leave it less: file caches count as free. 0 where the system does
// not tell. Reads a few files of /proc.
std::size_t availableMemory(const std::string& process = "/proc/self");

// How much of that may be taken for good: a sixteenth of the machine's memory, and at least 256
// MiB, stays free. Who needs the last pages of a machine is killed.
std::size_t spareMemory(const std::string& process = "/proc/self");

// The memory that this process may have: the machine's, or less if its control groups limit it. At
// least 1.
std::size_t usableMemory();

}  // namespace gmac

#endif  // GMAC_BASE_MEMORY_LIMIT_H_
