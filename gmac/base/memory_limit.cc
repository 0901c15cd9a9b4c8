// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "gmac/base/control_groups.h"
#include "gmac/base/descriptor.h"

namespace gmac {
namespace {

// A group without a limit has a word ("max") or a number larger than any machine's memory.
std::optional<std::size_t> limitIn(const std::string& file) {
  const std::optional<std::string> text = readWholeFile(file);
  std::size_t limit = 0;
  if (!text ||
      std::from_chars(text->data(), text->data() + text->size(), limit).ec != std::errc()) {
    return std::nullopt;
  }
  return limit;
}

}  // namespace

std::optional<std::size_t> cgroupMemoryLimit(const std::string& process) {
  std::optional<std::size_t> least;
  for (const ControlGroup& group : controlGroupsOf(process, "memory")) {
    const auto limit =
        limitIn(group.folder + (group.unified ? "/memory.max" : "/memory.limit_in_bytes"));
    if (limit && (!least || *limit < *least)) {
      least = limit;
    }
  }
  return least;
}

std::size_t usableMemory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long pageBytes = sysconf(_SC_PAGESIZE);
  const std::size_t machine = pages > 0 && pageBytes > 0 ? static_cast<std::size_t>(pages) *
                                                               static_cast<std::size_t>(pageBytes)
                                                         : std::size_t{1} << 30;
  return std::max<std::size_t>(std::min(machine, cgroupMemoryLimit().value_or(machine)), 1);
}

}  // namespace gmac
