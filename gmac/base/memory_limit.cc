// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>
#include <vector>

#include "gmac/base/descriptor.h"

namespace gmac {
namespace {

// Where the groups that can limit memory are: of version 2, or of version 1 with that controller.
struct Hierarchy {
  bool unified;
  std::string root;   // the group that is mounted
  std::string mount;  // its folder
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

bool lists(const std::string& names, const char* wanted) {
  const std::vector<std::string> parts = split(names, ',');
  return std::find(parts.begin(), parts.end(), wanted) != parts.end();
}

// From mountinfo: "36 35 98:0 ROOT MOUNT options [optional fields] - TYPE source options".
std::vector<Hierarchy> hierarchiesOf(const std::string& mountinfo) {
  std::vector<Hierarchy> found;
  for (const std::string& line : split(mountinfo, '\n')) {
    const std::vector<std::string> fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 6 || fields.end() - dash < 4) {
      continue;
    }
    const bool unified = dash[1] == "cgroup2";
    if (unified || (dash[1] == "cgroup" && lists(dash[3], "memory"))) {
      found.push_back({unified, fields[3], fields[4]});
    }
  }
  return found;
}

// From the process's list of groups, "NUMBER:CONTROLLERS:GROUP" with 0 and no controllers for
// version 2.
std::optional<std::string> groupIn(const Hierarchy& hierarchy, const std::string& groups) {
  for (const std::string& line : split(groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (hierarchy.unified ? line.starts_with("0::") : lists(controllers, "memory")) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

// A group without a limit has a word ("max") or a number that no machine has.
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
  const std::string groups = readWholeFile(process + "/cgroup").value_or("");
  std::optional<std::size_t> least;
  for (const Hierarchy& hierarchy :
       hierarchiesOf(readWholeFile(process + "/mountinfo").value_or(""))) {
    const std::optional<std::string> group = groupIn(hierarchy, groups);
    if (!group) {
      continue;
    }
    // What is mounted may be a part of the tree, as in a container.
    std::string below = *group == "/" ? "" : *group;
    if (hierarchy.root != "/") {
      below = below.starts_with(hierarchy.root) ? below.substr(hierarchy.root.size()) : "";
    }
    while (true) {
      const auto limit = limitIn(hierarchy.mount + below +
                                 (hierarchy.unified ? "/memory.max" : "/memory.limit_in_bytes"));
      if (limit && (!least || *limit < *least)) {
        least = limit;
      }
      if (below.empty()) {
        break;
      }
      below.resize(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
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
