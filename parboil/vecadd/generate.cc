// SPDX-License-Identifier: Apache-2.0
#include "parboil/random.h"
#include "parboil/vecadd/vecadd.h"

namespace parboil::vecadd {

void generate(const Context& context) {
  const auto path = dataPath(context, "vecadd", "in");
  if (isCurrent(path, kInput, context.size)) return;
  Random random(20100313);
  const Seeds seeds{static_cast<std::uint32_t>(random.bits()),
                    static_cast<std::uint32_t>(random.bits())};
  OutputFile file(path, kInput, context.size);
  file.write(&seeds, sizeof seeds);
  file.commit();
}

void fill(float* vector, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = 0; i < count; ++i) vector[i] = element(seed, static_cast<std::uint32_t>(i));
}

double sum(const float* vector, std::size_t count) {
  // Eight partial sums, for the adder's latency.
  double partial[8] = {};
  for (std::size_t i = 0; i < count; i += 8) {
    for (std::size_t k = 0; k < 8; ++k) partial[k] += vector[i + k];
  }
  double total = 0;
  for (const double p : partial) total += p;
  return total;
}

}  // namespace parboil::vecadd
