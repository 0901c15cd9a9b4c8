// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/measured_values.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace gmac::datatype {
namespace {

class MeasuredFileTest : public testing::Test {
 protected:
  ~MeasuredFileTest() override { ::unsetenv("XDG_CACHE_HOME"); }

  std::string path() const { return cache_ + "/gmac/kind_A_Device_1"; }
  void put(const std::string& text) const { std::ofstream(path()) << text; }

  // An empty cache, before the file is named.
  static std::string newCache() {
    std::string cache = testing::TempDir() + "measured_values";
    std::filesystem::remove_all(cache);
    std::filesystem::create_directories(cache);
    ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    return cache;
  }

  const std::string cache_ = newCache();
  double one_ = 1.5;
  double two_ = 2.25;
  const std::array<MeasuredValue, 2> values_{MeasuredValue{"one", &one_},
                                             MeasuredValue{"two", &two_}};
  const MeasuredFile file_{"A Device-1", "kind", "first line 1"};
};

TEST_F(MeasuredFileTest, GivesBackWhatItWasGiven) {
  EXPECT_FALSE(file_.read(values_));
  file_.write(values_);
  one_ = two_ = 0;
  EXPECT_TRUE(file_.read(values_));
  EXPECT_EQ(one_, 1.5);
  EXPECT_EQ(two_, 2.25);
  EXPECT_TRUE(std::filesystem::exists(path()));
}

TEST_F(MeasuredFileTest, IsOfOneDeviceAndVersion) {
  file_.write(values_);
  EXPECT_FALSE(MeasuredFile("Another Device", "kind", "first line 1").read(values_));
  EXPECT_FALSE(MeasuredFile("A Device-1", "other", "first line 1").read(values_));
  EXPECT_FALSE(MeasuredFile("A Device-1", "kind", "first line 2").read(values_));
}

TEST_F(MeasuredFileTest, IsReadWholeOrNotAtAll) {
  file_.write(values_);
  put("first line 1\none 3\n");
  EXPECT_FALSE(file_.read(values_));
  put("first line 1\none 3\ntwo -1\n");
  EXPECT_FALSE(file_.read(values_));
  put("first line 1\none 3\ntwo x\n");
  EXPECT_FALSE(file_.read(values_));
  put("");
  EXPECT_FALSE(file_.read(values_));
  put("first line 1\none 3\ntwo 4\n");
  EXPECT_TRUE(file_.read(values_));
  EXPECT_EQ(two_, 4);
}

TEST_F(MeasuredFileTest, LeavesNothingElseBehind) {
  file_.write(values_);
  file_.write(values_);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(cache_ + "/gmac")) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 1U);
}

TEST(MeasuredFile, IsDoneWithoutWhereThereIsNoPlace) {
  ::setenv("XDG_CACHE_HOME", "/proc/none", 1);
  double value = 1;
  const std::array values{MeasuredValue{"value", &value}};
  const MeasuredFile file("device", "kind", "first line");
  file.write(values);
  EXPECT_FALSE(file.read(values));
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace gmac::datatype
