// SPDX-License-Identifier: Apache-2.0
//
// One program, run to its end or to the end of our patience.
#ifndef GMAC_MANAGED_COMPARE_CHILD_H_
#define GMAC_MANAGED_COMPARE_CHILD_H_

#include <filesystem>
#include <string>
#include <vector>

namespace managed::compare {

struct ChildEnd {
  int status = -1;  // -1: it did not exit
  int signal = 0;   // that ended it
  bool timedOut = false;
  std::string output;
  std::string errors;

  std::string lastError() const;  // line of the errors
  // "exit status 1: <last line of the errors>" and the like.
  std::string describe() const;
};

// A folder that is removed with all that is in it. Owner.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Runs words[0] with the rest as its arguments; its output goes through files in `scratch`. Without
// `gmacVariables`, it gets none of the environment's GMAC_* variables. Throws std::runtime_error
// when no process can be started at all.
ChildEnd runChild(const std::vector<std::string>& words, bool gmacVariables,
                  unsigned timeoutSeconds, const std::filesystem::path& scratch);

}  // namespace managed::compare

#endif  // GMAC_MANAGED_COMPARE_CHILD_H_
