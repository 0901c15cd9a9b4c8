// SPDX-License-Identifier: Apache-2.0
//
// docs/datatypes.md shows the programs of docs/examples/halo as they are compiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace gmac {
namespace {

using ::testing::HasSubstr;

std::string contents(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " is not there";
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(HaloPage, HasTheProgramsAsTheyAreCompiled) {
  const std::string page = contents("docs/datatypes.md");
  for (const char* name : {"messages.h", "before.cu", "after.h", "after.c"}) {
    std::string text = contents(std::string("docs/examples/halo/") + name);
    // The text after the comment at the top.
    const std::size_t code = text.find(name == std::string("before.cu") ? "#include" : "#");
    ASSERT_NE(code, std::string::npos);
    EXPECT_THAT(page, HasSubstr(text.substr(code))) << name << " has changed";
  }
}

}  // namespace
}  // namespace gmac
