// SPDX-License-Identifier: Apache-2.0
//
// A program that opens the library by itself: plain LIBRARY TIMES. Each time it opens it, works and
// closes it; after the first, nothing may be left that was not left before.
#include <dirent.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "gmac/api/adsm.h"

namespace {

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  if (DIR* const opened = ::opendir(folder); opened != nullptr) {
    while (const dirent* entry = ::readdir(opened)) count += entry->d_name[0] != '.' ? 1 : 0;
    ::closedir(opened);
  }
  return count;
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

bool work(const char* path) {
  void* const library = ::dlopen(path, RTLD_NOW);
  if (library == nullptr) {
    fmt::print("failed: {}\n", ::dlerror());
    return false;
  }
  auto* const allocate = find<decltype(adsmAlloc)>(library, "adsmAlloc");
  auto* const release = find<decltype(adsmFree)>(library, "adsmFree");
  auto* const text = find<decltype(adsmLastErrorString)>(library, "adsmLastErrorString");
  auto* const object = static_cast<char*>(allocate(1 << 20));
  if (object == nullptr) {
    fmt::print("failed: adsmAlloc: {}\n", text());
    return false;
  }
  std::memset(object, 1, 1 << 20);
  const bool well = release(object) == adsmSuccess;
  return ::dlclose(library) == 0 && well;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int times = std::atoi(argv[2]);
  std::size_t descriptors = 0;
  std::size_t places = 0;
  int realTime = 0;
  for (int i = 0; i < times; ++i) {
    if (!work(argv[1])) return 1;
    if (i == 1) {
      descriptors = entries("/proc/self/fd");
      places = mappings();
      realTime = SIGRTMAX;
    }
  }
  const std::size_t descriptorsLeft = entries("/proc/self/fd");
  const std::size_t placesLeft = mappings();
  if (descriptorsLeft > descriptors || placesLeft > places + 20 || SIGRTMAX != realTime) {
    fmt::print("failed: {} descriptors became {}, {} mappings {}, SIGRTMAX {} {}\n", descriptors,
               descriptorsLeft, places, placesLeft, realTime, SIGRTMAX);
    return 1;
  }
  return 0;
}
