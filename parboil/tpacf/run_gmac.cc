// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "parboil/tpacf/tpacf.h"

namespace parboil::tpacf {

void runGmac(const Context& context) {
  const Parameters size = parameters(context.size);
  const std::size_t points = size.points;
  const std::size_t setsBytes = 3 * points * size.sets() * sizeof(float);
  const std::size_t histogramsBytes = size.histograms() * kBins * sizeof(unsigned long long);

  float* sets = requireShared<float>(adsmAlloc(setsBytes));
  unsigned long long* histograms = requireShared<unsigned long long>(adsmAlloc(histogramsBytes));

  InputFile input(dataPath(context, "tpacf", "in"), kInput, context.size);
  for (std::uint32_t s = 0; s < size.sets(); ++s)
    input.read(sets + 3 * points * s, 2 * points * sizeof(float));
  toUnitVectors(sets, size);
  std::memset(histograms, 0, histogramsBytes);
  float edges[kBins + 1];
  makeSquaredEdges(edges);

  countKernel().setConstant(kEdgesConstant, edges, sizeof edges);
  countKernel().call({size.histograms(), size.points / kThreads, 1}, {kThreads, 1, 1}, 0, sets,
                     histograms, size.points, size.randomSets);
  require(adsmSync());

  OutputFile output(dataPath(context, "tpacf", "out"), kOutput, context.size);
  output.write(histograms, histogramsBytes);
  output.commit();
  require(adsmFree(sets));
  require(adsmFree(histograms));
}

}  // namespace parboil::tpacf
