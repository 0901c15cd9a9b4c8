// SPDX-License-Identifier: Apache-2.0
#include "tests/support/thread_names.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

namespace gmac::testing {

bool aThreadIsCalledNow(std::string_view name) {
  std::error_code ignored;  // threads end meanwhile
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::string line;
    if (std::getline(std::ifstream(thread.path() / "comm"), line) && line == name) {
      return true;
    }
  }
  return false;
}

bool aThreadIsCalled(std::string_view name) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!aThreadIsCalledNow(name)) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace gmac::testing
