// SPDX-License-Identifier: Apache-2.0
//
// Where GMAC_SCHEDULER sends calls that name no device: each test below runs in a process of its
// own. Calls that run at once are held in their kernels until the test lets them go.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/observe/stats.h"
#include "tests/api/host_kernel.h"
#include "tests/support/child.h"
#include "tests/support/temporary_folder.h"

namespace gmac::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kHeldBytes = 64 * 1024;  // an object of its own, with room for a path

void addOne(const adsmThreadBlock_t* block, void** args) {
  auto* data = *static_cast<std::uint32_t**>(args[0]);
  const auto count = *static_cast<std::uint64_t*>(args[1]);
  for (std::uint64_t i = block->blockIdx.x; i < count; i += block->gridDim.x) {
    ++data[i];
  }
}

void doNothing(const adsmThreadBlock_t*, void**) {}
void crash(const adsmThreadBlock_t*, void**) { __builtin_trap(); }

// Until there is a file of the name that it finds in its object.
void waitForFile(const adsmThreadBlock_t*, void** args) {
  const char* const path = *static_cast<const char**>(args[0]);
  while (::access(path, F_OK) != 0) {
  }
}

class Scheduler : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    add_ = hostKernel("addOne", addOne, 2);
    nothing_ = hostKernel("doNothing", doNothing, 0);
    crash_ = hostKernel("crash", crash, 0);
    wait_ = hostKernel("waitForFile", waitForFile, 1);
  }
  void TearDown() override {
    for (const adsmKernel_t kernel : {add_, nothing_, crash_, wait_}) {
      EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess) << adsmLastErrorString();
    }
    FolderTest::TearDown();
  }

  static std::uint32_t* allocate(std::size_t bytes) {
    auto* words = static_cast<std::uint32_t*>(adsmAlloc(bytes));
    EXPECT_NE(words, nullptr) << adsmLastErrorString();
    return words;
  }
  static void free(std::initializer_list<void*> objects) {
    for (void* object : objects) {
      EXPECT_EQ(adsmFree(object), adsmSuccess) << adsmLastErrorString();
    }
  }
  // Where no device is given, where the scheduler says.
  static void use(adsmKernel_t kernel, std::vector<adsmUse_t> uses, int device = -1) {
    const adsmDim_t one = {1, 1, 1};
    ASSERT_EQ(device < 0
                  ? adsmCallUsing(kernel, one, one, 0, nullptr, uses.data(), uses.size())
                  : adsmCallOn(device, kernel, one, one, 0, nullptr, uses.data(), uses.size()),
              adsmSuccess)
        << adsmLastErrorString();
  }
  void use(std::uint32_t* object, int device = -1) {
    use(nothing_, {{object, adsmReadWrite}}, device);
  }
  // An object that lies there.
  std::uint32_t* on(int device, std::size_t bytes) {
    std::uint32_t* object = allocate(bytes);
    use(object, device);
    return object;
  }
  adsmError_t add(std::uint32_t* data, std::uint64_t count) {
    void* args[] = {&data, &count};
    const adsmUse_t use = {data, adsmReadWrite};
    return adsmCallUsing(add_, {4, 1, 1}, {1, 1, 1}, 0, args, &use, 1);
  }
  // A call that runs until letGo().
  char* hold(int device = -1) {
    auto* path = reinterpret_cast<char*>(allocate(kHeldBytes));
    std::strcpy(path, (folder_ / "go").c_str());
    void* args[] = {&path};
    const adsmUse_t use = {path, adsmRead};
    const adsmDim_t one = {1, 1, 1};
    EXPECT_EQ(device < 0 ? adsmCallUsing(wait_, one, one, 0, args, &use, 1)
                         : adsmCallOn(device, wait_, one, one, 0, args, &use, 1),
              adsmSuccess)
        << adsmLastErrorString();
    return path;
  }
  void letGo() {
    const std::ofstream file(folder_ / "go");
    EXPECT_TRUE(file.good());
  }
  void keep() { std::filesystem::remove(folder_ / "go"); }

  using Calls = std::array<std::uint64_t, 3>;
  static Calls calls() {
    Calls calls;
    for (std::size_t device = 0; device < calls.size(); ++device) {
      calls[device] = stats().deviceCalls[device].value();
    }
    return calls;
  }

  adsmKernel_t add_ = nullptr;
  adsmKernel_t nothing_ = nullptr;
  adsmKernel_t crash_ = nullptr;
  adsmKernel_t wait_ = nullptr;
};

TEST_F(Scheduler, DISABLED_CallsStayOnDevice0) {
  std::uint32_t* there = allocate(kMiB);
  use(there, 1);
  use(there);
  use(there);
  EXPECT_EQ(calls(), (Calls{2, 1, 0}));
  EXPECT_EQ(stats().calls.value(), 3u);
  free({there});
}

