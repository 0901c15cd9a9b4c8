// SPDX-License-Identifier: Apache-2.0
//
// Where the pace of short rows comes from, and what is done without one. (What is measured needs a
// GPU, and is in the results.)
#include "gmac/datatype/pace_measurement.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "gmac/datatype/measured_values.h"
#include "tests/datatype/direct_device.h"

namespace gmac::datatype {
namespace {

using testing::DirectAccelerator;
using testing::DirectDevice;

class PaceOf : public ::testing::Test {
 protected:
  PaceOf() {
    std::filesystem::remove_all(cache_);
    std::filesystem::create_directories(cache_);
    ::setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
    device_.setMultiprocessors({3, 1000});
  }
  ~PaceOf() override { ::unsetenv("XDG_CACHE_HOME"); }

  void store(double row, double byte) const {
    const std::array values{MeasuredValue{"row", &row}, MeasuredValue{"byte", &byte}};
    MeasuredFile("this process", "pack_pace", "gmac pack pace 1").write(values);
  }
  bool isStored(double row, double byte) const {
    double storedRow = -1;
    double storedByte = -1;
    const std::array values{MeasuredValue{"row", &storedRow}, MeasuredValue{"byte", &storedByte}};
    return MeasuredFile("this process", "pack_pace", "gmac pack pace 1").read(values) &&
           storedRow == row && storedByte == byte;
  }
  static void expectNone(const RowPace& pace) {
    EXPECT_EQ(pace.multiprocessors, 0U);
    EXPECT_EQ(pace.row, 0);
    EXPECT_EQ(pace.byte, 0);
    EXPECT_EQ(pace.interval(32, 8), 0U);
  }

  const std::string cache_ = ::testing::TempDir() + "pace_measurement";
  DirectAccelerator accelerator_;
  DirectDevice device_{accelerator_};
};

TEST_F(PaceOf, IsWhatAnEarlierProcessHasStored) {
  store(5, 0.0625);
  accelerator_.failNext(DirectAccelerator::Call::kAllocate, 1);
  const RowPace pace = paceOf(device_);
  EXPECT_EQ(pace.multiprocessors, 3U);
  EXPECT_EQ(pace.row, 5);
  EXPECT_EQ(pace.byte, 0.0625);
  EXPECT_EQ(pace.interval(32, 8), 160U);
}

TEST_F(PaceOf, MayBeThatThereIsNothingToGain) {
  store(0, 0.0625);
  accelerator_.failNext(DirectAccelerator::Call::kAllocate, 1);
  const RowPace pace = paceOf(device_);
  EXPECT_EQ(pace.multiprocessors, 3U);
  EXPECT_EQ(pace.interval(32, 8), 0U);
}

TEST_F(PaceOf, IsMeasuredAnewWhereNoDeviceIsAsSlowAsStored) {
  for (const auto& [row, byte] : {std::pair(1e9, 0.06), std::pair(5.0, 1e9), std::pair(5.0, 0.0)}) {
    store(row, byte);
    // Which cannot be done here.
    accelerator_.failNext(DirectAccelerator::Call::kAllocate, 1);
    expectNone(paceOf(device_));
    EXPECT_TRUE(isStored(row, byte));
  }
}

TEST_F(PaceOf, IsNoneWhereItCannotBeMeasured) {
  accelerator_.failNext(DirectAccelerator::Call::kAllocate, 1);
  expectNone(paceOf(device_));
  device_.failLaunch(1);
  expectNone(paceOf(device_));
  EXPECT_EQ(accelerator_.liveAllocations(), 0U);
  EXPECT_TRUE(std::filesystem::is_empty(cache_ + "/gmac"));
}

TEST_F(PaceOf, IsNoneWithoutMultiprocessors) {
  store(5, 0.0625);
  device_.setMultiprocessors({});
  expectNone(paceOf(device_));
}

}  // namespace
}  // namespace gmac::datatype
