// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_DATATYPES_OPTIONS_H_
#define GMAC_DATATYPES_OPTIONS_H_

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "datatypes/failure.h"
#include "datatypes/session.h"

namespace datatypes {

// The request: complete and valid.
struct Options {
  std::vector<const Group*> groups;
  std::size_t rounds = 31;
  std::filesystem::path plots;  // "" writes none
  std::filesystem::path json;   // "" writes none
  bool gate = false;
  bool list = false;
  std::optional<Place> firstPack;  // only that, for `first-use`
};

// The command line cannot be run as it is: what() says what is wrong and what would be right.
// `status` is what the program exits with: 2, or 0 when help was asked for, what() being the help.
class UsageError : public Failure {
 public:
  UsageError(const std::string& what, int status) : Failure(what), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// The arguments after the program's name.
Options parseOptions(const std::vector<std::string>& arguments);

}  // namespace datatypes

#endif  // GMAC_DATATYPES_OPTIONS_H_
