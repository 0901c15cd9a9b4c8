// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/control_groups.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "gmac/base/descriptor.h"

namespace gmac {
namespace {

// A mounted tree of groups with the wanted controller.
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
std::vector<Hierarchy> hierarchiesOf(const std::string& mountinfo, const char* controller) {
  std::vector<Hierarchy> found;
  for (const std::string& line : split(mountinfo, '\n')) {
    const std::vector<std::string> fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 6 || fields.end() - dash < 4) {
      continue;
    }
    const bool unified = dash[1] == "cgroup2";
    if (unified || (dash[1] == "cgroup" && lists(dash[3], controller))) {
      found.push_back({unified, fields[3], fields[4]});
    }
  }
  return found;
}

// From the process's list of groups, "NUMBER:CONTROLLERS:GROUP" with 0 and no controllers for
// version 2.
std::optional<std::string> groupIn(const Hierarchy& hierarchy, const std::string& groups,
                                   const char* controller) {
  for (const std::string& line : split(groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (hierarchy.unified ? line.starts_with("0::") : lists(controllers, controller)) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<ControlGroup> controlGroupsOf(const std::string& process, const char* controller) {
  const std::string groups = readWholeFile(process + "/cgroup").value_or("");
  const std::string mountinfo = readWholeFile(process + "/mountinfo").value_or("");
  std::vector<ControlGroup> found;
  for (const Hierarchy& hierarchy : hierarchiesOf(mountinfo, controller)) {
    const std::optional<std::string> group = groupIn(hierarchy, groups, controller);
    if (!group) {
      continue;
    }
    // A container may have only a part of the tree mounted.
    std::string below = *group == "/" ? "" : *group;
    if (hierarchy.root != "/") {
      below = below.starts_with(hierarchy.root) ? below.substr(hierarchy.root.size()) : "";
    }
    while (true) {
      found.push_back({hierarchy.mount + below, hierarchy.unified});
      if (below.empty()) {
        break;
      }
      below.resize(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
    }
  }
  return found;
}

}  // namespace gmac
