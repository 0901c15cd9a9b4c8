// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/status.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace gmac {
namespace {

TEST(Status, IsOkUntilAnErrorIsGiven) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), adsmSuccess);
  EXPECT_FALSE(Status(adsmErrorLaunch).ok());
  EXPECT_EQ(Status(adsmErrorLaunch).code(), adsmErrorLaunch);
}

TEST(Status, FailRecordsTheFormattedTextAndItsCode) {
  const Status status = fail(adsmErrorInvalidValue, "size {} of {}", 17, "an object");
  EXPECT_EQ(status.code(), adsmErrorInvalidValue);
  EXPECT_EQ(lastErrorCode(), adsmErrorInvalidValue);
  EXPECT_STREQ(lastErrorText(), "size 17 of an object");
}

TEST(Status, TextThatIsTooLongIsCutAndTerminated) {
  const std::string longText(3 * kErrorTextBytes, 'x');
  EXPECT_FALSE(fail(adsmErrorSystem, "{}", longText).ok());
  EXPECT_EQ(std::strlen(lastErrorText()), kErrorTextBytes - 1);
  EXPECT_EQ(longText.compare(0, kErrorTextBytes - 1, lastErrorText()), 0);
}

TEST(Status, TextMayQuoteTheLastError) {
  recordError(adsmErrorSystem, "out of mappings");
  EXPECT_FALSE(fail(adsmErrorHostMemory, "adsmAlloc: {}", lastErrorText()).ok());
  EXPECT_STREQ(lastErrorText(), "adsmAlloc: out of mappings");
  recordError(adsmErrorHostMemory, std::string_view(lastErrorText()).substr(11));
  EXPECT_STREQ(lastErrorText(), "out of mappings");
}

TEST(Status, EveryThreadHasItsOwnLastError) {
  recordError(adsmErrorKernel, "mine");
  std::thread([] {
    EXPECT_EQ(lastErrorCode(), adsmSuccess);
    EXPECT_STREQ(lastErrorText(), "");
    recordError(adsmErrorLaunch, "theirs");
    EXPECT_STREQ(lastErrorText(), "theirs");
  }).join();
  EXPECT_EQ(lastErrorCode(), adsmErrorKernel);
  EXPECT_STREQ(lastErrorText(), "mine");
}

TEST(Status, EveryErrorHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int code = adsmSuccess; code <= adsmErrorNotSupported; ++code) {
    const std::string name = errorName(static_cast<adsmError_t>(code));
    EXPECT_NE(name, "adsmErrorUnknown") << code;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_TRUE(names.contains("adsmErrorAddressConflict"));
}

TEST(Status, ANumberThatIsNoErrorIsUnknown) {
  EXPECT_STREQ(errorName(static_cast<adsmError_t>(15)), "adsmErrorUnknown");
}

// A reference into a temporary would end with it.
static_assert(std::is_same_v<decltype(*std::declval<Result<std::string>>()), std::string>);
static_assert(std::is_same_v<decltype(*std::declval<Result<std::string>&>()), std::string&>);

TEST(Result, GivesTheValueOfATemporary) {
  const auto make = [] { return Result<std::string>(std::string(100, 'x')); };
  const std::string& value = *make();
  EXPECT_EQ(value, std::string(100, 'x'));
  const auto owner = *[] { return Result<std::unique_ptr<int>>(std::make_unique<int>(7)); }();
  EXPECT_EQ(*owner, 7);
}

TEST(Result, HoldsAValueOrAStatus) {
  const Result<int> value = 7;
  EXPECT_TRUE(value.ok());
  EXPECT_EQ(*value, 7);
  const Result<int> failure = Status(adsmErrorHostMemory);
  EXPECT_FALSE(failure.ok());
  EXPECT_EQ(failure.status().code(), adsmErrorHostMemory);
}

TEST(Try, ReturnsTheFirstFailure) {
  int reached = 0;
  const auto steps = [&]() -> Status {
    GMAC_TRY(Status());
    ++reached;
    GMAC_TRY(Status(adsmErrorForked));
    ++reached;
    return Status();
  };
  EXPECT_EQ(steps().code(), adsmErrorForked);
  EXPECT_EQ(reached, 1);
}

}  // namespace
}  // namespace gmac
