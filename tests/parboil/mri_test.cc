// SPDX-License-Identifier: Apache-2.0
#include "parboil/mri/mri.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parboil/mri_fhd/mri_fhd.h"
#include "parboil/mri_q/mri_q.h"
#include "tests/parboil/host_executor.h"

namespace parboil {
namespace {

// 729 voxels are no multiple of 256, 1,100 samples none of 512 or 1,024.
constexpr mri::Parameters kTiny{9, 1100, 1};
constexpr auto kVoxels = static_cast<unsigned>(kTiny.voxels());
constexpr auto kSamples = static_cast<unsigned>(kTiny.samples);

struct Image {
  std::vector<float> real = std::vector<float>(kVoxels);
  std::vector<float> imaginary = std::vector<float>(kVoxels);
};

Image qOnHost(const mriq::Input& input) {
  std::vector<float> phiMag(kSamples);
  runOnHost(&mriq::phiMagBlock, {blocksFor(kSamples, mriq::kPhiThreads), 1, 1},
            {mriq::kPhiThreads, 1, 1}, 0, input.phiR.data(), input.phiI.data(), phiMag.data(),
            kSamples);
  const auto joined = mriq::joinSamples(input.trajectory, phiMag.data());
  Image image;
  for (std::size_t first = 0; first < joined.size(); first += mriq::kChunk) {
    const std::size_t count = std::min(mriq::kChunk, joined.size() - first);
    std::copy_n(joined.data() + first, count, mriq::hostSamples);
    runOnHost(&mriq::qBlock, {blocksFor(kVoxels, mriq::kQThreads), 1, 1}, {mriq::kQThreads, 1, 1},
              0, input.voxels.x.data(), input.voxels.y.data(), input.voxels.z.data(),
              image.real.data(), image.imaginary.data(), kVoxels, static_cast<unsigned>(count));
  }
  return image;
}

Image fhdOnHost(const mrifhd::Input& input) {
  std::vector<float> rhoR(kSamples);
  std::vector<float> rhoI(kSamples);
  runOnHost(&mrifhd::rhoBlock, {blocksFor(kSamples, mrifhd::kRhoThreads), 1, 1},
            {mrifhd::kRhoThreads, 1, 1}, 0, input.phiR.data(), input.phiI.data(), input.dR.data(),
            input.dI.data(), rhoR.data(), rhoI.data(), kSamples);
  const auto joined = mrifhd::joinSamples(input.trajectory, rhoR.data(), rhoI.data());
  Image image;
  for (std::size_t first = 0; first < joined.size(); first += mrifhd::kChunk) {
    const std::size_t count = std::min(mrifhd::kChunk, joined.size() - first);
    std::copy_n(joined.data() + first, count, mrifhd::hostSamples);
    runOnHost(&mrifhd::fhdBlock, {blocksFor(kVoxels, mrifhd::kFhdThreads), 1, 1},
              {mrifhd::kFhdThreads, 1, 1}, 0, input.voxels.x.data(), input.voxels.y.data(),
              input.voxels.z.data(), image.real.data(), image.imaginary.data(), kVoxels,
              static_cast<unsigned>(count));
  }
  return image;
}

TEST(Mri, SinesAndCosinesOfWholeTurnsAreGoodToAMillionth) {
  for (double turns = -40; turns < 40; turns += 0.00137) {
    const auto single = static_cast<float>(turns);
    float cosine;
    float sine;
    mri::expTurns(single, &cosine, &sine);
    ASSERT_NEAR(cosine, std::cos(2 * M_PI * double{single}), 1e-6) << turns;
    ASSERT_NEAR(sine, std::sin(2 * M_PI * double{single}), 1e-6) << turns;
  }
}

TEST(MriQ, HostKernelsAgreeWithTheReference) {
  const mriq::Input input = mriq::makeInput(kTiny);
  const Image image = qOnHost(input);
  const Check check = mri::compare(kTiny, mriq::kMagnitude, image.real, image.imaginary,
                                   mriq::reference(kTiny, input));
  EXPECT_TRUE(check.ok) << check.detail;
}

TEST(MriQ, CheckFindsOneVoxelThatIsOff) {
  const mriq::Input input = mriq::makeInput(kTiny);
  Image image = qOnHost(input);
  image.imaginary[kVoxels - 1] += 0.05f;
  EXPECT_FALSE(mri::compare(kTiny, mriq::kMagnitude, image.real, image.imaginary,
                            mriq::reference(kTiny, input))
                   .ok);
}

TEST(MriFhd, HostKernelsAgreeWithTheReference) {
  const mrifhd::Input input = mrifhd::makeInput(kTiny);
  const Image image = fhdOnHost(input);
  const Check check = mri::compare(kTiny, mrifhd::kMagnitude, image.real, image.imaginary,
                                   mrifhd::reference(kTiny, input));
  EXPECT_TRUE(check.ok) << check.detail;
}

TEST(MriFhd, CheckFindsSwappedParts) {
  const mrifhd::Input input = mrifhd::makeInput(kTiny);
  const Image image = fhdOnHost(input);
  EXPECT_FALSE(mri::compare(kTiny, mrifhd::kMagnitude, image.imaginary, image.real,
                            mrifhd::reference(kTiny, input))
                   .ok);
}

TEST(MriFhd, CheckFindsOneVoxelThatIsOff) {
  const mrifhd::Input input = mrifhd::makeInput(kTiny);
  Image image = fhdOnHost(input);
  image.real[0] += 0.05f;
  EXPECT_FALSE(mri::compare(kTiny, mrifhd::kMagnitude, image.real, image.imaginary,
                            mrifhd::reference(kTiny, input))
                   .ok);
}

}  // namespace
}  // namespace parboil
