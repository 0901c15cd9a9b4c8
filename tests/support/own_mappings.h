// SPDX-License-Identifier: Apache-2.0
//
// Mappings of a program besides those of its shared objects.
#ifndef GMAC_TESTS_SUPPORT_OWN_MAPPINGS_H_
#define GMAC_TESTS_SUPPORT_OWN_MAPPINGS_H_

#include <cstddef>

namespace gmac::testing {

// The process's mappings, in the kernel's table.
std::size_t mappingCount();

// So many more of them, while it lives: an even number.
class OwnMappings {
 public:
  explicit OwnMappings(std::size_t count);
  ~OwnMappings();
  OwnMappings(const OwnMappings&) = delete;
  OwnMappings& operator=(const OwnMappings&) = delete;

 private:
  void* address_;
  std::size_t bytes_;
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_OWN_MAPPINGS_H_