// A call that lists nothing uses everything.
TEST_F(Scheduler, DISABLED_CallsWithoutUsesStayOnDevice0) {
  std::uint32_t* there = allocate(kMiB);
  use(there, 1);
  ASSERT_EQ(adsmCall(nothing_, {1, 1, 1}, {1, 1, 1}, 0, nullptr), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(calls(), (Calls{1, 1, 0}));
  use(nothing_, {}, 2);
  EXPECT_EQ(calls(), (Calls{1, 1, 1}));
  free({there});
}

TEST_F(Scheduler, DISABLED_CallsGoToTheirData) {
  std::array<std::uint32_t*, 3> objects{};
  constexpr std::uint64_t kWords = kMiB / 4;
  for (int device = 0; device < 3; ++device) {
    std::uint32_t*& object = objects[static_cast<std::size_t>(device)];
    object = allocate(kMiB);
    std::iota(object, object + kWords, 1u);
    use(object, device);
  }
  const std::uint64_t moves = stats().migratedBytes.value();
  for (int round = 0; round < 10; ++round) {
    for (std::uint32_t* object : objects) {
      ASSERT_EQ(add(object, kWords), adsmSuccess) << adsmLastErrorString();
    }
  }
  EXPECT_EQ(calls(), (Calls{11, 11, 11}));
  EXPECT_EQ(stats().migratedBytes.value(), moves);
  for (std::uint32_t* object : objects) {
    for (std::uint32_t i = 0; i < kWords; ++i) ASSERT_EQ(object[i], i + 11);
    free({object});
  }
}

TEST_F(Scheduler, DISABLED_TheMostBytesDecide) {
  std::uint32_t* small = allocate(kMiB);
  std::uint32_t* large = allocate(2 * kMiB);
  use(small, 1);
  use(large, 2);
  // Listed twice it is no larger.
  use(nothing_, {{small, adsmRead}, {large, adsmRead}, {small + 7, adsmWrite}, {small, adsmRead}});
  EXPECT_EQ(calls(), (Calls{0, 1, 2}));
  EXPECT_EQ(stats().migratedBytes.value(), kMiB);
  free({small, large});
}

TEST_F(Scheduler, DISABLED_TheBytesOfPartsDecide) {
  std::uint32_t* small = allocate(kMiB);
  std::uint32_t* large = allocate(2 * kMiB);
  use(small, 1);
  use(large, 2);
  const adsmDim_t one = {1, 1, 1};
  const auto useParts = [&](std::vector<adsmRangeUse_t> parts) {
    ASSERT_EQ(
        adsmCallRanges(ADSM_ANY_DEVICE, nothing_, one, one, 0, nullptr, parts.data(), parts.size()),
        adsmSuccess)
        << adsmLastErrorString();
  };
  // Listed twice it is no larger.
  useParts({{small, 0, adsmRead}, {large, kMiB / 2, adsmRead}, {large, kMiB / 2, adsmRead}});
  EXPECT_EQ(calls(), (Calls{0, 2, 1}));
  EXPECT_EQ(stats().migratedBytes.value(), kMiB / 2);
  // The rest of it is still there; what a call has written is nowhere else.
  useParts({{large + kMiB / 8, kMiB / 2, adsmReadWrite}});
  EXPECT_EQ(calls(), (Calls{0, 2, 2}));
  useParts({{large, kMiB / 2, adsmRead}, {small, 1, adsmRead}});
  EXPECT_EQ(calls(), (Calls{0, 3, 2}));
  EXPECT_EQ(stats().migratedBytes.value(), kMiB / 2);
  free({small, large});
}

// Bytes that the CPU has written are current nowhere else.
TEST_F(Scheduler, DISABLED_WhatTheCpuHasWrittenIsNowhere) {
  std::uint32_t* small = allocate(kMiB);
  std::uint32_t* large = allocate(2 * kMiB);
  use(small, 1);
  use(large, 2);
  ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  // More than half of it.
  std::fill_n(large, kMiB * 3 / 2 / 4, 1u);
  use(nothing_, {{small, adsmRead}, {large, adsmReadWrite}});
  EXPECT_EQ(calls(), (Calls{0, 2, 1}));
  EXPECT_EQ(large[0], 1u);
  EXPECT_EQ(large[kMiB * 3 / 2 / 4], 0u);
  free({small, large});
}

TEST_F(Scheduler, DISABLED_NewObjectsGoWhereLeastRuns) {
  std::vector<char*> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(hold());
    EXPECT_EQ(calls()[static_cast<std::size_t>(i)], 1u) << i;
  }
  held.push_back(hold(0));
  held.push_back(hold(2));
  std::uint32_t* data = allocate(kMiB);
  use(data);
  EXPECT_EQ(calls(), (Calls{2, 2, 2}));
  letGo();
  ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  for (char* path : held) free({path});
  free({data});
}

