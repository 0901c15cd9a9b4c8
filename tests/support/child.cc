// SPDX-License-Identifier: Apache-2.0
#include "tests/support/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <vector>

namespace gmac::testing {

ChildEnd runChild(const std::string& filter,
                  const std::map<std::string, std::string>& environment) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool runtimes = text.starts_with("GMAC_") && !text.starts_with("GMAC_TEST_");
    // A child must not write the parent's report, or take its part of the tests.
    const bool framework = text.starts_with("XML_OUTPUT_FILE=") || text.starts_with("GTEST_") ||
                           text.starts_with("TEST_SHARD") ||
                           text.starts_with("TEST_TOTAL_SHARDS") ||
                           text.starts_with("TEST_PREMATURE_EXIT_FILE=");
    if (!runtimes && !framework) {
      variables.emplace_back(text);
    }
  }
  for (const auto& [name, value] : environment) {
    std::string& variable = variables.emplace_back(name);
    variable += '=';
    variable += value;
  }
  std::vector<std::string> words = {"/proc/self/exe", "--gtest_filter=" + filter,
                                    "--gtest_also_run_disabled_tests", "--gtest_print_time=0"};
  std::vector<char*> arguments;
  std::vector<char*> pointers;
  for (std::string& word : words) arguments.push_back(word.data());
  for (std::string& variable : variables) pointers.push_back(variable.data());
  arguments.push_back(nullptr);
  pointers.push_back(nullptr);

  int ends[2];
  ChildEnd end;
  if (pipe2(ends, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "no pipe";
    return end;
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execve(words[0].c_str(), arguments.data(), pointers.data());
    _exit(127);
  }
  close(ends[1]);
  char buffer[4096];
  for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;) {
    end.output.append(buffer, static_cast<std::size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) {
    end.exitStatus = WEXITSTATUS(status);
  } else {
    end.signal = WTERMSIG(status);
  }
  return end;
}

}  // namespace gmac::testing
