// SPDX-License-Identifier: Apache-2.0
//
// A program that is not linked with the library loads it, uses it and closes it, many times.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "gmac/api/adsm.h"

namespace gmac::testing {
namespace {

// The library, beside which these tests run.
constexpr const char* kLibrary = "gmac/libgmac.so";

int openDescriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

// Loads the library, allocates, touches and frees, and closes the library.
void liveOnce() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW);
  ASSERT_NE(library, nullptr) << ::dlerror();
  const auto allocate = reinterpret_cast<decltype(&adsmAlloc)>(::dlsym(library, "adsmAlloc"));
  const auto release = reinterpret_cast<decltype(&adsmFree)>(::dlsym(library, "adsmFree"));
  auto* const object = static_cast<char*>(allocate(std::size_t{1} << 20));
  ASSERT_NE(object, nullptr);
  object[0] = 1;
  EXPECT_EQ(release(object), adsmSuccess);
  EXPECT_EQ(::dlclose(library), 0);
}

TEST(Unload, LeavesTheLibraryLoadedAndNothingBehind) {
  ASSERT_EQ(::setenv("GMAC_ACCEL", "host", 1), 0);
  ASSERT_EQ(::setenv("GMAC_HOST_MEMORY", "64M", 1), 0);
  ASSERT_EQ(::setenv("GMAC_HOST_THREADS", "1", 1), 0);
  liveOnce();
  void* const loaded = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(loaded, nullptr);
  const int descriptors = openDescriptors();
  const int lastSignal = SIGRTMAX;
  for (int life = 0; life < 5; ++life) liveOnce();
  EXPECT_EQ(openDescriptors(), descriptors);
  EXPECT_EQ(SIGRTMAX, lastSignal);
}

}  // namespace
}  // namespace gmac::testing
