// SPDX-License-Identifier: Apache-2.0
//
// A CUDA program that replaced cudaMalloc by adsmAlloc and kept everything else, with the static
// CUDA runtime, on a real GPU through the `cuda` accelerator.
#include "tests/cuda/port.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gmac::port {
namespace {

class Port : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = whyNoDevice(); !why.empty()) GTEST_SKIP() << why;
    setenv("GMAC_ACCEL", "cuda", 0);
  }
};

TEST_F(Port, LaunchesOnTheDefaultStream) { EXPECT_EQ(launchesOnTheDefaultStream(), ""); }
TEST_F(Port, LaunchesOnAStreamOfItsOwn) { EXPECT_EQ(launchesOnAStreamOfItsOwn(), ""); }
TEST_F(Port, WaitsForAnEvent) { EXPECT_EQ(waitsForAnEvent(), ""); }
TEST_F(Port, ReadsWithoutWaiting) { EXPECT_EQ(readsWithoutWaiting(), ""); }
TEST_F(Port, CopiesInEveryDirection) { EXPECT_EQ(copiesInEveryDirection(), ""); }
TEST_F(Port, CopiesRows) { EXPECT_EQ(copiesRows(), ""); }
TEST_F(Port, FillsAndFillsLater) { EXPECT_EQ(fillsAndFillsLater(), ""); }
TEST_F(Port, ReplaysAGraph) { EXPECT_EQ(replaysAGraph(), ""); }
TEST_F(Port, CopiesSafeObjects) { EXPECT_EQ(copiesSafeObjects(), ""); }
TEST_F(Port, RefusesWhatItCannotServe) { EXPECT_EQ(refusesWhatItCannotServe(), ""); }
TEST_F(Port, AnswersForPointers) { EXPECT_EQ(answersForPointers(), ""); }

}  // namespace
}  // namespace gmac::port
