// SPDX-License-Identifier: Apache-2.0
//
// The comparer's command line.
#ifndef GMAC_MANAGED_COMPARE_OPTIONS_H_
#define GMAC_MANAGED_COMPARE_OPTIONS_H_

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace managed::compare {

struct Options {
  std::string size;
  unsigned repeats = 0;
  std::vector<std::string> accelerators;
  std::vector<std::string> protocols;
  std::vector<std::string> programs;
  std::vector<std::string> runtimes;
  unsigned timeoutSeconds = 0;          // of one run
  std::filesystem::path jsonPath;       // empty: none
  std::filesystem::path programFolder;  // has RUNTIME/PROGRAM
  std::filesystem::path gmacCommand;
};

// The command line asks for no run: for help (status 0), or for something impossible (2).
class UsageError : public std::runtime_error {
 public:
  UsageError(int status, const std::string& text) : std::runtime_error(text), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// Throws UsageError.
Options parseOptions(int argc, char** argv);

}  // namespace managed::compare

#endif  // GMAC_MANAGED_COMPARE_OPTIONS_H_
