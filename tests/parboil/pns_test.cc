// SPDX-License-Identifier: Apache-2.0
#include "parboil/pns/pns.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/parboil/host_executor.h"
#include "tests/support/temporary_folder.h"

namespace parboil::pns {
namespace {

constexpr Parameters kTiny{50, 70, 200, 1};

struct Net {
  explicit Net(const Parameters& size) : transitions(size.transitions), initial(size.places) {
    makeNet(7, size, transitions.data(), initial.data());
  }
  std::vector<Transition> transitions;
  std::vector<std::int32_t> initial;
};

struct Launch {
  std::vector<std::int32_t> trajectories;
  float variance[kRunsPerLaunch];
  std::int32_t peak[kRunsPerLaunch];
};

Launch launchOnHost(const Net& net, const Simulation& simulation) {
  Launch launch;
  launch.trajectories.resize(kRunsPerLaunch *
                             trajectoryLength(simulation.places, simulation.steps));
  runOnHost(&simulateBlock, {kRunsPerLaunch, 1, 1}, {kThreads, 1, 1},
            sharedBytes(simulation.places), net.transitions.data(), net.initial.data(),
            launch.trajectories.data(), &launch.variance[0], &launch.peak[0], simulation);
  return launch;
}

TEST(Pns, HostKernelAgreesWithTheReferenceExactly) {
  const Net net(kTiny);
  const Simulation simulation{kTiny.places, kTiny.transitions, kTiny.steps, 5};
  const Launch launch = launchOnHost(net, simulation);
  for (unsigned i = 0; i < kRunsPerLaunch; ++i) {
    const Outcome want = simulate(net.transitions.data(), net.initial.data(), simulation, 5 + i);
    EXPECT_EQ(launch.variance[i], want.variance) << "run " << 5 + i;
    EXPECT_EQ(launch.peak[i], want.peak) << "run " << 5 + i;
    EXPECT_GT(want.variance, 0) << "run " << 5 + i;
  }
}

TEST(Pns, RunsDiffer) {
  const Net net(kTiny);
  const Simulation simulation{kTiny.places, kTiny.transitions, kTiny.steps, 0};
  EXPECT_NE(simulate(net.transitions.data(), net.initial.data(), simulation, 0).variance,
            simulate(net.transitions.data(), net.initial.data(), simulation, 1).variance);
}

TEST(Pns, TokensAreNeitherMadeNorLostAndTheNetStaysAlive) {
  const Net net(kTiny);
  const Simulation simulation{kTiny.places, kTiny.transitions, kTiny.steps, 0};
  const Launch launch = launchOnHost(net, simulation);
  const std::int32_t tokens = std::accumulate(net.initial.begin(), net.initial.end(), 0);
  const std::int32_t* marking = launch.trajectories.data();
  for (std::uint32_t step = 0; step <= simulation.steps; ++step, marking += simulation.places) {
    ASSERT_EQ(std::accumulate(marking, marking + simulation.places, 0), tokens) << step;
    for (std::uint32_t p = 0; p < simulation.places; ++p) ASSERT_GE(marking[p], 0) << step;
  }
  EXPECT_GT(marking[simulation.steps - 1], 0) << "no transition fired in the last step";
}

// One place with one token, wanted by both transitions: many threads draw each, one may fire.
TEST(Pns, AConflictIsWonByTheLowestThread) {
  Transition transitions[2] = {};
  for (std::uint16_t t = 0; t < 2; ++t) {
    transitions[t].inputs[0] = {0, 1};
    transitions[t].outputs[0] = {static_cast<std::uint16_t>(1 + t), 1};
  }
  const std::int32_t initial[3] = {1, 0, 0};
  const Simulation simulation{3, 2, 1, 0};
  std::vector<std::int32_t> trajectories(kRunsPerLaunch * trajectoryLength(3, 1));
  float variance[kRunsPerLaunch];
  std::int32_t peak[kRunsPerLaunch];
  runOnHost(&simulateBlock, {kRunsPerLaunch, 1, 1}, {kThreads, 1, 1}, sharedBytes(3),
            &transitions[0], &initial[0], trajectories.data(), &variance[0], &peak[0], simulation);
  bool bothWon[2] = {};
  for (std::uint32_t run = 0; run < kRunsPerLaunch; ++run) {
    const std::int32_t* after = trajectories.data() + run * trajectoryLength(3, 1) + 3;
    const std::uint32_t winner = draw(run, 0, 0, 2);
    bothWon[winner] = true;
    EXPECT_EQ(after[0], 0) << run;
    EXPECT_EQ(after[1 + winner], 1) << run;
    EXPECT_EQ(after[2 - winner], 0) << run;
    EXPECT_EQ(after[3], 1) << "transitions fired in run " << run;
  }
  EXPECT_TRUE(bothWon[0] && bothWon[1]);
}

using PnsFiles = gmac::testing::FolderTest;

TEST_F(PnsFiles, CheckPassesARightFileAndFindsOneWrongBit) {
  const Context context{Size::kSmall, folder_};
  const Parameters size = parameters(context.size);
  generate(context);
  Net net(size);
  InputFile input(dataPath(context, "pns", "in"), kInput, context.size);
  input.read(net.transitions.data(), net.transitions.size() * sizeof(Transition));
  input.read(net.initial.data(), net.initial.size() * sizeof(std::int32_t));
  std::vector<Launch> launches;
  for (std::uint32_t n = 0; n < size.launches; ++n) {
    launches.push_back(
        launchOnHost(net, {size.places, size.transitions, size.steps, n * kRunsPerLaunch}));
  }
  const auto writeOutput = [&] {
    OutputFile output(dataPath(context, "pns", "out"), kOutput, context.size);
    for (const Launch& launch : launches) {
      output.write(launch.variance, sizeof launch.variance);
      output.write(launch.peak, sizeof launch.peak);
    }
    output.commit();
  };
  writeOutput();
  const Check right = check(context);
  EXPECT_TRUE(right.ok) << right.detail;
  launches.back().peak[kRunsPerLaunch - 1] ^= 1;
  writeOutput();
  EXPECT_FALSE(check(context).ok);
}

}  // namespace
}  // namespace parboil::pns
