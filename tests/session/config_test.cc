// SPDX-License-Identifier: Apache-2.0
#include "gmac/session/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

namespace gmac {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Environment = std::map<std::string, std::string>;

Result<Config> readFrom(const Environment& environment) {
  return readConfig([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Config, EmptyEnvironmentGivesTheDefaults) {
  const auto config = readFrom({});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->protocol->name, "rolling");
  EXPECT_EQ(config->accelerator, AcceleratorKind::kAuto);
  EXPECT_EQ(config->mirror, MirrorKind::kAuto);
  EXPECT_EQ(config->rollingSize, 0u);
  EXPECT_EQ(config->hostThreads, 0u);
  EXPECT_EQ(config->scheduler, SchedulerKind::kCurrent);
  EXPECT_FALSE(config->managed);
  EXPECT_GE(config->ioThreads, 1u);
  EXPECT_LE(config->ioThreads, 4u);
  EXPECT_GE(config->hostMemoryBytes, std::size_t{2} << 20);
  EXPECT_EQ(config->log, LogLevel::kError);
  EXPECT_EQ(config->statsPath, "");
  EXPECT_EQ(config->tracePath, "");
  EXPECT_EQ(config->blockBytes & (config->blockBytes - 1), 0u);
  EXPECT_GE(config->blockBytes, 4096u);
}

TEST(Config, EmptyValueMeansTheDefault) {
  const auto config = readFrom({{"GMAC_PROTOCOL", ""}, {"GMAC_ROLLING_SIZE", ""}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->protocol->name, "rolling");
  EXPECT_EQ(config->rollingSize, 0u);
}

TEST(Config, EveryVariableIsRead) {
  const auto config = readFrom({{"GMAC_PROTOCOL", "lazy"},
                                {"GMAC_ACCEL", "host"},
                                {"GMAC_BLOCK_SIZE", "64K"},
                                {"GMAC_ROLLING_SIZE", "1073741824"},
                                {"GMAC_TEST_MIRROR", "file"},
                                {"GMAC_STATS", "s.json"},
                                {"GMAC_TRACE", "t.json"},
                                {"GMAC_HOST_MEMORY", "3g"},
                                {"GMAC_HOST_THREADS", "1024"},
                                {"GMAC_SCHEDULER", "history"},
                                {"GMAC_MANAGED", "trust"},
                                {"GMAC_TEST_IO_THREADS", "7"},
                                {"GMAC_WAIT_LIMIT", "3600"},
                                {"GMAC_LOG", "debug"}});
  ASSERT_TRUE(config.ok()) << lastErrorText();
  EXPECT_EQ(config->protocol->name, "lazy");
  EXPECT_EQ(config->accelerator, AcceleratorKind::kHost);
  EXPECT_EQ(config->blockBytes, 65536u);
  EXPECT_EQ(config->rollingSize, std::size_t{1} << 30);
  EXPECT_EQ(config->mirror, MirrorKind::kFile);
  EXPECT_EQ(config->statsPath, "s.json");
  EXPECT_EQ(config->tracePath, "t.json");
  EXPECT_EQ(config->hostMemoryBytes, std::size_t{3} << 30);
  EXPECT_EQ(config->hostThreads, 1024u);
  EXPECT_EQ(config->scheduler, SchedulerKind::kHistory);
  EXPECT_TRUE(config->managed);
  EXPECT_EQ(config->ioThreads, 7u);
  EXPECT_TRUE(config->trustHints);
  EXPECT_EQ(config->waitLimit, 3600u);
  EXPECT_EQ(config->log, LogLevel::kDebug);
}

TEST(Config, EveryWordNamesItsEnumerator) {
  for (const char* name : {"batch", "lazy", "rolling"}) {
    const auto config = readFrom({{"GMAC_PROTOCOL", name}});
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->protocol->name, name);
    EXPECT_EQ(config->protocol->make({})->name(), name);
  }
  for (const auto kind : {AcceleratorKind::kAuto, AcceleratorKind::kCuda, AcceleratorKind::kCudart,
                          AcceleratorKind::kHost, AcceleratorKind::kCudaAndHost}) {
    const auto config = readFrom({{"GMAC_ACCEL", std::string(acceleratorName(kind))}});
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->accelerator, kind);
  }
  const std::map<std::string, MirrorKind> mirrors = {
      {"auto", MirrorKind::kAuto}, {"file", MirrorKind::kFile}, {"moved", MirrorKind::kMoved}};
  for (const auto& [name, kind] : mirrors) {
    const auto config = readFrom({{"GMAC_TEST_MIRROR", name}});
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->mirror, kind);
  }
}

