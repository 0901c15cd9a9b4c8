// SPDX-License-Identifier: Apache-2.0
//
// The C API with bad arguments, bad configuration, crashing kernels and exhausted memory, on the
// host accelerator: every error has its code and a text that names what was wrong, and the runtime
// goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gmac/api/adsm.h"
#include "tests/support/child.h"

namespace gmac::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr adsmDim_t kOne = {1, 1, 1};

// ---- Each in a process of its own, with its own variables

// Runs `filter` (a disabled test of this file) on the host accelerator and expects it to pass.
void expectChildPasses(const std::string& filter, std::map<std::string, std::string> environment) {
  environment.emplace("GMAC_ACCEL", "host");
  environment.emplace("GMAC_HOST_MEMORY", "64M");
  environment.emplace("GMAC_HOST_THREADS", "2");
  const ChildEnd end = runChild(filter, environment);
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
  EXPECT_THAT(end.output, HasSubstr("[  PASSED  ] 1 test"));
}

#define TEST_IN_CHILD(suite, name, ...)                                            \
  TEST(suite, name) { expectChildPasses(#suite ".DISABLED_" #name, __VA_ARGS__); } \
  TEST(suite, DISABLED_##name)

using Variables = std::map<std::string, std::string>;

void addOne(const adsmThreadBlock_t*, void** args) {
  auto* data = *static_cast<int**>(args[0]);
  ++*data;
}

void crash(const adsmThreadBlock_t*, void**) {
  // Not a constant: the compiler refuses to write through an address that it knows to be none.
  static volatile std::uintptr_t nowhere = 64;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

int hostConstant = 0;

adsmKernelDesc_t describe(const char* name, adsmHostKernel_t host, std::size_t paramCount) {
  static const std::size_t kSizes[] = {8, 8, 8};
  adsmKernelDesc_t desc = {};
  desc.name = name;
  desc.paramCount = paramCount;
  desc.paramSizes = kSizes;
  desc.host = host;
  return desc;
}

adsmKernel_t make(const adsmKernelDesc_t& desc) {
  adsmKernel_t kernel = nullptr;
  EXPECT_EQ(adsmKernelCreate(&desc, &kernel), adsmSuccess) << adsmLastErrorString();
  return kernel;
}

// The code, and a text with these words.
#define EXPECT_ERROR(expression, expected, words)         \
  do {                                                    \
    EXPECT_EQ(expression, expected);                      \
    EXPECT_EQ(adsmLastError(), expected);                 \
    EXPECT_THAT(adsmLastErrorString(), HasSubstr(words)); \
  } while (false)

TEST(ApiErrors, EveryCodeHasItsName) {
  EXPECT_STREQ(adsmErrorName(adsmSuccess), "adsmSuccess");
  EXPECT_STREQ(adsmErrorName(adsmErrorNotSupported), "adsmErrorNotSupported");
  EXPECT_STREQ(adsmErrorName(static_cast<adsmError_t>(999)), "adsmErrorUnknown");
}

TEST(ApiErrors, KernelDescriptionsAreChecked) {
  adsmKernel_t kernel = nullptr;
  const auto create = [&](const adsmKernelDesc_t& desc) {
    return adsmKernelCreate(&desc, &kernel);
  };
  EXPECT_ERROR(adsmKernelCreate(nullptr, &kernel), adsmErrorInvalidValue, "desc is NULL");
  adsmKernelDesc_t desc = describe("k", &addOne, 1);
  EXPECT_ERROR(adsmKernelCreate(&desc, nullptr), adsmErrorInvalidValue, "kernel is NULL");
  EXPECT_ERROR(create(describe(nullptr, &addOne, 1)), adsmErrorInvalidValue, "name is NULL");
  EXPECT_ERROR(create(describe("", &addOne, 1)), adsmErrorInvalidValue, "name is empty");
  desc.paramSizes = nullptr;
  EXPECT_ERROR(create(desc), adsmErrorInvalidValue, "paramSizes is NULL");
  const std::size_t sizes[] = {8, 0};
  desc.paramSizes = sizes;
  desc.paramCount = 2;
  EXPECT_ERROR(create(desc), adsmErrorInvalidValue, "paramSizes[1] is 0");
  desc = describe("k", &addOne, 1);
  desc.constantCount = 1;
  EXPECT_ERROR(create(desc), adsmErrorInvalidValue, "constants is NULL");
  adsmConstant_t constant = {nullptr, 4, &hostConstant, nullptr};
  desc.constants = &constant;
  EXPECT_ERROR(create(desc), adsmErrorInvalidValue, "constants[0].name is NULL");
  constant = {"c", 0, &hostConstant, nullptr};
  EXPECT_ERROR(create(desc), adsmErrorInvalidValue, "constants[0].size (c) is 0");
  desc = describe("k", &addOne, 1);
  desc.cudaImage = "image";
  EXPECT_ERROR(create(desc), adsmErrorInvalidValue, "cudaImage without cudaName");
  EXPECT_EQ(adsmKernelDestroy(nullptr), adsmSuccess);
}

TEST_IN_CHILD(ApiErrors, CallsAreChecked, Variables{}) {
  const adsmKernel_t kernel = make(describe("addOne", &addOne, 1));
  auto* data = static_cast<int*>(adsmAlloc(4));
  ASSERT_NE(data, nullptr) << adsmLastErrorString();
  void* args[] = {&data};
  EXPECT_ERROR(adsmCall(nullptr, kOne, kOne, 0, args), adsmErrorInvalidValue, "kernel is NULL");
  EXPECT_ERROR(adsmCall(kernel, {0, 1, 1}, kOne, 0, args), adsmErrorInvalidValue,
               "grid is 0 x 1 x 1");
  EXPECT_ERROR(adsmCall(kernel, kOne, {1, 1, 0}, 0, args), adsmErrorInvalidValue,
               "block is 1 x 1 x 0");
  EXPECT_ERROR(adsmCall(kernel, kOne, kOne, 0, nullptr), adsmErrorInvalidValue, "args is NULL");
  void* missing[] = {nullptr};
  EXPECT_ERROR(adsmCall(kernel, kOne, kOne, 0, missing), adsmErrorInvalidValue, "args[0] is NULL");
  EXPECT_ERROR(adsmCallUsing(kernel, kOne, kOne, 0, args, nullptr, 1), adsmErrorInvalidValue,
               "uses is NULL");
  int onStack = 0;
  const adsmUse_t stranger = {&onStack, adsmRead};
  EXPECT_ERROR(adsmCallUsing(kernel, kOne, kOne, 0, args, &stranger, 1), adsmErrorInvalidPointer,
               "no shared object");
  EXPECT_ERROR(adsmBind(&onStack, kernel, adsmRead), adsmErrorInvalidPointer, "no shared object");
  EXPECT_ERROR(adsmBind(data, nullptr, adsmRead), adsmErrorInvalidValue, "kernel is NULL");
  // A launch beyond what the accelerator has.
  EXPECT_NE(adsmCall(kernel, kOne, {100000, 1, 1}, 0, args), adsmSuccess);
  EXPECT_EQ(adsmCall(kernel, kOne, kOne, 0, args), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(adsmSync(), adsmSuccess);
  EXPECT_EQ(*data, 1);
  EXPECT_EQ(adsmFree(data), adsmSuccess);
  EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess);
}

TEST_IN_CHILD(ApiErrors, PointersAreChecked, Variables{}) {
  int onStack = 0;
  EXPECT_ERROR(adsmFree(&onStack), adsmErrorInvalidPointer, "nothing is allocated yet");
  EXPECT_EQ(adsmSafe(&onStack), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorInvalidPointer);
  EXPECT_EQ(adsmFree(nullptr), adsmSuccess);
  EXPECT_EQ(adsmSync(), adsmSuccess) << "nothing was called: nothing to wait for";
  auto* large = static_cast<char*>(adsmAlloc(1 << 20));
  auto* small = static_cast<char*>(adsmAlloc(100));
  ASSERT_NE(large, nullptr);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(adsmSafe(large + 5), large + 5);
  EXPECT_EQ(adsmSafe(&onStack), nullptr);
  EXPECT_ERROR(adsmFree(&onStack), adsmErrorInvalidPointer, "no shared object");
  EXPECT_ERROR(adsmFree(large + 1), adsmErrorInvalidPointer, "inside the object");
  EXPECT_ERROR(adsmFree(small + 1), adsmErrorInvalidPointer, "inside an object");
  EXPECT_EQ(adsmFree(large), adsmSuccess);
  EXPECT_EQ(adsmFree(small), adsmSuccess);
  EXPECT_ERROR(adsmFree(large), adsmErrorInvalidPointer, "freed already");
  EXPECT_ERROR(adsmFree(small), adsmErrorInvalidPointer, "freed already");
}

TEST_IN_CHILD(ApiErrors, WhatDoesNotFitWorksInTheCpusMemory, Variables{}) {
  std::vector<char*> objects;
  for (char i = 0; i < 16; ++i) {  // 96 MiB in a memory of 64
    auto* const object = static_cast<char*>(adsmAlloc(6 << 20));
    ASSERT_NE(object, nullptr) << adsmLastErrorString();
    std::memset(object, i, 6 << 20);
    objects.push_back(object);
  }
  for (char i = 0; i < 16; ++i) {
    char* const object = objects[static_cast<std::size_t>(i)];
    EXPECT_EQ(object[0], i);
    EXPECT_EQ(object[(6 << 20) - 1], i);
    EXPECT_EQ(adsmFree(object), adsmSuccess) << adsmLastErrorString();
  }
  EXPECT_EQ(adsmAlloc(std::size_t{1} << 40), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorAcceleratorMemory);
  EXPECT_NE(std::strstr(adsmLastErrorString(), "in the CPU's memory instead"), nullptr)
      << adsmLastErrorString();
}

TEST_IN_CHILD(ApiErrors, ExhaustedMemoryIsToldAndTheRuntimeGoesOn,
              (Variables{{"GMAC_SPILL", "0"}})) {
  EXPECT_EQ(adsmAlloc(0), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorInvalidValue);
  EXPECT_EQ(adsmAlloc(SIZE_MAX), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorInvalidValue);
  EXPECT_EQ(adsmAlloc(std::size_t{1} << 40), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorAcceleratorMemory);
  for (int round = 0; round < 3; ++round) {
    std::vector<char*> objects;
    while (auto* object = static_cast<char*>(adsmAlloc(6 << 20))) {
      object[0] = object[(6 << 20) - 1] = 'x';
      objects.push_back(object);
      ASSERT_LE(objects.size(), 11u) << "more than the accelerator has";
    }
    EXPECT_EQ(adsmLastError(), adsmErrorAcceleratorMemory);
    EXPECT_GE(objects.size(), 8u);
    for (char* object : objects) {
      EXPECT_EQ(object[0], 'x');
      EXPECT_EQ(adsmFree(object), adsmSuccess) << adsmLastErrorString();
    }
  }
}

TEST_IN_CHILD(ApiErrors, AKernelWithoutImplementationIsNamed, Variables{}) {
  const adsmKernel_t kernel = make(describe("onlyElsewhere", nullptr, 0));
  EXPECT_ERROR(adsmCall(kernel, kOne, kOne, 0, nullptr), adsmErrorNoImplementation,
               "onlyElsewhere");
  EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess);
}

TEST_IN_CHILD(ApiErrors, ACrashingKernelIsAnErrorOfTheSync, Variables{}) {
  auto* data = static_cast<int*>(adsmAlloc(1 << 20));
  ASSERT_NE(data, nullptr) << adsmLastErrorString();
  data[0] = 1;
  const adsmKernel_t bad = make(describe("crash", &crash, 0));
  ASSERT_EQ(adsmCall(bad, kOne, kOne, 0, nullptr), adsmSuccess) << adsmLastErrorString();
  const adsmError_t error = adsmSync();
  EXPECT_TRUE(error == adsmErrorKernel || error == adsmErrorAcceleratorLost)
      << adsmErrorName(error) << ": " << adsmLastErrorString();
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("crash"));
  // Whatever the accelerator became of it, calls end with an answer: the result, or that it is gone
  // and why.
  const adsmKernel_t good = make(describe("addOne", &addOne, 1));
  void* args[] = {&data};
  const adsmError_t called = adsmCall(good, kOne, kOne, 0, args);
  if (called == adsmSuccess) {
    EXPECT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(data[0], 2);
  } else {
    EXPECT_EQ(called, adsmErrorAcceleratorLost);
    EXPECT_THAT(adsmLastErrorString(), HasSubstr("crash"));
    EXPECT_EQ(adsmAlloc(1 << 20), nullptr);
    EXPECT_EQ(adsmLastError(), adsmErrorAcceleratorLost);
  }
  adsmKernelDestroy(good);
  adsmKernelDestroy(bad);
}

TEST_IN_CHILD(ApiErrors, ConstantsAreChecked, Variables{}) {
  const adsmConstant_t constant = {"scale", sizeof hostConstant, &hostConstant, nullptr};
  adsmKernelDesc_t desc = describe("addOne", &addOne, 1);
  desc.constantCount = 1;
  desc.constants = &constant;
  const adsmKernel_t kernel = make(desc);
  const int value = 3;
  EXPECT_ERROR(adsmSetConstant(nullptr, "scale", &value, 4), adsmErrorInvalidValue,
               "kernel is NULL");
  EXPECT_ERROR(adsmSetConstant(kernel, nullptr, &value, 4), adsmErrorInvalidValue, "name is NULL");
  EXPECT_ERROR(adsmSetConstant(kernel, "scale", nullptr, 4), adsmErrorInvalidValue, "data is NULL");
  EXPECT_ERROR(adsmSetConstant(kernel, "scale", &value, 5), adsmErrorInvalidValue, "size is 5");
  EXPECT_ERROR(adsmSetConstant(kernel, "scale", &value, 0), adsmErrorInvalidValue, "size is 0");
  EXPECT_ERROR(adsmSetConstant(kernel, "other", &value, 4), adsmErrorInvalidValue,
               "no constant named other");
  EXPECT_EQ(adsmSetConstant(kernel, "scale", &value, 4), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess);
}

TEST_IN_CHILD(ApiErrors, TheLastErrorIsTheThreadsOwn, Variables{}) {
  EXPECT_EQ(adsmAlloc(0), nullptr);
  const std::string mine = adsmLastErrorString();
  void* object = adsmAlloc(10);
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(adsmLastErrorString(), mine) << "success resets nothing";
  EXPECT_EQ(adsmFree(object), adsmSuccess);
}

// ---- Configuration

// Prints what the first allocation says.
TEST(Configuration, DISABLED_FirstAllocation) {
  void* object = adsmAlloc(1);
  std::printf("%s: %s\n", object != nullptr ? "allocated" : adsmErrorName(adsmLastError()),
              adsmLastErrorString());
}

std::string firstAllocation(const char* variable, const char* value) {
  std::map<std::string, std::string> environment = {{"GMAC_ACCEL", "host"},
                                                    {"GMAC_HOST_MEMORY", "64M"}};
  environment[variable] = value;
  return runChild("Configuration.DISABLED_FirstAllocation", environment).output;
}

TEST(Configuration, ABadValueIsNamedWithWhatIsAllowed) {
  const struct {
    const char* variable;
    const char* value;
    const char* allowed;
  } cases[] = {
      {"GMAC_PROTOCOL", "eager", "batch, lazy, rolling"},
      {"GMAC_ACCEL", "opencl", "auto, cuda, cudart, host"},
      {"GMAC_BLOCK_SIZE", "5000", "a power of two"},
      {"GMAC_BLOCK_SIZE", "2K", "from 4K"},
      {"GMAC_ROLLING_SIZE", "-1", "or 0: adaptive"},
      {"GMAC_HOST_MEMORY", "1M", "from 2M"},
      {"GMAC_TEST_MIRROR", "remote", "auto, file, moved"},
  };
  for (const auto& [variable, value, allowed] : cases) {
    EXPECT_THAT(firstAllocation(variable, value),
                AllOf(HasSubstr("adsmErrorConfiguration"), HasSubstr(variable), HasSubstr(value),
                      HasSubstr(allowed)));
  }
  EXPECT_THAT(firstAllocation("GMAC_PROTOCOL", "lazy"), HasSubstr("allocated"));
}

TEST(Configuration, AMistypedVariableIsSaid) {
  EXPECT_THAT(firstAllocation("GMAC_PROTOKOL", "lazy"),
              AllOf(HasSubstr("allocated"), HasSubstr("did you mean GMAC_PROTOCOL?")));
}

// Allocates, and asks nothing.
TEST(Configuration, DISABLED_AllocationsUnasked) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(adsmAlloc(1), nullptr);
  }
}

