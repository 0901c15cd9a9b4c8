// SPDX-License-Identifier: Apache-2.0
#include "parboil/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parboil/options.h"

namespace parboil {
namespace {

using ::testing::HasSubstr;

// The message and status of a command line that is wrong.
std::pair<std::string, int> complaint(const std::vector<std::string>& arguments) {
  try {
    static_cast<void>(parseOptions(arguments));
  } catch (const UsageError& error) {
    return {error.what(), error.status()};
  }
  return {"no complaint", -1};
}

TEST(CommandLine, WithoutArgumentsMeansAllNineSmallAndRolling) {
  const Options options = parseOptions({});
  EXPECT_EQ(options.benchmarks.size(), 9u);
  EXPECT_EQ(options.accelerator, "");
  EXPECT_EQ(options.protocols, std::vector<std::string>{"rolling"});
  EXPECT_EQ(options.size, Size::kSmall);
  EXPECT_EQ(options.repeat, 1u);
  EXPECT_TRUE(options.json.empty());
}

TEST(CommandLine, TakesNamesAndValuesInAnyOrder) {
  const Options options = parseOptions({"stencil", "--size", "large", "cp", "--protocol=all", "cp",
                                        "--accel", "host", "--repeat", "3", "--json", "x"});
  ASSERT_EQ(options.benchmarks.size(), 2u);
  EXPECT_STREQ(options.benchmarks[0]->name, "stencil");
  EXPECT_STREQ(options.benchmarks[1]->name, "cp");
  EXPECT_EQ(options.protocols, (std::vector<std::string>{"rolling", "lazy", "batch"}));
  EXPECT_EQ(options.size, Size::kLarge);
  EXPECT_EQ(options.accelerator, "host");
  EXPECT_EQ(options.repeat, 3u);
  EXPECT_EQ(options.json, "x");
}

TEST(CommandLine, AnswersAWrongNameWithTheRightOnes) {
  const auto [text, status] = complaint({"cp", "mri"});
  EXPECT_EQ(status, 2);
  EXPECT_THAT(text, HasSubstr("'mri'"));
  EXPECT_THAT(text, HasSubstr("cp, mri-fhd, mri-q, pns, rpes, sad, tpacf, stencil, vecadd"));
}

TEST(CommandLine, AnswersAWrongValueWithTheRightOnes) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--protocol", "eager", "rolling, lazy, batch, all"},
      {"--accel", "gpu", "cuda, cudart, host"},
      {"--accel", "", "cuda, cudart, host"},
      {"--size", "huge", "small, medium, large"},
      {"--repeat", "0", "1 to 1000"},
  };
  for (const auto& line : wrong) {
    const auto [text, status] = complaint({line[0], line[1]});
    EXPECT_EQ(status, 2) << line[0];
    EXPECT_THAT(text, HasSubstr(line[2])) << line[0];
  }
}

TEST(CommandLine, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(complaint({"--frobnicate"}).second, 2);
  EXPECT_EQ(complaint({"--size"}).second, 2);
  EXPECT_EQ(complaint({"--repeat", "many"}).second, 2);
}

TEST(CommandLine, HelpListsEverythingAndIsNoError) {
  const auto [text, status] = complaint({"--help"});
  EXPECT_EQ(status, 0);
  for (const char* word : {"tpacf", "cudart", "batch", "medium", "--json", "--repeat"}) {
    EXPECT_THAT(text, HasSubstr(word));
  }
}

Run goodRun(const char* benchmark, double seconds) {
  return {benchmark, "host", "lazy", Size::kMedium, seconds, Traffic{2500000, 1300000, 2, 3, 4},
          true,      ""};
}

TEST(Report, ShowsTheRunOfMedianTime) {
  const std::string table =
      toTable({goodRun("cp", 0.5), goodRun("cp", 0.125), goodRun("cp", 0.25), goodRun("sad", 8)});
  EXPECT_THAT(table, HasSubstr("0.2500"));
  EXPECT_THAT(table, ::testing::Not(HasSubstr("0.1250")));
  EXPECT_THAT(table, HasSubstr("8.0000"));
  EXPECT_THAT(table, ::testing::ContainsRegex("2\\.5 +1\\.3 +5 +4 +yes"));
}

TEST(Report, NeverHidesAFailureBehindTheMedian) {
  parboil::Run failed = goodRun("cp", 0);
  failed.seconds.reset();
  failed.traffic.reset();
  failed.checked = false;
  failed.error = "killed by signal 11";
  const std::string table = toTable({goodRun("cp", 0.5), failed, goodRun("cp", 0.5)});
  EXPECT_THAT(table, HasSubstr("failed"));
  EXPECT_THAT(table, HasSubstr("NO"));
  EXPECT_THAT(table, HasSubstr("cp, lazy: killed by signal 11"));
}

TEST(Report, JsonHasEveryRunWithTheDocumentedKeys) {
  const auto json = toJson({goodRun("cp", 0.5), goodRun("cp", 0.25)});
  ASSERT_EQ(json.at("runs").size(), 2u);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.at("runs")[1].items()) keys.push_back(key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"benchmark", "accelerator", "protocol", "size", "seconds",
                                      "checked", "bytesToAccelerator", "bytesToHost", "readFaults",
                                      "writeFaults", "evictions"}));
  EXPECT_EQ(json.at("runs")[1].at("seconds"), 0.25);
  EXPECT_EQ(json.at("runs")[1].at("size"), "medium");
  EXPECT_EQ(json.at("runs")[1].at("bytesToHost"), 1300000);
}

TEST(Report, StatisticsThatLackACounterAreRefused) {
  nlohmann::json statistics = {{"bytesToAccelerator", 1},
                               {"bytesToHost", 2},
                               {"readFaults", 3},
                               {"writeFaults", 4},
                               {"evictions", 5}};
  EXPECT_EQ(readTraffic(statistics).writeFaults, 4u);
  statistics.erase("evictions");
  EXPECT_THROW(static_cast<void>(readTraffic(statistics)), nlohmann::json::exception);
}

}  // namespace
}  // namespace parboil
