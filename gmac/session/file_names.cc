// SPDX-License-Identifier: Apache-2.0
#include "gmac/session/file_names.h"

#include <unistd.h>

#include <algorithm>

namespace gmac {
namespace {

// The variables in which launchers leave a process's rank among all.
constexpr const char* kRanks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                  "MV2_COMM_WORLD_RANK", "SLURM_PROCID"};

std::string rankIn(const char* (*variable)(const char* name)) {
  for (const char* const name : kRanks) {
    const char* const value = variable(name);
    const std::string_view digits = value != nullptr ? value : "";
    if (!digits.empty() &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return '0' <= c && c <= '9'; })) {
      return std::string(digits);
    }
  }
  return "0";
}

}  // namespace

std::string ownFileName(std::string_view pattern, const char* (*variable)(const char* name)) {
  std::string name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'p') {
      name += std::to_string(::getpid());
    } else if (next == 'r') {
      name += rankIn(variable);
    } else if (next == '%') {
      name += '%';
    } else {
      name += pattern[i];
      continue;
    }
    ++i;
  }
  return name;
}

}  // namespace gmac