// A call whose data lies where a long kernel runs is done sooner elsewhere. (How long that one ran
// before was measured, so another thread's time could come between: then it is tried again.)
TEST_F(Scheduler, DISABLED_HistoryPassesOverABusyDevice) {
  const char* const before = hold(0);
  ::usleep(100'000);
  letGo();
  ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  keep();
  std::vector<void*> objects = {const_cast<char*>(before)};
  for (int i = 0; i < 50 && calls()[1] + calls()[2] == 0; ++i) {
    std::uint32_t* data = allocate(64 * 1024);
    objects.push_back(data);
    use(data, 0);
    ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
    objects.push_back(hold(0));
    // Nothing is known of it: each device would take it.
    const adsmKernel_t other = hostKernel("other", doNothing, 0);
    use(other, {{data, adsmReadWrite}});
    letGo();
    ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(adsmKernelDestroy(other), adsmSuccess) << adsmLastErrorString();
    keep();
  }
  EXPECT_EQ(calls()[1] + calls()[2], 1u);
  for (void* object : objects) free({object});
}

TEST_F(Scheduler, DISABLED_WhatDoesNotFitGoesToTheNextBest) {
  std::uint32_t* full = on(1, 40 * kMiB);
  std::uint32_t* larger = on(1, 20 * kMiB);
  std::uint32_t* smaller = on(2, 16 * kMiB);
  use(nothing_, {{larger, adsmRead}, {smaller, adsmRead}});
  EXPECT_EQ(calls(), (Calls{0, 2, 2}));
  // Nowhere: the error of a call that names its device.
  std::uint32_t* others[] = {on(0, 40 * kMiB), on(0, 20 * kMiB)};
  const adsmUse_t uses[] = {{full, adsmRead}, {others[0], adsmRead}};
  EXPECT_EQ(adsmCallUsing(nothing_, {1, 1, 1}, {1, 1, 1}, 0, nullptr, uses, 2),
            adsmErrorAcceleratorMemory);
  EXPECT_NE(std::string(adsmLastErrorString()).find("device"), std::string::npos)
      << adsmLastErrorString();
  use(full);
  free({full, larger, smaller, others[0], others[1]});
}

TEST_F(Scheduler, DISABLED_WhereItFitsNowhereOthersLeaveTheBest) {
  std::uint32_t* larger = on(0, 40 * kMiB);
  std::uint32_t* other = on(0, 20 * kMiB);
  std::uint32_t* smaller = on(1, 20 * kMiB);
  std::uint32_t* full[] = {on(1, 40 * kMiB), on(2, 40 * kMiB)};
  use(nothing_, {{larger, adsmRead}, {smaller, adsmRead}});
  EXPECT_EQ(calls(), (Calls{3, 2, 1}));
  EXPECT_EQ(stats().peerSpills.value(), 1u);
  use(other);
  EXPECT_EQ(calls(), (Calls{3, 2, 2})) << "where there was room for it";
  free({larger, other, smaller, full[0], full[1]});
}

TEST_F(Scheduler, DISABLED_ADeviceThatIsGoneIsPassedOver) {
  use(crash_, {}, 0);
  EXPECT_EQ(adsmSync(), adsmErrorKernel);
  for (int i = 0; i < 4; ++i) {
    std::uint32_t* data = allocate(kMiB);
    data[0] = 6;
    ASSERT_EQ(add(data, 1), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(data[0], 7u);
    free({data});
  }
  EXPECT_EQ(calls()[0], 1u);
  for (const int device : {1, 2}) {
    use(crash_, {}, device);
    EXPECT_EQ(adsmSync(), adsmErrorKernel);
  }
  const adsmDim_t one = {1, 1, 1};
  EXPECT_EQ(adsmCallUsing(nothing_, one, one, 0, nullptr, nullptr, 0), adsmErrorAcceleratorLost);
  // As destroying those tells once more that have run.
  for (adsmKernel_t* kernel : {&add_, &nothing_, &crash_, &wait_}) {
    (void)adsmKernelDestroy(std::exchange(*kernel, nullptr));
  }
}

// The wrong words that a caller may have.
TEST_F(Scheduler, DISABLED_WrongUsesAreNamed) {
  int local = 0;
  const adsmDim_t one = {1, 1, 1};
  const adsmUse_t none = {&local, adsmRead};
  EXPECT_EQ(adsmCallUsing(nothing_, one, one, 0, nullptr, &none, 1), adsmErrorInvalidPointer);
  std::uint32_t* data = allocate(kMiB);
  const adsmUse_t wrong = {data, adsmAccess_t{9}};
  EXPECT_EQ(adsmCallUsing(nothing_, one, one, 0, nullptr, &wrong, 1), adsmErrorInvalidValue);
  EXPECT_EQ(calls(), (Calls{0, 0, 0}));
  free({data});
}

struct Run {
  const char* test;
  std::vector<std::string> rules;
  std::map<std::string, std::string> environment{};
};
std::ostream& operator<<(std::ostream& out, const Run& run) { return out << run.test; }

class InAProcess : public ::testing::TestWithParam<Run> {};

TEST_P(InAProcess, Works) {
  for (const std::string& rule : GetParam().rules) {
    std::map<std::string, std::string> environment = {{"GMAC_ACCEL", "host:3"},
                                                      {"GMAC_SCHEDULER", rule},
                                                      {"GMAC_BLOCK_SIZE", "64K"},
                                                      {"GMAC_HOST_MEMORY", "192M"},
                                                      {"GMAC_HOST_THREADS", "3"}};
    environment.insert(GetParam().environment.begin(), GetParam().environment.end());
    const ChildEnd end =
        runChild(std::string("Scheduler.DISABLED_") + GetParam().test, environment);
    EXPECT_EQ(end.exitStatus, 0) << rule << ", signal " << end.signal << "\n" << end.output;
    EXPECT_NE(end.output.find("[  PASSED  ] 1 test"), std::string::npos) << end.output;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scheduler, InAProcess,
    ::testing::Values(
        Run{"CallsStayOnDevice0", {"", "current"}},
        Run{"CallsWithoutUsesStayOnDevice0", {"current", "data", "history"}},
        Run{"CallsGoToTheirData", {"data"}}, Run{"TheMostBytesDecide", {"data"}},
        Run{"TheBytesOfPartsDecide", {"data"}},
        Run{"WhatTheCpuHasWrittenIsNowhere", {"data"}, {{"GMAC_ROLLING_SIZE", "100"}}},
        Run{"NewObjectsGoWhereLeastRuns", {"data", "history"}},
        Run{"HistoryPassesOverABusyDevice", {"history"}},
        Run{"WhatDoesNotFitGoesToTheNextBest", {"data"}},
        Run{"WhereItFitsNowhereOthersLeaveTheBest", {"data"}},
        Run{"ADeviceThatIsGoneIsPassedOver", {"data", "history"}},
        Run{"WrongUsesAreNamed", {"data", "history"}}),
    [](const auto& info) { return std::string(info.param.test); });

// The files tell where calls ran.
class SchedulerFiles : public FolderTest {};

TEST_F(SchedulerFiles, HaveTheDevicesOfCalls) {
  const auto stats = folder_ / "stats.json";
  const auto trace = folder_ / "trace.json";
  const ChildEnd end =
      runChild("Scheduler.DISABLED_TheMostBytesDecide", {{"GMAC_ACCEL", "host:4"},
                                                         {"GMAC_SCHEDULER", "data"},
                                                         {"GMAC_BLOCK_SIZE", "64K"},
                                                         {"GMAC_HOST_MEMORY", "256M"},
                                                         {"GMAC_HOST_THREADS", "4"},
                                                         {"GMAC_STATS", stats.string()},
                                                         {"GMAC_TRACE", trace.string()}});
  ASSERT_EQ(end.exitStatus, 0) << end.output;
  std::ifstream file(stats);
  EXPECT_EQ(nlohmann::json::parse(file).at("deviceCalls"), nlohmann::json::array({0, 1, 2, 0}));
  std::map<int, int> spans;
  std::ifstream traced(trace);
  const auto events = nlohmann::json::parse(traced).at("traceEvents");
  for (const auto& event : events) {
    if (event.at("name") == "call") {
      ++spans[event.at("args").at("device").get<int>()];
    }
  }
  EXPECT_EQ(spans.count(0), 0u);
  EXPECT_GE(spans[1], 1);
  EXPECT_GE(spans[2], 2);
}

TEST_F(SchedulerFiles, ABadRuleIsNamed) {
  const ChildEnd end = runChild("Scheduler.DISABLED_TheMostBytesDecide",
                                {{"GMAC_ACCEL", "host:2"}, {"GMAC_SCHEDULER", "fastest"}});
  EXPECT_NE(end.exitStatus, 0);
  EXPECT_NE(end.output.find("GMAC_SCHEDULER=\"fastest\" is not allowed; allowed: current, data, "
                            "history"),
            std::string::npos)
      << end.output;
}

}  // namespace
}  // namespace gmac::testing
