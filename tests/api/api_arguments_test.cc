// SPDX-License-Identifier: Apache-2.0
//
// Every field, count and handle of the C API with values that no correct program gives. Each is
// refused by name, with the allowed values, before it is used, and the call changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"
#include "tests/support/child.h"

namespace gmac::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

constexpr adsmDim_t kOne = {1, 1, 1};

void addOne(const adsmThreadBlock_t*, void** args) {
  auto* data = *static_cast<int**>(args[0]);
  ++*data;
}

int constantOfHost = 0;
int another = 0;
const std::size_t kPointer[] = {8};

adsmKernelDesc_t described() {
  static const adsmConstant_t kConstants[] = {{"scale", 4, &constantOfHost, nullptr},
                                              {"offset", 4, &another, nullptr}};
  adsmKernelDesc_t desc = {};
  desc.name = "k";
  desc.paramCount = 1;
  desc.paramSizes = kPointer;
  desc.host = &addOne;
  desc.constantCount = 2;
  desc.constants = kConstants;
  return desc;
}

adsmKernel_t made() {
  const adsmKernelDesc_t desc = described();
  adsmKernel_t kernel = nullptr;
  EXPECT_EQ(adsmKernelCreate(&desc, &kernel), adsmSuccess) << adsmLastErrorString();
  return kernel;
}

// The tests that need a runtime run in processes of their own, on the host accelerator.
void expectChildPasses(const std::string& filter) {
  const ChildEnd end = runChild(
      filter, {{"GMAC_ACCEL", "host"}, {"GMAC_HOST_MEMORY", "64M"}, {"GMAC_HOST_THREADS", "2"}});
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
  EXPECT_THAT(end.output, HasSubstr("[  PASSED  ] 1 test"));
}

