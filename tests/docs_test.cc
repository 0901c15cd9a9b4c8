// SPDX-License-Identifier: Apache-2.0
//
// docs/reference.md and docs/datatypes_reference.md agree with the code: every variable, every
// error, every function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "gmac/protocols/describe.h"
#include "gmac/session/config.h"

namespace gmac {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string contents(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " is not there";
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), Not(IsEmpty())) << path;
  return text.str();
}

const std::string& reference() {
  static const std::string text =
      contents("docs/reference.md") + contents("docs/datatypes_reference.md");
  return text;
}

const std::string& header() {
  static const std::string text =
      contents("gmac/api/adsm.h") + contents("gmac/api/adsm_datatype.h");
  return text;
}

// C as it reads however it is laid out: one space for every run of white space, none around stars
// and at the ends.
std::string plain(const std::string& text) {
  std::string result = std::regex_replace(text, std::regex("\\s+"), " ");
  result = std::regex_replace(result, std::regex(" ?\\* ?"), "*");
  result.erase(0, result.find_first_not_of(' '));
  result.erase(result.find_last_not_of(' ') + 1);
  return result;
}

// Every match's group of that number.
std::set<std::string> all(const std::string& text, const std::string& pattern, std::size_t group) {
  const std::regex expression(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end;
       ++match) {
    found.insert(plain((*match)[group]));
  }
  return found;
}

TEST(Reference, HasTheTableOfVariablesAsTheCodeHasIt) {
  EXPECT_THAT(reference(), HasSubstr(describeConfig())) << "the table must be:\n"
                                                        << describeConfig();
}

TEST(Reference, HasTheTablesOfTheProtocolsAsTheCodeHasThem) {
  EXPECT_THAT(reference(), HasSubstr(describeProtocols())) << "the tables must be:\n"
                                                           << describeProtocols();
}

TEST(Reference, HasTheTableOfTransitsAsTheCodeHasIt) {
  EXPECT_THAT(reference(), HasSubstr(describeTransits())) << "the table must be:\n"
                                                          << describeTransits();
}

TEST(Reference, HasEveryFunctionOfTheApiAndNoOther) {
  const auto declared = all(header(), "\nADSM_API ([^;]*;)", 1);
  ASSERT_THAT(declared, testing::Contains("void*adsmAlloc(size_t size);"));
  // The statements in blocks of C.
  std::set<std::string> described;
  const std::regex block("\n```c\n([^`]*)```");
  for (std::sregex_iterator match(reference().begin(), reference().end(), block), end; match != end;
       ++match) {
    described.merge(all((*match)[1], "([^;]*;)", 1));
  }
  EXPECT_EQ(described, declared);
}

TEST(Reference, HasEveryErrorWithItsNumberAndNoOther) {
  const auto numbersByName = [](const std::string& text, const std::string& pattern) {
    const std::regex expression(pattern);
    std::map<std::string, std::string> found;
    for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end;
         ++match) {
      found[(*match)[1]] = (*match)[2];
    }
    return found;
  };
  const auto declared = numbersByName(header(), "\n  (adsm(?:Success|Error\\w+))\\s*=\\s*(\\d+)");
  ASSERT_EQ(declared.count("adsmErrorInvalidValue"), 1U);
  EXPECT_EQ(numbersByName(reference(), "\n\\| `(adsm(?:Success|Error\\w+))` \\| (\\d+) \\|"),
            declared);
}

TEST(Guide, NamesOnlyVariablesThatExist) {
  const auto existing = all(describeConfig(), "GMAC_\\w+", 0);
  for (const char* page : {"docs/guide.md", "docs/reference.md"}) {
    for (const std::string& name : all(contents(page), "GMAC_\\w+", 0)) {
      EXPECT_EQ(existing.count(name), 1U) << page << " names " << name;
    }
  }
}

TEST(Guide, NamesOnlyWhatTheApiHas) {
  // adsmOwnCudart_ and the like are the header's own.
  const auto existing = all(header(), "\\b(?:adsm|ADSM_)\\w+", 0);
  for (const char* page : {"docs/guide.md", "docs/reference.md"}) {
    for (const std::string& name : all(contents(page), "\\b(?:adsm[A-Z]|ADSM_)\\w+", 0)) {
      EXPECT_EQ(existing.count(name), 1U) << page << " names " << name;
    }
  }
}

}  // namespace
}  // namespace gmac
