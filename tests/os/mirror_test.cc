// SPDX-License-Identifier: Apache-2.0
//
// Mirrors and the checked calls below them.
#include "gmac/os/mirror.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gmac/os/mappings.h"
#include "tests/support/machine_fixture.h"
#include "tests/support/own_mappings.h"

namespace gmac::os {
namespace {

using gmac::testing::accessAt;
using gmac::testing::Footprint;
using gmac::testing::kMiB;
using gmac::testing::kPage;
using gmac::testing::measureFootprint;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Counts, and fails when told.
class CountingPinner final : public Pinner {
 public:
  Status pin(void* address, std::size_t bytes, int fd, std::int64_t) override {
    if (failing) {
      return fail(adsmErrorSystem, "no pins left");
    }
    EXPECT_TRUE(pins_.emplace(address, bytes).second);
    lastFd = fd;
    return {};
  }
  Status unpin(void* address, std::size_t bytes, int, std::int64_t) override {
    EXPECT_EQ(pins_.count(address), 1u);
    EXPECT_EQ(pins_[address], bytes);
    pins_.erase(address);
    return {};
  }
  std::size_t live() const { return pins_.size(); }
  bool failing = false;
  int lastFd = -2;

 private:
  std::map<void*, std::size_t> pins_;
};

// The protection of each page.
class Pages final : public AccessMap {
 public:
  explicit Pages(std::vector<Access> pages) : pages_(std::move(pages)) {}
  AccessRun at(std::size_t offset) const override {
    const std::size_t page = offset / kPage;
    return {kPage, pages_[page % pages_.size()]};
  }

 private:
  std::vector<Access> pages_;
};

class MirrorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = FileArena::make();
    ASSERT_TRUE(made.ok()) << lastErrorText();
    arena_ = std::move(*made);
  }
  std::unique_ptr<Mirror> fileMirror(void* address, std::size_t bytes, Access access) {
    auto made = makeFileMirror({address, bytes, kHugePageBytes, access}, *arena_, pinner_);
    EXPECT_TRUE(made.ok()) << lastErrorText();
    return std::move(*made);
  }
  std::unique_ptr<Mirror> movedMirror(void* address, std::size_t bytes) {
    auto made = makeMovedMirror({address, bytes, kHugePageBytes, Access::kNone}, pinner_);
    EXPECT_TRUE(made.ok()) << lastErrorText();
    return std::move(*made);
  }

  CountingPinner pinner_;
  std::unique_ptr<FileArena> arena_;
};

TEST_F(MirrorTest, AFilesTwoViewsShowTheSameBytes) {
  const auto mirror = fileMirror(nullptr, 16 * kPage, Access::kReadWrite);
  auto* runtime = static_cast<std::byte*>(mirror->copyAddress(0));
  EXPECT_NE(runtime, mirror->address());
  mirror->address()[5000] = std::byte{1};
  EXPECT_EQ(runtime[5000], std::byte{1});
  static_cast<std::byte*>(mirror->copyAddress(6000))[0] = std::byte{2};
  EXPECT_EQ(mirror->address()[6000], std::byte{2});
}

// The kernel's flags of the mapping at an address, as /proc/self/smaps has them.
std::string flagsAt(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      here = reinterpret_cast<std::uintptr_t>(address) >= begin &&
             reinterpret_cast<std::uintptr_t>(address) < end;
    } else if (here && line.starts_with("VmFlags:")) {
      return line.substr(sizeof "VmFlags:" - 1) + " ";
    }
  }
  return {};
}

TEST_F(MirrorTest, AFileIsInACoreDumpOnceAndAtTheObjectsAddress) {
  const auto mirror = fileMirror(nullptr, 16 * kPage, Access::kNone);
  EXPECT_THAT(flagsAt(mirror->copyAddress(0)), HasSubstr(" dd "));
  EXPECT_THAT(flagsAt(mirror->address()),
              AllOf(HasSubstr(" sh "), ::testing::Not(HasSubstr(" dd "))));
}

