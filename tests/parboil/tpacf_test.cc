// SPDX-License-Identifier: Apache-2.0
#include "parboil/tpacf/tpacf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/parboil/host_executor.h"
#include "tests/support/temporary_folder.h"

namespace parboil::tpacf {
namespace {

constexpr Parameters kTiny{2 * kThreads, 3};

std::vector<float> drawSets(const Parameters& size) {
  std::vector<float> degrees(2 * std::size_t{size.points} * size.sets());
  for (std::uint32_t s = 0; s < size.sets(); ++s) {
    float* set = degrees.data() + 2 * std::size_t{size.points} * s;
    makeSet(100 + s, s == 0, size.points, set, set + size.points);
  }
  return degrees;
}

// As the benchmark does it, with the sets' arrays spread out for the third coordinate.
std::vector<unsigned long long> countOnHost(const Parameters& size,
                                            const std::vector<float>& degrees) {
  const std::size_t points = size.points;
  std::vector<float> sets(3 * points * size.sets(), -7);
  for (std::size_t s = 0; s < size.sets(); ++s) {
    for (std::size_t i = 0; i < 2 * points; ++i)
      sets[3 * points * s + i] = degrees[2 * points * s + i];
  }
  toUnitVectors(sets.data(), size);
  makeSquaredEdges(hostEdges);
  std::vector<unsigned long long> histograms(std::size_t{size.histograms()} * kBins);
  runOnHost(&countBlock, {size.histograms(), size.points / kThreads, 1}, {kThreads, 1, 1}, 0,
            static_cast<const float*>(sets.data()), histograms.data(), size.points,
            size.randomSets);
  return histograms;
}

TEST(Tpacf, HostKernelAgreesWithTheReference) {
  const std::vector<float> degrees = drawSets(kTiny);
  std::vector<Counts> counts(kTiny.histograms());
  countAll(kTiny, degrees.data(), counts.data());
  const Check check = compare(kTiny, countOnHost(kTiny, degrees).data(), counts.data());
  EXPECT_TRUE(check.ok) << check.detail;
}

// The reference leaves out whole subtrees; all pairs, one by one, with the textbook's formula.
TEST(Tpacf, ReferenceCountsEveryPairOnce) {
  constexpr Parameters kTwoSets{kThreads, 1};
  constexpr double kDegree = 3.14159265358979323846 / 180;
  const std::vector<float> degrees = drawSets(kTwoSets);
  std::vector<Counts> counts(kTwoSets.histograms());
  countAll(kTwoSets, degrees.data(), counts.data());
  std::vector<std::uint64_t> brute(kTwoSets.histograms() * kBins);
  for (std::uint32_t h = 0; h < kTwoSets.histograms(); ++h) {
    const Pairing pair = pairingOf(h, kTwoSets.randomSets);
    const float* first = degrees.data() + 2 * kTwoSets.points * pair.first;
    const float* second = degrees.data() + 2 * kTwoSets.points * pair.second;
    for (std::uint32_t i = 0; i < kTwoSets.points; ++i) {
      for (std::uint32_t j = pair.first == pair.second ? i + 1 : 0; j < kTwoSets.points; ++j) {
        const double d1 = first[kTwoSets.points + i] * kDegree;
        const double d2 = second[kTwoSets.points + j] * kDegree;
        const double a = (first[i] - static_cast<double>(second[j])) * kDegree;
        const double haversine = std::pow(std::sin((d1 - d2) / 2), 2) +
                                 std::cos(d1) * std::cos(d2) * std::pow(std::sin(a / 2), 2);
        const double minutes = 2 * std::asin(std::sqrt(haversine)) / kDegree * 60;
        const double bin = std::floor(5 * std::log10(minutes / kSmallestAngle));
        if (bin >= 0 && bin < kBins) ++brute[h * kBins + static_cast<std::size_t>(bin)];
      }
    }
  }
  std::uint64_t undecided = 0;
  for (std::uint32_t h = 0; h < kTwoSets.histograms(); ++h) {
    for (unsigned k = 0; k < kBins; ++k) {
      const Counts& want = counts[h];
      EXPECT_GE(brute[h * kBins + k], want.sure[k]) << h << ", " << k;
      EXPECT_LE(brute[h * kBins + k], want.sure[k] + want.near[k] + want.near[k + 1])
          << h << ", " << k;
      undecided += want.near[k];
    }
  }
  EXPECT_LT(undecided, 20u) << "of 131,000 pairs";
}

TEST(Tpacf, TwoBodiesOneDegreeApartFallIntoTheBinOfSixtyMinutes) {
  constexpr Parameters kOneSet{kThreads, 0};
  // All others stand where the first one does and make no pair that counts, but with the second.
  std::vector<float> degrees(2 * std::size_t{kThreads}, 0.0f);
  degrees[1] = 1.0f;
  const auto histograms = countOnHost(kOneSet, degrees);
  for (unsigned k = 0; k < kBins; ++k)
    EXPECT_EQ(histograms[k], k == 8 ? kThreads - 1 : 0u) << k;  // 10^(8 / 5) = 39.8
}

class TpacfFiles : public gmac::testing::FolderTest {
 protected:
  void writeOutput(const Context& context, const std::vector<unsigned long long>& histograms) {
    OutputFile output(dataPath(context, "tpacf", "out"), kOutput, context.size);
    output.write(histograms.data(), histograms.size() * sizeof(unsigned long long));
    output.commit();
  }
};

TEST_F(TpacfFiles, CheckPassesARightFileAndFindsOneBinThatIsOff) {
  const Context context{Size::kSmall, folder_};
  const Parameters size = parameters(context.size);
  generate(context);
  std::vector<float> degrees(2 * std::size_t{size.points} * size.sets());
  InputFile input(dataPath(context, "tpacf", "in"), kInput, context.size);
  input.read(degrees.data(), degrees.size() * sizeof(float));
  auto histograms = countOnHost(size, degrees);
  writeOutput(context, histograms);
  const Check right = check(context);
  EXPECT_TRUE(right.ok) << right.detail;

  auto missing = histograms;
  missing.back() -= 50;
  writeOutput(context, missing);
  EXPECT_FALSE(check(context).ok);

  // Fifty pairs in the wrong one of two neighbouring bins leave the sum as it is.
  auto moved = histograms;
  moved[kBins - 1] -= 50;
  moved[kBins - 2] += 50;
  writeOutput(context, moved);
  EXPECT_FALSE(check(context).ok);
}

}  // namespace
}  // namespace parboil::tpacf
