// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_DATATYPES_FAILURE_H_
#define GMAC_DATATYPES_FAILURE_H_

#include <stdexcept>

namespace datatypes {

// An error, in words for the user.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace datatypes

#endif  // GMAC_DATATYPES_FAILURE_H_
