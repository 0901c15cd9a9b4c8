// SPDX-License-Identifier: Apache-2.0
#include "mpi/stub/library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace gmac::mpi {
namespace {

// Only an MPI library defines it; a profiler defines MPI_Init.
constexpr const char* kMark = "PMPI_Init";

std::string fileOf(const void* symbol) {
  Dl_info info;
  return symbol != nullptr && ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr
             ? info.dli_fname
             : "";
}

std::vector<std::string> loadedFiles() {
  std::vector<std::string> names;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {
          static_cast<std::vector<std::string>*>(found)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &names);
  return names;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

Library findLibrary() {
  std::vector<std::string> files;
  const std::string global = fileOf(::dlsym(RTLD_NEXT, kMark));
  if (!global.empty()) {
    files.push_back(global);
  }
  const std::string self = fileOf(reinterpret_cast<const void*>(&findLibrary));
  for (const std::string& name : loadedFiles()) {
    void* const handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) {
      continue;
    }
    // A library that is linked with MPI answers with MPI's own function.
    const std::string file = fileOf(::dlsym(handle, kMark));
    if (!file.empty() && file != self &&
        std::find(files.begin(), files.end(), file) == files.end()) {
      files.push_back(file);
    }
    ::dlclose(handle);
  }
  Library library;
  if (!files.empty()) {
    library.path = files.front();
    library.handle = ::dlopen(library.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    library.others.assign(files.begin() + 1, files.end());
  }
  return library;
}

std::string versionOf(const Library& library) {
  // The longest that any MPI asks for (MPICH's).
  std::array<char, 16384> text{};
  int length = 0;
  const auto ask =
      reinterpret_cast<int (*)(char*, int*)>(::dlsym(library.handle, "PMPI_Get_library_version"));
  if (ask == nullptr || ask(text.data(), &length) != 0) {
    return "an MPI without MPI_Get_library_version";
  }
  std::string line(text.data(), std::find(text.begin(), text.end() - 1, '\n'));
  std::replace(line.begin(), line.end(), '\t', ' ');
  // "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, ...".
  return line.substr(0, line.find(','));
}

const Abi* abiOf(const std::string& version, const std::string& path) {
  // The standard's own ABI, whichever library has it.
  if (contains(path, "mpi_abi")) {
    return nullptr;
  }
  constexpr std::string_view kOpenMpiName = "Open MPI v";
  if (std::string_view(version).starts_with(kOpenMpiName)) {
    const int major = std::atoi(version.c_str() + kOpenMpiName.size());
    return major == 4 || major == 5 ? &kOpenMpi : nullptr;
  }
  for (const std::string_view name : {"MPICH", "MVAPICH", "Intel(R) MPI"}) {
    if (contains(version, name)) {
      return &kMpich;
    }
  }
  return nullptr;
}

}  // namespace gmac::mpi
