// SPDX-License-Identifier: Apache-2.0
#include "tests/neighbours/run_program.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string_view>

namespace gmac::testing {
namespace {

// The text that a child wrote to a memory file.
std::string readAll(int file) {
  std::string text(static_cast<std::size_t>(lseek(file, 0, SEEK_END)), '\0');
  EXPECT_EQ(pread(file, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  close(file);
  return text;
}

}  // namespace

std::string ProgramEnd::seen() const {
  return output + (signal != 0 ? "killed by signal " + std::to_string(signal)
                               : "exit status " + std::to_string(exitStatus));
}

ProgramEnd runProgram(const std::vector<std::string>& words, const Variables& variables) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with("GMAC_") && !text.starts_with("LD_PRELOAD=")) {
      environment.emplace_back(text);
    }
  }
  for (const auto& [name, value] : variables) {
    std::string& variable = environment.emplace_back(name);
    variable += '=';
    variable += value;
  }
  std::vector<char*> arguments;
  std::vector<char*> pointers;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.data()));
  for (std::string& variable : environment) pointers.push_back(variable.data());
  arguments.push_back(nullptr);
  pointers.push_back(nullptr);
  const int output = memfd_create("output", MFD_CLOEXEC);
  const int errors = memfd_create("errors", MFD_CLOEXEC);
  const pid_t child = fork();
  if (child == 0) {
    dup2(output, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    execve(arguments[0], arguments.data(), pointers.data());
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  ProgramEnd end;
  if (WIFEXITED(status)) {
    end.exitStatus = WEXITSTATUS(status);
  } else {
    end.signal = WTERMSIG(status);
  }
  end.output = readAll(output);
  end.errors = readAll(errors);
  return end;
}

}  // namespace gmac::testing
