// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "gmac/base/control_groups.h"
#include "gmac/base/descriptor.h"

namespace gmac {
namespace {

std::optional<std::size_t> numberIn(std::string_view text) {
  std::size_t number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc()) {
    return std::nullopt;
  }
  return number;
}

// A group without a limit has a word ("max") or a number larger than any machine's memory.
std::optional<std::size_t> limitIn(const std::string& file) {
  const std::optional<std::string> text = readWholeFile(file);
  return text ? numberIn(*text) : std::nullopt;
}

// The number after `name` at the start of one of a file's lines.
std::optional<std::size_t> lineIn(const std::string& file, std::string_view name) {
  const std::string text = "\n" + readWholeFile(file).value_or("");
  const std::size_t at = text.find("\n" + std::string(name));
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const std::size_t begin = text.find_first_not_of(' ', at + 1 + name.size());
  return begin == std::string::npos ? std::nullopt : numberIn(std::string_view(text).substr(begin));
}

// The bytes that a group still allows; nothing where it has no limit.
std::optional<std::size_t> leftIn(const ControlGroup& group) {
  const auto limit =
      limitIn(group.folder + (group.unified ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used =
      limitIn(group.folder + (group.unified ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) {
    return std::nullopt;
  }
  const std::size_t caches = lineIn(group.folder + "/memory.stat",
                                    group.unified ? "inactive_file " : "total_inactive_file ")
                                 .value_or(0);
  const std::size_t taken = *used - std::min(*used, caches);
  return *limit - std::min(*limit, taken);
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

std::size_t availableMemory(const std::string& process) {
  constexpr std::size_t kKiB = 1024;
  std::size_t least = lineIn("/proc/meminfo", "MemAvailable:").value_or(0) * kKiB;
  for (const ControlGroup& group : controlGroupsOf(process, "memory")) {
    least = std::min(least, leftIn(group).value_or(least));
  }
  return least;
}

std::size_t spareMemory(const std::string& process) {
  const std::size_t available = availableMemory(process);
  return available - std::min(available, std::max<std::size_t>(usableMemory() / 16, 256 << 20));
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