TEST_F(MirrorTest, AFilesCopyAddressIsReachableWhileTheAppViewIsClosed) {
  const auto mirror = fileMirror(nullptr, 16 * kPage, Access::kReadWrite);
  ASSERT_TRUE(mirror->protect(0, 16 * kPage, Access::kNone).ok());
  EXPECT_EQ(accessAt(mirror->address()), Access::kNone);
  auto* runtime = static_cast<std::byte*>(mirror->copyAddress(0));
  std::memset(runtime, 7, 16 * kPage);
  ASSERT_TRUE(mirror->protect(kPage, kPage, Access::kRead).ok());
  EXPECT_EQ(accessAt(mirror->address()), Access::kNone);
  EXPECT_EQ(accessAt(mirror->address() + kPage), Access::kRead);
  EXPECT_EQ(accessAt(mirror->address() + 2 * kPage), Access::kNone);
  EXPECT_EQ(mirror->address()[kPage + 1], std::byte{7});
}

TEST_F(MirrorTest, AFileMirrorLeavesAClosedMappingWhereItWasPut) {
  auto place = reserve(4 * kMiB, kHugePageBytes);
  ASSERT_TRUE(place.ok());
  const Footprint before = measureFootprint();
  {
    const auto mirror = fileMirror(*place, 4 * kMiB, Access::kReadWrite);
    ASSERT_EQ(mirror->address(), *place);
    ASSERT_TRUE(mirror->prepare(0).ok());
    ASSERT_TRUE(mirror->prepare(1).ok());
    EXPECT_EQ(pinner_.live(), 2u);
    EXPECT_EQ(pinner_.lastFd, arena_->fd());
    std::memset(mirror->address(), 1, 4 * kMiB);
  }
  EXPECT_EQ(pinner_.live(), 0u);
  EXPECT_EQ(accessAt(*place), Access::kNone);
  EXPECT_EQ(measureFootprint(), before) << "pages of the file, or mappings, are left";
  ASSERT_TRUE(unmap(*place, 4 * kMiB).ok());
}

TEST_F(MirrorTest, FileMirrorsTakeAMappingEach) {
  constexpr std::size_t kMirrors = 100;
  auto place = reserve(kMirrors * 16 * kPage, kHugePageBytes);
  ASSERT_TRUE(place.ok());
  auto first = fileMirror(nullptr, kPage, Access::kRead);  // and the file's view
  const std::size_t before = gmac::testing::mappingCount();
  std::vector<std::unique_ptr<Mirror>> mirrors;
  for (std::size_t i = 0; i < kMirrors; ++i) {
    auto* const at = static_cast<std::byte*>(*place) + i * 16 * kPage;
    mirrors.push_back(fileMirror(at, 16 * kPage, i % 2 == 0 ? Access::kRead : Access::kNone));
  }
  EXPECT_LE(gmac::testing::mappingCount(), before + kMirrors);
  mirrors.clear();
  ASSERT_TRUE(unmap(*place, kMirrors * 16 * kPage).ok());
}

// Views of the file do not follow each other in memory: a range lies in one of them.
TEST_F(MirrorTest, RangesBeyondAViewOfTheFileAreWhole) {
  constexpr std::size_t kGiB = 1024 * kMiB;
  const auto expectWhole = [&](std::int64_t offset, std::size_t bytes) {
    std::byte* const view = arena_->view(offset);
    view[0] = std::byte{1};
    view[bytes - 1] = std::byte{2};
    const auto mappings = readMappings();
    ASSERT_TRUE(mappings.ok());
    EXPECT_EQ(tightestAccess(*mappings, reinterpret_cast<std::uintptr_t>(view), bytes),
              Access::kReadWrite);
  };
  std::vector<std::pair<std::int64_t, std::size_t>> ranges;
  for (const std::size_t bytes : {40 * kGiB, 40 * kGiB, 20 * kGiB, 4 * kGiB, 100 * kGiB}) {
    auto offset = arena_->allocate(bytes);
    ASSERT_TRUE(offset.ok()) << lastErrorText();
    for (const auto& [begin, length] : ranges) {
      EXPECT_TRUE(*offset >= begin + static_cast<std::int64_t>(length) ||
                  *offset + static_cast<std::int64_t>(bytes) <= begin);
    }
    ranges.emplace_back(*offset, bytes);
    expectWhole(*offset, bytes);
  }
  EXPECT_EQ(ranges[2].first, static_cast<std::int64_t>(40 * kGiB)) << "the end of the first view";
  for (const auto& [begin, length] : ranges) {
    arena_->free(begin, length);
  }
  auto offset = arena_->allocate(90 * kGiB);
  ASSERT_TRUE(offset.ok()) << lastErrorText();
  expectWhole(*offset, 90 * kGiB);
}

