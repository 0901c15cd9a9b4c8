// SPDX-License-Identifier: Apache-2.0
#include "parboil/stencil/stencil.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/parboil/host_executor.h"

namespace parboil::stencil {
namespace {

// No edge is a multiple of its tile.
constexpr Parameters kTiny{45, 19, 21, 6, 3};

std::vector<float> snapshotsOnHost(const std::vector<float>& source,
                                   const std::vector<float>& volume) {
  std::vector<float> current = volume;
  std::vector<float> next(volume.size(), 1e30f);
  std::vector<float> snapshots;
  for (unsigned step = 0; step < kTiny.steps; ++step) {
    addSource(current.data() + kTiny.emitter(), source[step]);
    runOnHost(&stepBlock, stepGrid(kTiny), kStepBlock, 0, static_cast<const float*>(current.data()),
              next.data(), kTiny.nx, kTiny.ny, kTiny.nz);
    std::swap(current, next);
    if ((step + 1) % kTiny.snapshotEvery == 0)
      snapshots.insert(snapshots.end(), current.begin(), current.end());
  }
  return snapshots;
}

TEST(Stencil, HostKernelAgreesWithTheReference) {
  const std::vector<float> source = makeSource(kTiny);
  const std::vector<float> volume = makeVolume(kTiny);
  const Check check =
      compare(kTiny, snapshotsOnHost(source, volume), reference(kTiny, source, volume));
  EXPECT_TRUE(check.ok) << check.detail;
}

TEST(Stencil, AConstantVolumeStaysWhatItIs) {
  const std::vector<float> silence(kTiny.steps, 0.0f);
  const std::vector<float> volume(kTiny.cells(), 2.0f);
  for (const float cell : snapshotsOnHost(silence, volume)) ASSERT_EQ(cell, 2.0f);
}

TEST(Stencil, CheckFindsOneCellThatIsOff) {
  const std::vector<float> source = makeSource(kTiny);
  const std::vector<float> volume = makeVolume(kTiny);
  std::vector<float> snapshots = snapshotsOnHost(source, volume);
  snapshots[kTiny.cells() + kTiny.emitter()] += 1e-5f;
  EXPECT_FALSE(compare(kTiny, snapshots, reference(kTiny, source, volume)).ok);
}

TEST(Stencil, CheckFindsAStepWithoutItsSource) {
  const std::vector<float> source = makeSource(kTiny);
  const std::vector<float> volume = makeVolume(kTiny);
  const std::vector<float> wanted = reference(kTiny, source, volume);
  for (unsigned step = 0; step < kTiny.steps; ++step) {
    std::vector<float> interrupted = source;
    interrupted[step] = 0;
    EXPECT_FALSE(compare(kTiny, snapshotsOnHost(interrupted, volume), wanted).ok)
        << "step " << step;
  }
}

}  // namespace
}  // namespace parboil::stencil
