// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "parboil/comparison.h"
#include "parboil/parallel.h"
#include "parboil/vecadd/vecadd.h"

namespace parboil::vecadd {

// Tolerance: one float addition is rounded correctly on every accelerator, so samples must be
// equal. The sum is of doubles in any order: 2^30 additions err by less than 2^30 * 2^-53 of the
// total.
Check check(const Context& context) {
  constexpr double kSumTolerance = 0x1p-23;
  Seeds seeds;
  InputFile input(dataPath(context, "vecadd", "in"), kInput, context.size);
  input.read(&seeds, sizeof seeds);

  double total;
  std::vector<float> samples(kSamples);
  InputFile output(dataPath(context, "vecadd", "out"), kOutput, context.size);
  output.read(&total, sizeof total);
  output.read(samples.data(), kSamples * sizeof(float));

  const std::size_t count = elements(context.size);
  constexpr std::size_t kParts = 64;
  std::vector<double> partial(kParts);
  parallelFor(kParts, [&](std::size_t part) {
    double mine = 0;
    for (std::size_t i = part * (count / kParts); i < (part + 1) * (count / kParts); ++i) {
      const auto index = static_cast<std::uint32_t>(i);
      mine += element(seeds.a, index) + element(seeds.b, index);
    }
    partial[part] = mine;
  });
  double wantTotal = 0;
  for (const double part : partial) wantTotal += part;

  Comparison values(0, 0);
  for (std::size_t k = 0; k < kSamples; ++k) {
    const auto index = static_cast<std::uint32_t>(k * (count / kSamples));
    values.add(samples[k], element(seeds.a, index) + element(seeds.b, index));
  }
  if (const Check verdict = values.result(); !verdict.ok)
    return {false, "samples: " + verdict.detail};
  Comparison sums(0, kSumTolerance);
  sums.add(total, wantTotal);
  const Check verdict = sums.result();
  return {verdict.ok, "sum: " + verdict.detail};
}

}  // namespace parboil::vecadd