TEST(Config, TheHostAcceleratorMayHaveSeveralDevices) {
  EXPECT_EQ(readFrom({})->hostDevices, 1u);
  EXPECT_EQ(readFrom({{"GMAC_ACCEL", "host"}})->hostDevices, 1u);
  for (const std::size_t count : {1, 4, 16}) {
    const auto config = readFrom({{"GMAC_ACCEL", "host:" + std::to_string(count)}});
    ASSERT_TRUE(config.ok()) << lastErrorText();
    EXPECT_EQ(config->accelerator, AcceleratorKind::kHost);
    EXPECT_EQ(config->hostDevices, count);
  }
}

TEST(Config, AGpuMayHaveHostDevicesBesideIt) {
  EXPECT_EQ(readFrom({{"GMAC_ACCEL", "cuda+host"}})->hostDevices, 1u);
  for (const std::size_t count : {1, 15}) {
    const auto config = readFrom({{"GMAC_ACCEL", "cuda+host:" + std::to_string(count)}});
    ASSERT_TRUE(config.ok()) << lastErrorText();
    EXPECT_EQ(config->accelerator, AcceleratorKind::kCudaAndHost);
    EXPECT_EQ(config->hostDevices, count);
  }
}

struct BadValue {
  const char* variable;
  const char* value;
  const char* allowed;  // part of the message
};

class BadValues : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadValues, AreRefusedByNameWithWhatIsAllowed) {
  const auto& [variable, value, allowed] = GetParam();
  const auto config = readFrom({{variable, value}});
  ASSERT_FALSE(config.ok()) << variable << "=" << value;
  EXPECT_EQ(config.status().code(), adsmErrorConfiguration);
  EXPECT_THAT(
      lastErrorText(),
      AllOf(HasSubstr(variable), HasSubstr(std::string("\"") + value + "\""), HasSubstr(allowed)));
}