TEST_F(MirrorTest, AReusedPartOfTheFileReadsAsZero) {
  for (int round = 0; round < 3; ++round) {
    const auto mirror = fileMirror(nullptr, 8 * kPage, Access::kReadWrite);
    for (std::size_t i = 0; i < 8 * kPage; i += 512) {
      ASSERT_EQ(mirror->address()[i], std::byte{0});
    }
    std::memset(mirror->address(), 0xff, 8 * kPage);
  }
}

TEST_F(MirrorTest, TheArenaJoinsFreedNeighbours) {
  std::vector<std::int64_t> offsets;
  for (int i = 0; i < 4; ++i) {
    auto offset = arena_->allocate(4 * kPage);
    ASSERT_TRUE(offset.ok());
    offsets.push_back(*offset);
  }
  arena_->free(offsets[1], 4 * kPage);
  arena_->free(offsets[3], 4 * kPage);
  arena_->free(offsets[2], 4 * kPage);
  auto joined = arena_->allocate(12 * kPage);
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(*joined, offsets[1]);
}

// Others may have it mapped.
TEST_F(MirrorTest, TheArenasFileNeverShrinks) {
  const auto mirror = fileMirror(nullptr, 4 * kPage, Access::kReadWrite);
  const std::optional<FilePlace> place = mirror->place(kPage);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->file, arena_->fd());
  EXPECT_NE(ftruncate(place->file, place->fileBytes - 1), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(fcntl(place->file, F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_FALSE(movedMirror(nullptr, 2 * kMiB)->place(0).has_value());
}

// Who has it mapped maps it anew when it has grown.
TEST_F(MirrorTest, TheArenasFileGrowsInLongSteps) {
  std::set<std::int64_t> lengths;
  for (int i = 0; i < 1000; ++i) {
    const auto offset = arena_->allocate(kMiB);
    ASSERT_TRUE(offset.ok());
    const std::optional<FilePlace> place = arena_->place(*offset);
    ASSERT_TRUE(place.has_value());
    ASSERT_LE(*offset + static_cast<std::int64_t>(kMiB), place->fileBytes);
    lengths.insert(place->fileBytes);
  }
  EXPECT_LE(lengths.size(), 5U);
}

TEST_F(MirrorTest, TheArenasFileGrowsByLessUnderALimit) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit low{10 * kMiB, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const auto fits = arena_->allocate(8 * kMiB);
  const auto beyond = arena_->allocate(8 * kMiB);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_TRUE(fits.ok());
  EXPECT_EQ(beyond.status().code(), adsmErrorHostMemory);
  EXPECT_EQ(arena_->place(*fits)->fileBytes, static_cast<std::int64_t>(8 * kMiB));
}

TEST_F(MirrorTest, TenThousandMirrorsTakeOneFileDescriptor) {
  const Footprint before = measureFootprint();
  std::vector<std::unique_ptr<Mirror>> mirrors;
  for (int i = 0; i < 10000; ++i) {
    mirrors.push_back(fileMirror(nullptr, kPage, Access::kReadWrite));
    *mirrors.back()->address() = static_cast<std::byte>(i);
  }
  EXPECT_EQ(measureFootprint().fileDescriptors, before.fileDescriptors);
  for (int i = 0; i < 10000; ++i) {
    ASSERT_EQ(*mirrors[static_cast<std::size_t>(i)]->address(), static_cast<std::byte>(i));
  }
  mirrors.clear();
  EXPECT_EQ(measureFootprint(), before);
}

TEST_F(MirrorTest, AMovedMirrorsPagesArriveWithTheirProtections) {
  const auto mirror = movedMirror(nullptr, 4 * kMiB);
  EXPECT_EQ(accessAt(mirror->address()), Access::kNone);
  ASSERT_TRUE(mirror->prepare(1).ok());
  EXPECT_EQ(pinner_.lastFd, -1);
  static_cast<std::byte*>(mirror->copyAddress(2 * kMiB + 5 * kPage))[3] = std::byte{9};
  ASSERT_TRUE(mirror->install(1, Pages({Access::kNone, Access::kReadWrite, Access::kRead})).ok());
  for (std::size_t page = 0; page < 9; ++page) {
    const Access expected[] = {Access::kNone, Access::kReadWrite, Access::kRead};
    const std::size_t offset = 2 * kMiB + page * kPage;
    EXPECT_EQ(accessAt(mirror->address() + offset), expected[offset / kPage % 3]) << page;
  }
  EXPECT_EQ(accessAt(mirror->address()), Access::kNone) << "the other chunk is not there yet";
  ASSERT_TRUE(mirror->protect(2 * kMiB, 2 * kMiB, Access::kRead).ok());
  EXPECT_EQ(mirror->address()[2 * kMiB + 5 * kPage + 3], std::byte{9});
}

TEST_F(MirrorTest, AMovedMirrorProtectsInstalledChunksOnly) {
  const auto mirror = movedMirror(nullptr, 6 * kMiB);
  ASSERT_TRUE(mirror->prepare(1).ok());
  ASSERT_TRUE(mirror->install(1, Pages({Access::kNone})).ok());
  ASSERT_TRUE(mirror->protect(0, 6 * kMiB, Access::kReadWrite).ok());
  EXPECT_EQ(accessAt(mirror->address()), Access::kNone);
  EXPECT_EQ(accessAt(mirror->address() + 2 * kMiB), Access::kReadWrite);
  EXPECT_EQ(accessAt(mirror->address() + 4 * kMiB), Access::kNone);
}

TEST_F(MirrorTest, NothingIsOpenWhileAChunkMoves) {
  // The first protection change closes the staging pages, the second opens a run at its place:
  // between the two the whole chunk must be closed, which is what remains when the second fails.
  const auto mirror = movedMirror(nullptr, 2 * kMiB);
  ASSERT_TRUE(mirror->prepare(0).ok());
  failNext(Call::kProtect, 2, EACCES);
  EXPECT_FALSE(mirror->install(0, Pages({Access::kRead})).ok());
  auto mappings = readMappings();
  ASSERT_TRUE(mappings.ok());
  EXPECT_EQ(loosestAccess(*mappings, reinterpret_cast<std::uintptr_t>(mirror->address()), 2 * kMiB),
            Access::kNone);
}

TEST_F(MirrorTest, AnInstallThatFailedCanBeRepeated) {
  for (const auto& [call, n] :
       {std::pair{Call::kProtect, 1}, {Call::kMove, 1}, {Call::kProtect, 2}, {Call::kProtect, 3}}) {
    const auto mirror = movedMirror(nullptr, 2 * kMiB);
    ASSERT_TRUE(mirror->prepare(0).ok());
    static_cast<std::byte*>(mirror->copyAddress(0))[1] = std::byte{5};
    const Pages pages({Access::kRead});
    failNext(call, n, EACCES);
    EXPECT_FALSE(mirror->install(0, pages).ok());
    EXPECT_THAT(lastErrorText(), HasSubstr("Permission denied"));
    ASSERT_TRUE(mirror->prepare(0).ok());
    ASSERT_TRUE(mirror->install(0, pages).ok()) << lastErrorText();
    EXPECT_EQ(mirror->address()[1], std::byte{5});
    EXPECT_EQ(pinner_.live(), 1u);
  }
  EXPECT_EQ(pinner_.live(), 0u);
}

TEST_F(MirrorTest, AMovedMirrorLeavesAClosedMappingWhereItWasPut) {
  auto place = reserve(4 * kMiB, kHugePageBytes);
  ASSERT_TRUE(place.ok());
  const Footprint before = measureFootprint();
  {
    const auto mirror = movedMirror(*place, 4 * kMiB);
    for (const std::size_t chunk : {0, 1}) {
      ASSERT_TRUE(mirror->prepare(chunk).ok());
      ASSERT_TRUE(mirror->install(chunk, Pages({Access::kReadWrite})).ok());
    }
  }
  EXPECT_EQ(pinner_.live(), 0u);
  EXPECT_EQ(accessAt(*place), Access::kNone);
  EXPECT_EQ(measureFootprint(), before);
  ASSERT_TRUE(unmap(*place, 4 * kMiB).ok());
}

TEST_F(MirrorTest, AMarginLiesAfterTheLastPageUntilItIsRemoved) {
  auto place = reserve(4 * kMiB, kHugePageBytes);
  ASSERT_TRUE(place.ok());
  const Footprint before = measureFootprint();
  for (const bool moved : {false, true}) {
    auto mirror = moved ? movedMirror(*place, 16 * kPage)
                        : fileMirror(*place, 16 * kPage, Access::kReadWrite);
    std::byte* const end = mirror->address() + 16 * kPage;
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(accessAt(end), Access::kNone);
      ASSERT_TRUE(mirror->addMargin(4 * kPage).ok()) << lastErrorText();
      EXPECT_EQ(accessAt(end - 1), moved ? Access::kNone : Access::kReadWrite);
      EXPECT_EQ(accessAt(end + 4 * kPage), Access::kNone);
      EXPECT_EQ(end[4 * kPage - 1], std::byte{0});
      end[0] = std::byte{1};
      EXPECT_NE(flagsAt(end).find(" dc "), std::string::npos) << "children of fork lack it";
      round == 0 ? mirror->removeMargin() : mirror.reset();
    }
    EXPECT_EQ(accessAt(end), Access::kNone);
    for (const Call call : {Call::kMap, Call::kAdvise}) {
      mirror = movedMirror(*place, 16 * kPage);
      failNext(call, 1, ENOMEM);
      EXPECT_FALSE(mirror->addMargin(4 * kPage).ok());
      failNext(call, 0, 0);
      EXPECT_EQ(accessAt(end), Access::kNone);
      mirror.reset();
    }
  }
  EXPECT_EQ(measureFootprint(), before);
  ASSERT_TRUE(unmap(*place, 4 * kMiB).ok());
}

TEST_F(MirrorTest, APinThatFailsLeavesNothingPinned) {
  const auto file = fileMirror(nullptr, kPage, Access::kReadWrite);
  const auto moved = movedMirror(nullptr, 2 * kMiB);
  pinner_.failing = true;
  EXPECT_FALSE(file->prepare(0).ok());
  EXPECT_FALSE(moved->prepare(0).ok());
  EXPECT_STREQ(lastErrorText(), "no pins left");
  pinner_.failing = false;
  EXPECT_TRUE(file->prepare(0).ok());
  EXPECT_TRUE(moved->prepare(0).ok());
}

// ---- Checked calls

TEST(Memory, AnInjectedFailureHitsTheNthCallOfItsKindOnly) {
  auto place = reserve(4 * kPage, kPage);
  ASSERT_TRUE(place.ok());
  failNext(Call::kProtect, 2, EACCES);
  EXPECT_TRUE(injectionArmed());
  EXPECT_TRUE(protect(*place, kPage, Access::kRead).ok());
  EXPECT_TRUE(keepFromChildren(*place, kPage).ok());
  const Status failed = protect(*place, kPage, Access::kReadWrite);
  EXPECT_EQ(failed.code(), adsmErrorSystem);
  EXPECT_THAT(lastErrorText(), AllOf(HasSubstr("mprotect("), HasSubstr("4096 bytes"),
                                     HasSubstr("Permission denied")));
  EXPECT_EQ(accessAt(*place), Access::kRead);
  EXPECT_FALSE(injectionArmed());
  EXPECT_TRUE(protect(*place, kPage, Access::kReadWrite).ok());
  failNext(Call::kProtect, 1, ENOMEM);
  EXPECT_EQ(protect(*place, kPage, Access::kRead).code(), adsmErrorHostMemory);
  failNext(Call::kProtect, 1, ENOMEM);
  failNext(Call::kProtect, 0, 0);
  EXPECT_TRUE(protect(*place, kPage, Access::kRead).ok());
  EXPECT_TRUE(unmap(*place, 4 * kPage).ok());
}

TEST(Memory, ReservedAddressSpaceIsAlignedAndClosed) {
  for (const std::size_t alignment : {kPage, 16 * kPage, kHugePageBytes, 64 * kMiB}) {
    auto place = reserve(3 * kPage, alignment);
    ASSERT_TRUE(place.ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*place) % alignment, 0u);
    EXPECT_EQ(accessAt(*place), Access::kNone);
    EXPECT_TRUE(unmap(*place, 3 * kPage).ok());
  }
}

TEST(Memory, FailuresOfTheSystemCarryItsWords) {
  EXPECT_EQ(protect(reinterpret_cast<void*>(kPage), kPage, Access::kRead).code(),
            adsmErrorHostMemory);
  EXPECT_THAT(lastErrorText(), HasSubstr("Cannot allocate memory"));
  EXPECT_EQ(resizeFile(-1, 1).code(), adsmErrorSystem);
  EXPECT_THAT(lastErrorText(), HasSubstr("Bad file descriptor"));
}

}  // namespace
}  // namespace gmac::os
