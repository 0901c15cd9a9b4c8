// SPDX-License-Identifier: Apache-2.0
//
// The command line of the runner.
#ifndef GMAC_PARBOIL_OPTIONS_H_
#define GMAC_PARBOIL_OPTIONS_H_

#include <filesystem>
#include <string>
#include <vector>

#include "parboil/benchmark.h"

namespace parboil {

// The request: complete and valid. A plain value.
struct Options {
  std::vector<const Benchmark*> benchmarks;
  std::string accelerator;             // "" leaves the choice to the runtime
  std::vector<std::string> protocols;  // in the order of the table
  Size size = Size::kSmall;
  unsigned repeat = 1;
  std::filesystem::path json;  // "" writes none
  std::filesystem::path dir;
  bool explicitCopies = false;
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

// The size of that name; a UsageError that lists the sizes for any other.
Size parseSize(const std::string& name);

}  // namespace parboil

#endif  // GMAC_PARBOIL_OPTIONS_H_
