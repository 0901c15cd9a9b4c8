// SPDX-License-Identifier: Apache-2.0
//
// The control groups that limit a process.
#ifndef GMAC_BASE_CONTROL_GROUPS_H_
#define GMAC_BASE_CONTROL_GROUPS_H_

#include <string>
#include <vector>

namespace gmac {

// One group, of version 2 (unified) or of version 1. Its folder has the files with its limits.
struct ControlGroup {
  std::string folder;
  bool unified = false;
};

// The groups that limit a process's use of `controller` ("cpu", "memory"): its own and all above
// it, of both versions, as far as they are mounted. `process` is its folder in /proc. Reads two
// files there; not for the fault path.
std::vector<ControlGroup> controlGroupsOf(const std::string& process, const char* controller);

}  // namespace gmac

#endif  // GMAC_BASE_CONTROL_GROUPS_H_
