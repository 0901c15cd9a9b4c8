// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/loaded_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace gmac {
namespace {

// A library of libc's that nothing else here loads.
constexpr const char* kName = "libBrokenLocale.so.1";

TEST(LoadedLibrary, IsFoundOnceSomebodyHasLoadedIt) {
  LoadedLibrary library(kName);
  EXPECT_EQ(library.find(), nullptr);
  EXPECT_EQ(library.find(), nullptr);
  void* const loaded = ::dlopen(kName, RTLD_LAZY);
  ASSERT_NE(loaded, nullptr) << ::dlerror();
  EXPECT_EQ(library.find(), loaded);
  ::dlclose(loaded);
  EXPECT_NE(::dlopen(kName, RTLD_LAZY | RTLD_NOLOAD), nullptr) << "it stays loaded";
  EXPECT_EQ(library.find(), loaded);
}

TEST(LoadedLibrary, ThatThereIsNotIsNeverFound) {
  LoadedLibrary library("libthere-is-none.so.1");
  EXPECT_EQ(library.find(), nullptr);
  EXPECT_EQ(library.find(), nullptr);
}

}  // namespace
}  // namespace gmac
