// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BASE_MEMORY_LIMIT_H_
#define GMAC_BASE_MEMORY_LIMIT_H_

#include <cstddef>
#include <optional>
#include <string>

namespace gmac {

// How much memory the control groups of a process allow it: the least of its own group's limit and
// of those above it, of both versions. Nothing when none limits it. `process` is its folder in
// /proc.
std::optional<std::size_t> cgroupMemoryLimit(const std::string& process = "/proc/self");

// The memory that this process may have: the machine's, or less by its control groups. At least 1.
std::size_t usableMemory();

}  // namespace gmac

#endif  // GMAC_BASE_MEMORY_LIMIT_H_
