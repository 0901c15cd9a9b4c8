// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_TESTS_EXCHANGE_OPEN_DESCRIPTORS_H_
#define GMAC_TESTS_EXCHANGE_OPEN_DESCRIPTORS_H_

#include <dirent.h>

#include <cstdlib>
#include <set>

namespace gmac::testing {

// The numbers of this process's open descriptors.
inline std::set<int> openDescriptors() {
  std::set<int> numbers;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (const dirent* const entry = ::readdir(folder)) {
    if (entry->d_name[0] != '.') {
      numbers.insert(std::atoi(entry->d_name));
    }
  }
  numbers.erase(::dirfd(folder));
  ::closedir(folder);
  return numbers;
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_EXCHANGE_OPEN_DESCRIPTORS_H_