#define TEST_IN_CHILD(suite, name)                                    \
  TEST(suite, name) { expectChildPasses(#suite ".DISABLED_" #name); } \
  TEST(suite, DISABLED_##name)

// ---- Descriptions of kernels

struct Spoiled {
  const char* says;  // all of it
  void (*spoil)(adsmKernelDesc_t& desc);
};

// A description with sizes of parameters, or with constants, that stay until the next.
void withSizes(adsmKernelDesc_t& desc, std::vector<std::size_t> sizes) {
  static std::vector<std::size_t> kept;
  kept = std::move(sizes);
  desc.paramSizes = kept.data();
  desc.paramCount = kept.size();
}
void withConstants(adsmKernelDesc_t& desc, std::vector<adsmConstant_t> constants) {
  static std::vector<adsmConstant_t> kept;
  kept = std::move(constants);
  desc.constants = kept.data();
  desc.constantCount = kept.size();
}

const Spoiled kSpoiled[] = {
    {"adsmKernelCreate: desc->name is NULL", [](adsmKernelDesc_t& desc) { desc.name = nullptr; }},
    {"adsmKernelCreate: desc->name is empty", [](adsmKernelDesc_t& desc) { desc.name = ""; }},
    {"adsmKernelCreate(k): paramSizes is NULL, paramCount is 1",
     [](adsmKernelDesc_t& desc) { desc.paramSizes = nullptr; }},
    {"adsmKernelCreate(k): paramCount is 18446744073709551615; allowed are 0 to 32768",
     [](adsmKernelDesc_t& desc) { desc.paramCount = SIZE_MAX; }},
    {"adsmKernelCreate(k): paramCount is 32769; allowed are 0 to 32768",
     [](adsmKernelDesc_t& desc) { desc.paramCount = 32769; }},
    {"adsmKernelCreate(k): paramSizes[0] is 0; allowed are 1 to 32768 bytes, what the parameters "
     "before it leave of 32768",
     [](adsmKernelDesc_t& desc) { withSizes(desc, {0}); }},
    {"adsmKernelCreate(k): paramSizes[0] is 18446744073709551615; allowed are 1 to 32768 bytes, "
     "what the parameters before it leave of 32768",
     [](adsmKernelDesc_t& desc) { withSizes(desc, {SIZE_MAX}); }},
    // Their sum, and the sum of what they are rounded up to, wrap around to a few bytes.
    {"adsmKernelCreate(k): paramSizes[1] is 18446744073709551608; allowed are 1 to 32760 bytes, "
     "what the parameters before it leave of 32768",
     [](adsmKernelDesc_t& desc) {
       withSizes(desc, {8, SIZE_MAX - 7});
     }},
    {"adsmKernelCreate(k): paramSizes[1] is 32761; allowed are 1 to 32760 bytes, what the "
     "parameters before it leave of 32768",
     [](adsmKernelDesc_t& desc) {
       withSizes(desc, {8, 32761});
     }},
    {"adsmKernelCreate(k): constants is NULL, constantCount is 2",
     [](adsmKernelDesc_t& desc) { desc.constants = nullptr; }},
    {"adsmKernelCreate(k): constantCount is 18446744073709551615; allowed are 0 to 65536",
     [](adsmKernelDesc_t& desc) { desc.constantCount = SIZE_MAX; }},
    {"adsmKernelCreate(k): constants[0].name is NULL",
     [](adsmKernelDesc_t& desc) {
       withConstants(desc, {{nullptr, 4, &constantOfHost, nullptr}});
     }},
    {"adsmKernelCreate(k): constants[0].name is empty",
     [](adsmKernelDesc_t& desc) {
       withConstants(desc, {{"", 4, &constantOfHost, nullptr}});
     }},
    {"adsmKernelCreate(k): constants[0].size (c) is 0; allowed are 1 to 65536 bytes",
     [](adsmKernelDesc_t& desc) {
       withConstants(desc, {{"c", 0, &constantOfHost, nullptr}});
     }},
    {"adsmKernelCreate(k): constants[0].size (c) is 18446744073709551615; allowed are 1 to 65536 "
     "bytes",
     [](adsmKernelDesc_t& desc) {
       withConstants(desc, {{"c", SIZE_MAX, &constantOfHost, nullptr}});
     }},
    {"adsmKernelCreate(k): constants[1].name is c, as constants[0].name is",
     [](adsmKernelDesc_t& desc) {
       withConstants(desc, {{"c", 4, &constantOfHost, nullptr}, {"c", 4, &another, nullptr}});
     }},
    {"adsmKernelCreate(k): cudaImage without cudaName",
     [](adsmKernelDesc_t& desc) { desc.cudaImage = "image"; }},
    {"adsmKernelCreate(k): cudaName is empty", [](adsmKernelDesc_t& desc) { desc.cudaName = ""; }},
};

TEST(Arguments, EveryFieldOfAKernelsDescriptionIsChecked) {
  for (const Spoiled& one : kSpoiled) {
    adsmKernelDesc_t desc = described();
    one.spoil(desc);
    auto* const before = reinterpret_cast<adsmKernel_t>(&another);
    adsmKernel_t kernel = before;
    EXPECT_EQ(adsmKernelCreate(&desc, &kernel), adsmErrorInvalidValue) << one.says;
    EXPECT_THAT(adsmLastErrorString(), StrEq(one.says));
    EXPECT_EQ(kernel, before) << "a failed call changes nothing: " << one.says;
  }
}

TEST(Arguments, TheLargestDescriptionIsTaken) {
  adsmKernelDesc_t desc = described();
  withSizes(desc, {8, 32760});
  withConstants(desc, {{"c", 65536, &constantOfHost, nullptr}});
  adsmKernel_t kernel = nullptr;
  EXPECT_EQ(adsmKernelCreate(&desc, &kernel), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess);
}

// ---- Handles

TEST(Arguments, ADestroyedKernelIsToldByEveryFunction) {
  const adsmKernel_t destroyed = made();
  ASSERT_EQ(adsmKernelDestroy(destroyed), adsmSuccess);
  const adsmKernel_t later = made();
  EXPECT_NE(later, destroyed) << "a handle never stands for another kernel";
  int value = 0;
  const auto* const garbage = reinterpret_cast<const char*>(&value);
  for (auto* const kernel :
       {destroyed, reinterpret_cast<adsmKernel_t>(1), reinterpret_cast<adsmKernel_t>(SIZE_MAX),
        reinterpret_cast<adsmKernel_t>(const_cast<char*>(garbage))}) {
    const adsmError_t errors[] = {
        adsmCall(kernel, kOne, kOne, 0, nullptr),
        adsmCallUsing(kernel, kOne, kOne, 0, nullptr, nullptr, 0),
        adsmBind(&value, kernel, adsmRead),
        adsmSetConstant(kernel, "scale", &value, sizeof value),
        adsmKernelDestroy(kernel),
    };
    for (const adsmError_t error : errors) {
      EXPECT_EQ(error, adsmErrorInvalidValue);
    }
    EXPECT_THAT(adsmLastErrorString(), HasSubstr("which is no kernel, or is destroyed"));
  }
  EXPECT_EQ(adsmKernelDestroy(later), adsmSuccess);
}

TEST_IN_CHILD(Arguments, AKernelIsKnownBesideDestroyedOnes) {
  auto* const data = static_cast<int*>(adsmAlloc(sizeof(int)));
  ASSERT_NE(data, nullptr) << adsmLastErrorString();
  *data = 0;
  std::vector<adsmKernel_t> kernels;
  for (int i = 0; i < 10; ++i) {
    kernels.push_back(made());
  }
  for (const int gone : {3, 0, 9}) {
    ASSERT_EQ(adsmKernelDestroy(kernels[static_cast<std::size_t>(gone)]), adsmSuccess);
  }
  int calls = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    void* args[] = {const_cast<int**>(&data)};
    const bool isGone = i == 0 || i == 3 || i == 9;
    EXPECT_EQ(adsmCall(kernels[i], kOne, kOne, 0, args),
              isGone ? adsmErrorInvalidValue : adsmSuccess)
        << i;
    calls += isGone ? 0 : 1;
  }
  EXPECT_EQ(adsmSync(), adsmSuccess);
  EXPECT_EQ(*data, calls);
}

// ---- Packing

class Packed {
 public:
  Packed() {
    options.size = sizeof options;
    EXPECT_EQ(adsmTypeVector(100, 1, 2, ADSM_TYPE_8, &type), adsmSuccess);
    EXPECT_EQ(adsmTypeCommit(type), adsmSuccess);
  }
  ~Packed() { EXPECT_EQ(adsmTypeFree(type), adsmSuccess); }
  Packed(const Packed&) = delete;
  Packed& operator=(const Packed&) = delete;
  adsmError_t pack() { return adsmPackWith(target, source, 1, type, &options); }

  adsmType_t type = nullptr;
  adsmPackOptions_t options = {};
  std::int64_t source[200] = {1, 2, 3};
  std::int64_t target[100] = {};
};

TEST(Arguments, AnEventIsGivenBackOnce) {
  Packed packed;
  adsmPackEvent_t event = nullptr;
  packed.options.event = &event;
  ASSERT_EQ(packed.pack(), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(adsmPackDone(event), 1);
  EXPECT_EQ(adsmPackWait(event), adsmSuccess);
  adsmPackEvent_t next = nullptr;
  packed.options.event = &next;
  ASSERT_EQ(packed.pack(), adsmSuccess);
  EXPECT_NE(next, event) << "a handle never stands for another event";
  int garbage = 0;
  for (auto* const gone :
       {event, reinterpret_cast<adsmPackEvent_t>(0x1234),
        reinterpret_cast<adsmPackEvent_t>(SIZE_MAX), reinterpret_cast<adsmPackEvent_t>(&garbage)}) {
    EXPECT_EQ(adsmPackWait(gone), adsmErrorInvalidValue);
    EXPECT_THAT(adsmLastErrorString(), HasSubstr("adsmPackWait: event is 0x"));
    EXPECT_EQ(adsmPackDone(gone), 1);
    EXPECT_THAT(adsmLastErrorString(), HasSubstr("which is no event, or has been waited for"));
  }
  EXPECT_EQ(adsmPackWait(next), adsmSuccess) << adsmLastErrorString();
}

TEST_IN_CHILD(Arguments, AnEventOfTheAcceleratorsIsGivenBackOnce) {
  auto* const source = static_cast<std::int64_t*>(adsmAlloc(1 << 20));
  auto* const target = static_cast<std::int64_t*>(adsmAlloc(1 << 20));
  ASSERT_NE(source, nullptr);
  ASSERT_NE(target, nullptr);
  Packed packed;
  adsmPackEvent_t event = nullptr;
  packed.options.event = &event;
  packed.options.method = adsmMethodKernel;
  ASSERT_EQ(adsmPackWith(target, source, 1, packed.type, &packed.options), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(adsmPackWait(event), adsmSuccess);
  EXPECT_EQ(adsmPackWait(event), adsmErrorInvalidValue);
}

TEST_IN_CHILD(Arguments, AStreamIsRefusedWhereThereAreNone) {
  auto* const source = static_cast<std::int64_t*>(adsmAlloc(1 << 20));
  ASSERT_NE(source, nullptr);
  source[0] = 5;  // current on the CPU, which packs it
  Packed packed;
  packed.options.stream = reinterpret_cast<void*>(0x1234);
  EXPECT_EQ(adsmPackWith(packed.target, source, 1, packed.type, &packed.options),
            adsmErrorNotSupported);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("options.stream"));
  EXPECT_EQ(packed.target[0], 0) << "a failed call changes nothing";
}

// ---- Counts

TEST(Arguments, CountsThatNoArrayHasAreRefused) {
  const adsmKernel_t kernel = made();
  const adsmUse_t use = {&another, adsmRead};
  EXPECT_EQ(adsmCallUsing(kernel, kOne, kOne, 0, nullptr, &use, SIZE_MAX), adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), StrEq("adsmCallUsing: count is 18446744073709551615; allowed "
                                           "are 0 to 1048576"));
  EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess);

  const std::int64_t one[] = {1};
  const adsmType_t types[] = {ADSM_TYPE_4};
  adsmType_t type = nullptr;
  const adsmError_t errors[] = {
      adsmTypeIndexed(INT64_MAX, one, one, ADSM_TYPE_4, &type),
      adsmTypeHindexed(INT64_MAX, one, one, ADSM_TYPE_4, &type),
      adsmTypeIndexedBlock(INT64_MAX, 1, one, ADSM_TYPE_4, &type),
      adsmTypeHindexedBlock(INT64_MAX, 1, one, ADSM_TYPE_4, &type),
      adsmTypeStruct(INT64_MAX, one, one, types, &type),
  };
  for (const adsmError_t error : errors) {
    EXPECT_EQ(error, adsmErrorInvalidValue);
  }
  EXPECT_THAT(
      adsmLastErrorString(),
      StrEq("adsmTypeStruct: count is 9223372036854775807; 0 to 17592186044416 are allowed"));
  EXPECT_EQ(adsmTypeSubarray(INT_MAX, one, one, one, adsmOrderC, ADSM_TYPE_4, &type),
            adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("dimensions is 2147483647; 1 to 1024"));
  EXPECT_EQ(type, nullptr);
}

TEST_IN_CHILD(Arguments, SizesAreToldByTheFunctionThatWasCalled) {
  EXPECT_EQ(adsmAlloc(0), nullptr);
  EXPECT_THAT(adsmLastErrorString(), StrEq("adsmAlloc: size is 0; allowed are 1 to "
                                           "70368744177664 bytes"));
  for (const std::size_t size : {std::size_t{0}, SIZE_MAX}) {
    EXPECT_EQ(adsmSafeAlloc(size), nullptr);
    EXPECT_THAT(adsmLastErrorString(), HasSubstr("adsmSafeAlloc: size is " + std::to_string(size)));
  }
}

}  // namespace
}  // namespace gmac::testing
