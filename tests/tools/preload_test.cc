// SPDX-License-Identifier: Apache-2.0
//
// The library's place in LD_PRELOAD, and how a program's linked libraries are found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/gmac/elf_file.h"
#include "tools/gmac/library.h"

namespace gmac::command {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

constexpr const char* kLibrary = "/lib/libgmac.so";

TEST(Preload, TheLibraryIsFirst) {
  EXPECT_EQ(preloadWith(kLibrary, "", {}), kLibrary);
  EXPECT_EQ(preloadWith(kLibrary, "libtcmalloc.so.4", {"libc.so.6"}),
            "/lib/libgmac.so:libtcmalloc.so.4");
  EXPECT_EQ(preloadWith(kLibrary, " a.so  b.so:\tc.so:", {}), "/lib/libgmac.so:a.so:b.so:c.so");
}

TEST(Preload, TheLibraryIsThereOnce) {
  EXPECT_EQ(preloadWith(kLibrary, "a.so:/lib/libgmac.so:b.so", {}), "/lib/libgmac.so:a.so:b.so");
}

TEST(Preload, TheAddressSanitizerIsBeforeTheLibrary) {
  EXPECT_EQ(preloadWith(kLibrary, "", {"libasan.so.8", "libc.so.6"}),
            "libasan.so.8:/lib/libgmac.so");
  EXPECT_EQ(preloadWith(kLibrary, "a.so", {"libclang_rt.asan-x86_64.so"}),
            "libclang_rt.asan-x86_64.so:/lib/libgmac.so:a.so");
  // Where the user has put it there already.
  EXPECT_EQ(preloadWith(kLibrary, "/usr/lib/libasan.so.8:a.so", {"libasan.so.8"}),
            "/usr/lib/libasan.so.8:/lib/libgmac.so:a.so");
  // Names that only resemble it.
  EXPECT_EQ(preloadWith(kLibrary, "libasano.so", {"mylibasan.so.8"}),
            "/lib/libgmac.so:libasano.so");
}

TEST(Preload, AProgramSaysWhatItIsLinkedWith) {
  const ElfFile program("tests/tools/probe");
  EXPECT_TRUE(program.isElf());
  EXPECT_TRUE(program.isOfThisMachine());
  EXPECT_TRUE(program.hasDynamicLinker());
  EXPECT_THAT(program.neededLibraries(), Contains("libc.so.6"));
}

TEST(Preload, AFileThatIsNoProgramSaysNothing) {
  const ElfFile device("/dev/null");
  EXPECT_FALSE(device.isElf());
  EXPECT_FALSE(device.hasDynamicLinker());
  EXPECT_THAT(device.neededLibraries(), IsEmpty());
  EXPECT_EQ(device.interpreterLine(), "");
}

}  // namespace
}  // namespace gmac::command
