// SPDX-License-Identifier: Apache-2.0
#include "tools/gmac/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "tools/gmac/failure.h"

namespace gmac::command {
namespace {

// The separators in LD_PRELOAD; there is no way to quote them.
constexpr std::string_view kSeparators = ": \t\n";

bool isAddressSanitizer(std::string_view library) {
  const std::string_view name = library.substr(library.rfind('/') + 1);
  return name.starts_with("libasan.so") || name.starts_with("libclang_rt.asan");
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> names;
  for (std::size_t first = 0; first < list.size();) {
    const std::size_t end = std::min(list.find_first_of(kSeparators, first), list.size());
    if (end > first) names.emplace_back(list.substr(first, end - first));
    first = end + 1;
  }
  return names;
}

// A library that belongs to this command: `name` in ../lib, or in the folder of the tree that it is
// built in.
std::string findBeside(const std::string& name, const std::string& builtIn) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) refuse(Ending::kOurs, "cannot read /proc/self/exe: {}", error.message());
  const fs::path places[] = {here.parent_path() / "lib" / name,
                             here.parent_path().parent_path() / builtIn / name};
  for (const fs::path& place : places) {
    if (!fs::exists(place, error)) continue;
    std::string path = place.string();
    if (path.find_first_of(kSeparators) != std::string::npos) {
      refuse(Ending::kOurs,
             "{} cannot be preloaded: the dynamic linker takes no colon and no white space in its "
             "path",
             path);
    }
    return path;
  }
  refuse(Ending::kOurs, "no {}: neither {} nor {} is there", name, places[0].string(),
         places[1].string());
}

}  // namespace

std::string findLibrary() { return findBeside("libgmac.so", "gmac"); }

std::string findMpiLibrary() { return findBeside("libgmac_mpi.so", "mpi"); }

std::string preloadWith(const std::string& library, std::string_view existing,
                        const std::vector<std::string>& needed) {
  std::vector<std::string> names = split(existing);
  // Named once, even where this command runs itself.
  std::erase(names, library);
  auto place = std::find_if_not(names.begin(), names.end(), isAddressSanitizer);
  if (place == names.begin()) {
    const auto sanitizer = std::find_if(needed.begin(), needed.end(), isAddressSanitizer);
    if (sanitizer != needed.end()) place = names.insert(place, *sanitizer) + 1;
  }
  names.insert(place, library);
  return fmt::format("{}", fmt::join(names, ":"));
}

}  // namespace gmac::command