TEST(Configuration, AStartThatFailsIsSaidOnceToAProgramThatDoesNotAsk) {
  const auto said = [](const std::map<std::string, std::string>& environment) {
    return runChild("Configuration.DISABLED_AllocationsUnasked", environment).output;
  };
  const std::string line =
      "gmac: the runtime does not start: GMAC_PROTOCOL=\"eager\" is not allowed; allowed: batch";
  const std::string output = said({{"GMAC_PROTOCOL", "eager"}});
  const std::size_t first = output.find(line);
  EXPECT_NE(first, std::string::npos) << output;
  EXPECT_EQ(output.find("gmac: ", first + 1), std::string::npos) << output;
  EXPECT_THAT(said({{"GMAC_PROTOCOL", "eager"}, {"GMAC_LOG", "off"}}),
              ::testing::Not(HasSubstr("gmac: ")));
}

// Allocates with a bad value, then with a good one, until that succeeds; prints how often each.
TEST(Configuration, DISABLED_AllocationsUntilTheStart) {
  const int bad = std::atoi(std::getenv("GMAC_TEST_FAILING"));
  std::string text;
  for (int i = 0; i < bad; ++i) {
    ASSERT_EQ(adsmAlloc(1), nullptr);
    ASSERT_EQ(adsmLastError(), adsmErrorConfiguration);
    ASSERT_THAT(adsmLastErrorString(), HasSubstr("GMAC_PROTOCOL=\"eager\""));
  }
  ASSERT_EQ(setenv("GMAC_PROTOCOL", "lazy", 1), 0);
  int good = 1;
  while (adsmAlloc(1) == nullptr && good < 10000) ++good;
  std::printf("%d failed, started by number %d\n", bad, good);
}

TEST(Configuration, AStartThatFailsIsTriedAgainMoreAndMoreRarely) {
  const auto said = [](const char* failing) {
    return runChild("Configuration.DISABLED_AllocationsUntilTheStart",
                    {{"GMAC_PROTOCOL", "eager"}, {"GMAC_TEST_FAILING", failing}})
        .output;
  };
  // Starts fail by call 1, 2, 4, 8, ... and then every 1,024th.
  EXPECT_THAT(said("1"), HasSubstr("1 failed, started by number 1\n"));
  EXPECT_THAT(said("2"), HasSubstr("2 failed, started by number 2\n"));
  EXPECT_THAT(said("5"), HasSubstr("5 failed, started by number 3\n"));
  EXPECT_THAT(said("100"), HasSubstr("100 failed, started by number 28\n"));
  EXPECT_THAT(said("3000"), HasSubstr("3000 failed, started by number 72\n"));
}

TEST(Configuration, AnAcceleratorThatIsNotThereIsNamed) {
  EXPECT_THAT(firstAllocation("GMAC_ACCEL", "cudart"),
              ::testing::AnyOf(HasSubstr("adsmErrorNoAccelerator"), HasSubstr("allocated")));
}

}  // namespace
}  // namespace gmac::testing
