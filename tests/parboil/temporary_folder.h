// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_TESTS_PARBOIL_TEMPORARY_FOLDER_H_
#define GMAC_TESTS_PARBOIL_TEMPORARY_FOLDER_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace parboil {

// A test with a folder of its own, removed afterwards.
class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "parboil-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  const std::filesystem::path& dir() const { return dir_; }

 private:
  std::filesystem::path dir_;
};

}  // namespace parboil

#endif  // GMAC_TESTS_PARBOIL_TEMPORARY_FOLDER_H_
