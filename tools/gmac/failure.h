// SPDX-License-Identifier: Apache-2.0
//
// How the command ends without having run anything.
#ifndef GMAC_TOOLS_GMAC_FAILURE_H_
#define GMAC_TOOLS_GMAC_FAILURE_H_

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace gmac::command {

// The shells' and env's exit statuses for a program that could not be started, and ours.
enum class Ending {
  kOurs = 1,         // the command itself is not in order, e.g. its library is missing
  kUsage = 2,        // the command line is wrong
  kCannotRun = 126,  // the program is there and cannot be run with the library
  kNotFound = 127,   // there is no such program
};

// Thrown by what is asked of main(), which prints the sentence and ends with the status.
class Failure : public std::runtime_error {
 public:
  Failure(Ending ending, const std::string& sentence)
      : std::runtime_error(sentence), ending_(ending) {}
  int status() const { return static_cast<int>(ending_); }

 private:
  Ending ending_;
};

template <typename... Args>
[[noreturn]] void refuse(Ending ending, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(ending, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace gmac::command

#endif  // GMAC_TOOLS_GMAC_FAILURE_H_