INSTANTIATE_TEST_SUITE_P(
    Config, BadValues,
    ::testing::Values(BadValue{"GMAC_PROTOCOL", "eager", "batch, lazy, rolling"},
                      BadValue{"GMAC_PROTOCOL", "Rolling", "batch, lazy, rolling"},
                      BadValue{"GMAC_PROTOCOL", "rolling ", "batch, lazy, rolling"},
                      BadValue{"GMAC_ACCEL", "gpu", "auto, cuda, cudart, host"},
                      BadValue{"GMAC_ACCEL", "host:", "host:1 to host:16 devices"},
                      BadValue{"GMAC_ACCEL", "host:0", "host:1 to host:16 devices"},
                      BadValue{"GMAC_ACCEL", "host:17", "host:1 to host:16 devices"},
                      BadValue{"GMAC_ACCEL", "host:2x", "host:1 to host:16 devices"},
                      BadValue{"GMAC_ACCEL", "cuda:2", "host:1 to host:16 devices"},
                      BadValue{"GMAC_ACCEL", "cuda+host:0", "cuda+host:1 to cuda+host:15 devices"},
                      BadValue{"GMAC_ACCEL", "cuda+host:16", "cuda+host:1 to cuda+host:15 devices"},
                      BadValue{"GMAC_ACCEL", "cuda+host:x", "cuda+host:1 to cuda+host:15 devices"},
                      BadValue{"GMAC_ACCEL", "host+cuda", "host, cuda+host,"},
                      BadValue{"GMAC_ACCEL", "cudart+host:2", "host, cuda+host,"},
                      BadValue{"GMAC_ACCEL", "cuda+cuda", "host, cuda+host,"},
                      BadValue{"GMAC_TEST_MIRROR", "huge", "auto, file, moved"},
                      BadValue{"GMAC_DEVICE", "gpu0", "a whole number from 0 to 1023"},
                      BadValue{"GMAC_SCHEDULER", "fastest", "current, data, history"},
                      BadValue{"GMAC_LOG", "trace", "off, error, info, debug"},
                      BadValue{"GMAC_MANAGED", "yes", "0, 1, trust"},
                      BadValue{"GMAC_WAIT_LIMIT", "-1", "or 0: no limit"},
                      BadValue{"GMAC_BLOCK_SIZE", "2048", "from 4K to 1G"},
                      BadValue{"GMAC_BLOCK_SIZE", "2G", "from 4K to 1G"},
                      BadValue{"GMAC_BLOCK_SIZE", "3M", "power of two"},
                      BadValue{"GMAC_BLOCK_SIZE", "0", "from 4K to 1G"},
                      BadValue{"GMAC_BLOCK_SIZE", "2MB", "K, M and G"},
                      BadValue{"GMAC_BLOCK_SIZE", "M", "bytes"},
                      BadValue{"GMAC_BLOCK_SIZE", "-4096", "bytes"},
                      BadValue{"GMAC_BLOCK_SIZE", "+4096", "bytes"},
                      BadValue{"GMAC_BLOCK_SIZE", " 4096", "bytes"},
                      BadValue{"GMAC_BLOCK_SIZE", "0x1000", "bytes"},
                      BadValue{"GMAC_ROLLING_SIZE", "2K", "blocks"},
                      BadValue{"GMAC_ROLLING_SIZE", "1", "from 2 to"},
                      BadValue{"GMAC_ROLLING_SIZE", "2.5", "blocks"},
                      BadValue{"GMAC_ROLLING_SIZE", "1073741825", "or 0: adaptive"},
                      BadValue{"GMAC_ROLLING_SIZE", "18446744073709551616", "blocks"},
                      BadValue{"GMAC_HOST_MEMORY", "65537G", "from 2M to 65536G"},
                      // 2^34 + 1 GiB is 1 GiB once it has overflowed 64 bits.
                      BadValue{"GMAC_HOST_MEMORY", "17179869185G", "from 2M to 65536G"},
                      BadValue{"GMAC_HOST_MEMORY", "1M", "from 2M"},
                      BadValue{"GMAC_HOST_THREADS", "1025", "or 0: one per core"},
                      BadValue{"GMAC_HOST_THREADS", "-1", "threads"}));

