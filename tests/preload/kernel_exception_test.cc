// SPDX-License-Identifier: Apache-2.0
//
// A kernel that throws, in a program whose C++ library is not the one inside libgmac.so.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "gmac/api/adsm.h"

namespace gmac::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Throws what its argument says; 0: nothing.
void throwing(const adsmThreadBlock_t*, void** args) {
  switch (*static_cast<int*>(args[0])) {
    case 1:
      throw std::runtime_error("the reason");
    case 2:
      throw 42;
    case 3:
      try {
        throw std::runtime_error("caught inside");
      } catch (const std::exception&) {
      }
  }
}

template <typename Function>
Function api(const char* name) {
  static void* const library = ::dlopen("gmac/libgmac.so", RTLD_NOW);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, name));
}

TEST(KernelException, IsAnErrorWithItsWordsAndTheRuntimeGoesOn) {
  ASSERT_EQ(::setenv("GMAC_ACCEL", "host", 1), 0);
  ASSERT_EQ(::setenv("GMAC_HOST_MEMORY", "64M", 1), 0);
  ASSERT_EQ(::setenv("GMAC_HOST_THREADS", "2", 1), 0);
  const auto create = api<decltype(&adsmKernelCreate)>("adsmKernelCreate");
  const auto call = api<decltype(&adsmCall)>("adsmCall");
  const auto sync = api<decltype(&adsmSync)>("adsmSync");
  const auto text = api<decltype(&adsmLastErrorString)>("adsmLastErrorString");
  ASSERT_TRUE(create != nullptr && call != nullptr && sync != nullptr && text != nullptr)
      << ::dlerror();
  static const std::size_t kSizes[] = {sizeof(int)};
  adsmKernelDesc_t desc{};
  desc.name = "throwing";
  desc.paramCount = 1;
  desc.paramSizes = kSizes;
  desc.host = &throwing;
  adsmKernel_t kernel = nullptr;
  ASSERT_EQ(create(&desc, &kernel), adsmSuccess) << text();
  const auto run = [&](int what) {
    void* args[] = {&what};
    EXPECT_EQ(call(kernel, {64, 1, 1}, {1, 1, 1}, 0, args), adsmSuccess) << text();
    return sync();
  };
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(run(1), adsmErrorKernel);
    EXPECT_THAT(text(), AllOf(HasSubstr("throwing"), HasSubstr("threw: the reason")));
    EXPECT_EQ(run(0), adsmSuccess) << text();
    EXPECT_EQ(run(2), adsmErrorKernel);
    EXPECT_THAT(text(), AllOf(HasSubstr("throwing"), HasSubstr("threw")));
    EXPECT_EQ(run(3), adsmSuccess) << text();
  }
}

}  // namespace
}  // namespace gmac::testing
