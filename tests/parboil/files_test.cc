// SPDX-License-Identifier: Apache-2.0
#include "parboil/files.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "parboil/comparison.h"
#include "parboil/values.h"
#include "tests/support/temporary_folder.h"

namespace parboil {
namespace {

constexpr FileFormat kFormat{"test.in", 3};

class Files : public gmac::testing::FolderTest {
 protected:
  std::filesystem::path path() const { return folder_ / "file"; }
  void writeFile() const { writeValues<int>(path(), kFormat, Size::kMedium, {1, 2, 3}); }
};

TEST_F(Files, GiveBackWhatWasWritten) {
  writeFile();
  EXPECT_TRUE(isCurrent(path(), kFormat, Size::kMedium));
  EXPECT_EQ(readValues<int>(path(), kFormat, Size::kMedium), (std::vector<int>{1, 2, 3}));
}

TEST_F(Files, OfAnotherVersionKindOrSizeCountAsAbsent) {
  writeFile();
  EXPECT_FALSE(isCurrent(path(), {"test.in", 4}, Size::kMedium));
  EXPECT_FALSE(isCurrent(path(), {"other.in", 3}, Size::kMedium));
  EXPECT_FALSE(isCurrent(path(), kFormat, Size::kLarge));
  EXPECT_THROW(InputFile(path(), {"test.in", 4}, Size::kMedium), Failure);
}

TEST_F(Files, ThatWereCutOrGrewCountAsAbsent) {
  writeFile();
  const auto whole = std::filesystem::file_size(path());
  for (const std::uintmax_t size : {whole - 1, whole + 1, std::uintmax_t{63}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(path(), size);
    EXPECT_FALSE(isCurrent(path(), kFormat, Size::kMedium)) << size;
    EXPECT_THROW(InputFile(path(), kFormat, Size::kMedium), Failure) << size;
  }
}

TEST_F(Files, ThatWereNotCommittedNeverExisted) {
  {
    OutputFile file(path(), kFormat, Size::kMedium);
    file.write("half", 4);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Files, KeepTheOldOneUntilTheNewOneIsComplete) {
  writeFile();
  OutputFile file(path(), kFormat, Size::kMedium);
  file.write("half", 4);
  EXPECT_EQ(readValues<int>(path(), kFormat, Size::kMedium).size(), 3u);
  file.commit();
  EXPECT_EQ(readValues<int>(path(), kFormat, Size::kMedium).size(), 1u);
}

TEST_F(Files, CannotBeReadPastTheirEnd) {
  writeFile();
  InputFile file(path(), kFormat, Size::kMedium);
  int values[4];
  EXPECT_THROW(file.read(values, sizeof values), Failure);
}

TEST_F(Files, ThatCannotBeWrittenAreNamed) {
  try {
    OutputFile file(folder_ / "missing" / "file", kFormat, Size::kSmall);
    FAIL() << "written into a folder that is not there";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("missing/file"), std::string::npos)
        << failure.what();
  }
}

TEST_F(Files, OfReferencesAreComputedAgainWhenTheInputIsNewer) {
  const Context context{Size::kMedium, folder_};
  constexpr FileFormat kReference{"test.ref", 1};
  const auto input = dataPath(context, "test", "in");
  writeValues<int>(input, kFormat, Size::kMedium, {1});
  int computed = 0;
  const auto compute = [&] { return std::vector<int>{++computed}; };
  EXPECT_EQ(keptReference<int>(context, "test", kReference, compute), std::vector<int>{1});
  EXPECT_EQ(keptReference<int>(context, "test", kReference, compute), std::vector<int>{1});
  std::filesystem::last_write_time(
      input, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(keptReference<int>(context, "test", kReference, compute), std::vector<int>{2});
}

TEST(Comparison, AllowsExactlyTheTolerance) {
  Comparison within(0.5, 0.25);
  within.add(2.0, 1.25);
  within.add(-1.0, -2.0);
  EXPECT_TRUE(within.result().ok) << within.result().detail;
  Comparison beyond(0.5, 0.25);
  beyond.add(4.0, 2.5);
  EXPECT_FALSE(beyond.result().ok) << beyond.result().detail;
}

TEST(Comparison, NeverAllowsWhatIsNotANumberOrNothing) {
  EXPECT_FALSE(Comparison(1e30, 1e30).result().ok);
  Comparison nan(1e30, 1e30);
  nan.add(std::numeric_limits<double>::quiet_NaN(), 0);
  EXPECT_FALSE(nan.result().ok);
  Comparison infinite(1e30, 0);
  infinite.add(std::numeric_limits<double>::infinity(), 0);
  EXPECT_FALSE(infinite.result().ok);
}

}  // namespace
}  // namespace parboil
