// SPDX-License-Identifier: Apache-2.0
//
// The managed-memory programs on a real GPU: the same bytes with real managed memory and under
// `gmac run --managed`, with every protocol and both kinds of CUDA runtime; and the messages for
// programs that cannot work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>

#include "managed/compare/child.h"
#include "managed/compare/comparison.h"
#include "managed/compare/report.h"

namespace managed::compare {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Relative to where Bazel and the bundle start tests.
const std::string kCommand = "tools/gmac/gmac";

// Of one program; long enough for a loaded machine.
constexpr unsigned kTimeoutSeconds = 120;

class Programs
    : public ::testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};

TEST_P(Programs, GiveTheSameBytesUnderGmac) {
  const auto& [program, runtime, protocol] = GetParam();
  Options options;
  options.size = "small";
  options.repeats = 2;
  options.accelerators = {"cuda"};
  options.protocols = {protocol};
  options.programs = {program};
  options.runtimes = {runtime};
  options.timeoutSeconds = kTimeoutSeconds;
  options.programFolder = "managed";
  options.gmacCommand = kCommand;
  const Comparison comparison = compareAll(options);
  if (!comparison.skipped.empty()) GTEST_SKIP() << comparison.skipped[0].reason;
  EXPECT_EQ(comparison.rows.size(), 1U);
  EXPECT_TRUE(comparison.allEqual()) << toTable(comparison);
}

INSTANTIATE_TEST_SUITE_P(
    All, Programs,
    ::testing::Combine(
        ::testing::Values("graph_traversal", "jacobi", "kmeans", "image_filter", "sparse_updates",
                          "two_streams", "prefetch_advise", "allocation_churn", "small_training",
                          "small_reads", "short_records", "devices_in_turn", "devices_at_once",
                          "devices_jacobi", "devices_links", "devices_random", "devices_pool",
                          "devices_phases", "working_set", "filled_ahead", "disjoint_arrays",
                          "phase_change", "event_counters", "small_objects", "own_streams"),
        ::testing::Values("static", "shared"), ::testing::Values("rolling", "lazy", "batch")),
    [](const auto& of) {
      return std::string(std::get<0>(of.param)) + "_" + std::get<1>(of.param) + "_" +
             std::get<2>(of.param);
    });

// The programs that memory which is consistent at calls cannot serve, or not everywhere.
class UnservedPrograms : public ::testing::TestWithParam<const char*> {
 protected:
  ChildEnd alone(const std::string& program) {
    return runChild({path(program), "--size", "small"}, false, kTimeoutSeconds, scratch_.path());
  }
  ChildEnd underGmac(const std::string& program) {
    return runChild(
        {kCommand, "run", "--managed", "--accel", "cuda", "--", path(program), "--size", "small"},
        true, kTimeoutSeconds, scratch_.path());
  }
  static std::string path(const std::string& program) {
    return std::string("managed/") + GetParam() + "/" + program;
  }
  // Why the program cannot run here at all; empty when it can.
  std::string whyNot(const std::string& program) {
    if (!fs::exists(path(program))) return "not built: there was no CUDA toolkit";
    const ChildEnd end = alone(program);
    return end.status == 0 ? "" : end.describe();
  }

  ScratchFolder scratch_;
};

TEST_P(UnservedPrograms, ThatTalkToARunningKernelAreToldSo) {
  if (const std::string why = whyNot("ping_pong"); !why.empty()) GTEST_SKIP() << why;
  setenv("GMAC_WAIT_LIMIT", "2", 1);
  const ChildEnd end = underGmac("ping_pong");
  unsetenv("GMAC_WAIT_LIMIT");
  EXPECT_FALSE(end.timedOut);
  EXPECT_NE(end.status, 0);
  EXPECT_THAT(end.errors, AllOf(HasSubstr("gmac: "), HasSubstr("GMAC_WAIT_LIMIT")));
}

TEST_P(UnservedPrograms, WithManagedVariablesAreServed) {
  if (const std::string why = whyNot("managed_variable"); !why.empty()) GTEST_SKIP() << why;
  const ChildEnd end = underGmac("managed_variable");
  EXPECT_FALSE(end.timedOut);
  EXPECT_EQ(end.status, 0) << end.errors;
  EXPECT_THAT(end.output, HasSubstr("\"checked\": true"));
}

INSTANTIATE_TEST_SUITE_P(Runtimes, UnservedPrograms, ::testing::Values("static", "shared"));

}  // namespace
}  // namespace managed::compare
