// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "parboil/vecadd/vecadd.h"

namespace parboil::vecadd {

void runGmac(const Context& context) {
  const std::size_t count = elements(context.size);
  const std::size_t bytes = count * sizeof(float);
  Seeds seeds;
  InputFile input(dataPath(context, "vecadd", "in"), kInput, context.size);
  input.read(&seeds, sizeof seeds);

  float* a = requireShared<float>(adsmAlloc(bytes));
  float* b = requireShared<float>(adsmAlloc(bytes));
  float* c = requireShared<float>(adsmAlloc(bytes));
  fill(a, count, seeds.a);
  fill(b, count, seeds.b);

  addKernel().call({blocksFor(count, kThreads), 1, 1}, {kThreads, 1, 1}, 0, a, b, c, count);
  require(adsmSync());

  const double total = sum(c, count);
  OutputFile output(dataPath(context, "vecadd", "out"), kOutput, context.size);
  output.write(&total, sizeof total);
  for (std::size_t k = 0; k < kSamples; ++k)
    output.write(c + k * (count / kSamples), sizeof(float));
  output.commit();
  require(adsmFree(a));
  require(adsmFree(b));
  require(adsmFree(c));
}

}  // namespace parboil::vecadd
