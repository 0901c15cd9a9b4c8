// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
#define GMAC_TESTS_SUPPORT_TEMPORARY_FOLDER_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace gmac::testing {

// A test with a folder of its own, removed afterwards.
class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "gmac-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path folder_;
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