TEST(Config, TheLogLevelIsReadWhateverTheOtherVariablesAre) {
  const auto levelIn = [](const Environment& environment) {
    return logLevel([&](const char* name) -> const char* {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(levelIn({}), LogLevel::kError);
  EXPECT_EQ(levelIn({{"GMAC_LOG", ""}}), LogLevel::kError);
  EXPECT_EQ(levelIn({{"GMAC_LOG", "info"}, {"GMAC_PROTOCOL", "nonsense"}}), LogLevel::kInfo);
  EXPECT_EQ(levelIn({{"GMAC_LOG", "off"}}), LogLevel::kOff);
  EXPECT_EQ(levelIn({{"GMAC_LOG", "loud"}}), LogLevel::kError);
}

TEST(Config, AValueIsAllowedAsItIsRead) {
  EXPECT_TRUE(isAllowedValue("GMAC_ACCEL", "host"));
  EXPECT_FALSE(isAllowedValue("GMAC_ACCEL", "hosts"));
  EXPECT_TRUE(isAllowedValue("GMAC_BLOCK_SIZE", "64K"));
  EXPECT_FALSE(isAllowedValue("GMAC_BLOCK_SIZE", "3K"));
  // Which leaves the default when it is read.
  EXPECT_FALSE(isAllowedValue("GMAC_STATS", ""));
  EXPECT_EQ(allowedValues("GMAC_PROTOCOL"), "batch, lazy, rolling");
}

TEST(Config, UnknownVariablesAreNamedWithTheClosestKnownOne) {
  const char* const environment[] = {"PATH=/bin",         "GMAC_PROTOCOL=lazy",
                                     "GMAC_PROTCOL=lazy", "GMAC_BLOCKSIZE=4096",
                                     "GMAC_TEST_SEED=4",  nullptr};
  EXPECT_THAT(unknownVariables(environment),
              ElementsAre(AllOf(HasSubstr("GMAC_PROTCOL "), HasSubstr("GMAC_PROTOCOL?")),
                          AllOf(HasSubstr("GMAC_BLOCKSIZE "), HasSubstr("GMAC_BLOCK_SIZE?"))));
}

TEST(Config, KnownVariablesDrawNoWarning) {
  const char* const environment[] = {"GMAC_STATS=x", "GMAC_LOG=off", "GMACX=1", nullptr};
  EXPECT_THAT(unknownVariables(environment), IsEmpty());
  EXPECT_THAT(unknownVariables(nullptr), IsEmpty());
}

TEST(Config, UnknownVariablesAreSaidOncePerProcess) {
  const char* const environment[] = {"GMAC_PROTCOL=lazy", nullptr};
  ::testing::internal::CaptureStderr();
  warnOfUnknownVariables(environment);
  warnOfUnknownVariables(environment);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "gmac: warning: GMAC_PROTCOL is no variable of this library and does nothing; did you "
            "mean GMAC_PROTOCOL?\n");
}

TEST(Config, AManagedProgramsHintsArePromisesWhereTheyAreTrusted) {
  const auto managed = readFrom({{"GMAC_MANAGED", "1"}});
  ASSERT_TRUE(managed.ok());
  EXPECT_TRUE(managed->managed);
  EXPECT_FALSE(managed->trustHints);
  const auto trusting = readFrom({{"GMAC_MANAGED", "trust"}});
  ASSERT_TRUE(trusting.ok());
  EXPECT_TRUE(trusting->managed);
  EXPECT_TRUE(trusting->trustHints);
}

TEST(Config, ReferencePageHasEveryVariableOnce) {
  const std::string page = describeConfig();
  constexpr std::array kNames = {
      "GMAC_PROTOCOL", "GMAC_ACCEL",      "GMAC_BLOCK_SIZE",  "GMAC_ROLLING_SIZE",
      "GMAC_STATS",    "GMAC_TRACE",      "GMAC_HOST_MEMORY", "GMAC_HOST_THREADS",
      "GMAC_DEVICE",   "GMAC_SCHEDULER",  "GMAC_SPILL",       "GMAC_MANAGED",
      "GMAC_LOG",      "GMAC_WAIT_LIMIT", "GMAC_MPI_ORDER",   "GMAC_MPI_TICKETS"};
  for (const char* name : kNames) {
    const std::string row = std::string("| `") + name + "` |";
    const auto first = page.find(row);
    ASSERT_NE(first, std::string::npos) << name;
    EXPECT_EQ(page.find(row, first + 1), std::string::npos) << name;
  }
  std::size_t rows = 0;
  for (std::size_t at = 0; (at = page.find("\n| `GMAC_", at)) != std::string::npos; ++at) ++rows;
  EXPECT_EQ(rows, kNames.size());
  EXPECT_THAT(page, HasSubstr("a power of two from 4K to 1G bytes"));
  EXPECT_THAT(page, Not(HasSubstr("GMAC_TEST_")));
}

TEST(Config, TestsVariablesAreReadAndDrawNoWarning) {
  const auto config = readFrom({{"GMAC_TEST_MIRROR", "moved"}, {"GMAC_TEST_IO_THREADS", "3"}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->mirror, MirrorKind::kMoved);
  EXPECT_EQ(config->ioThreads, 3u);
  const char* const environment[] = {"GMAC_TEST_MIRROR=moved", nullptr};
  EXPECT_THAT(unknownVariables(environment), IsEmpty());
}

}  // namespace
}  // namespace gmac
