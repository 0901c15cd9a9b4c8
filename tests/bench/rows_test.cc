// SPDX-License-Identifier: Apache-2.0
//
// The gate: an impossible figure counts as not measured, however well it meets its target.
#include "bench/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gmac::bench {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<Plausible> kOverLaunch = {{"launch", {0.05, 200}}, {"over", {-2, 10000}}};

Row row(double value, const std::string& notMeasured = "") {
  return {"over", value, "us", Target{Sense::kAtMost, 20}, json::object(), notMeasured};
}

TEST(Gate, TakesWhatIsPlausible) {
  EXPECT_EQ(whyNotMeasured({{"launch", 4.8}, {"over", 0.2}}, kOverLaunch), "");
  EXPECT_EQ(whyNotMeasured({{"launch", 4.8}, {"over", -0.1}}, kOverLaunch), "")
      << "less than the machine's unrest below its base";
  EXPECT_EQ(whyNotMeasured({{"seconds", 1e300}}, {{"seconds", {}}}), "");
}

TEST(Gate, ANegativeFigureIsNotMeasured) {
  EXPECT_EQ(whyNotMeasured({{"launch", 4.8}, {"over", -368.667}}, kOverLaunch),
            "over is -368.667; plausible is -2 to 10000");
  EXPECT_EQ(whyNotMeasured({{"seconds", -1e-9}}, {{"seconds", {}}}),
            "seconds is -0.000; plausible is 0 to more");
}

TEST(Gate, AFigureOverAnImplausibleBaseIsNotMeasured) {
  EXPECT_EQ(whyNotMeasured({{"launch", 377.2}, {"over", 1}}, kOverLaunch),
            "launch is 377.200; plausible is 0.05 to 200");
}

TEST(Gate, WhatIsNoNumberIsNotMeasured) {
  for (const json& value : {json(), json("4"), json(true)}) {
    EXPECT_EQ(whyNotMeasured({{"launch", 4.8}, {"over", value}}, kOverLaunch), "over is no number");
  }
  EXPECT_EQ(whyNotMeasured({{"launch", 4.8}}, kOverLaunch), "over is no number");
  for (const double value : std::vector<double>{std::nan(""), INFINITY, -INFINITY}) {
    EXPECT_THAT(whyNotMeasured({{"over", value}}, {{"over", {0, 10}}}), HasSubstr("over is "));
    EXPECT_THAT(whyNotMeasured({{"over", value}}, {{"over", {}}}), HasSubstr("over is "));
  }
}

TEST(Gate, FailsForWhatIsNotMeasuredWithOrWithoutATarget) {
  EXPECT_TRUE(row(-368.667).met()) << "by its target alone";
  Row without = row(5, "over is -3");
  without.target.reset();
  for (const Row& one : {row(5, "over is -3"), without}) {
    EXPECT_FALSE(one.met());
    EXPECT_THAT(misses({one}, json::object()), ElementsAre("over: not measured: over is -3"));
    EXPECT_THAT(table({one}, {}), HasSubstr("NOT MEASURED: over is -3"));
    EXPECT_THAT(table({one}, {}), Not(HasSubstr("  met")));
    const json told = rowsJson({one}, {})["rows"][0];
    EXPECT_EQ(told["met"], false);
    EXPECT_EQ(told["notMeasured"], "over is -3");
  }
}

TEST(Gate, OfNothingIsNotPassed) {
  EXPECT_EQ(whyNoRows("typo", {}, {}), "no row's name contains 'typo'");
  EXPECT_EQ(whyNoRows("over", {row(1)}, {}), "");
  EXPECT_EQ(whyNoRows("cuda", {}, {"over, cuda: no CUDA GPU"}), "");
}

TEST(Gate, FailsForMissesAndForWhatIsWorseThanBefore) {
  const json baseline = {{"rows", {{"over", {{"value", 2.0}, {"tolerance", 1.5}}}}}};
  EXPECT_THAT(misses({row(2.9)}, baseline), IsEmpty());
  EXPECT_THAT(misses({row(3.1)}, baseline), ElementsAre(HasSubstr("worse than the baseline's")));
  EXPECT_THAT(misses({row(21)}, json::object()), ElementsAre("over: 21.000 us, target <= 20"));
  EXPECT_THAT(table({row(21)}, {"x: no GPU"}),
              testing::AllOf(HasSubstr("MISSED"), HasSubstr("not measured: x: no GPU")));
  EXPECT_THAT(table({row(2)}, {}), HasSubstr("  met"));
  EXPECT_FALSE(rowsJson({row(2)}, {})["rows"][0].contains("notMeasured"));
}

}  // namespace
}  // namespace gmac::bench
