// SPDX-License-Identifier: Apache-2.0
#include "parboil/require_cuda.h"
#include "parboil/tpacf/tpacf.h"

extern "C" __global__ void tpacfCount(const float* sets, unsigned long long* histograms,
                                      std::uint32_t points, std::uint32_t randomSets);

namespace parboil::tpacf {

void runExplicit(const Context& context) {
  const Parameters size = parameters(context.size);
  const std::size_t points = size.points;
  const std::size_t setsBytes = 3 * points * size.sets() * sizeof(float);
  const std::size_t histogramsBytes = size.histograms() * kBins * sizeof(unsigned long long);

  float* sets = requireMemory<float>(malloc(setsBytes));
  unsigned long long* histograms = requireMemory<unsigned long long>(malloc(histogramsBytes));
  float* deviceSets;
  unsigned long long* deviceHistograms;
  require(cudaMalloc(&deviceSets, setsBytes));
  require(cudaMalloc(&deviceHistograms, histogramsBytes));

  InputFile input(dataPath(context, "tpacf", "in"), kInput, context.size);
  for (std::uint32_t s = 0; s < size.sets(); ++s)
    input.read(sets + 3 * points * s, 2 * points * sizeof(float));
  toUnitVectors(sets, size);
  float edges[kBins + 1];
  makeSquaredEdges(edges);

  require(cudaMemcpy(deviceSets, sets, setsBytes, cudaMemcpyHostToDevice));
  require(cudaMemset(deviceHistograms, 0, histogramsBytes));
  require(cudaMemcpyToSymbol(edgesSymbol(), edges, sizeof edges));
  tpacfCount<<<dim3(size.histograms(), size.points / kThreads), kThreads>>>(
      deviceSets, deviceHistograms, size.points, size.randomSets);
  require(cudaGetLastError());
  require(cudaMemcpy(histograms, deviceHistograms, histogramsBytes, cudaMemcpyDeviceToHost));

  OutputFile output(dataPath(context, "tpacf", "out"), kOutput, context.size);
  output.write(histograms, histogramsBytes);
  output.commit();
  require(cudaFree(deviceSets));
  require(cudaFree(deviceHistograms));
  free(sets);
  free(histograms);
}

}  // namespace parboil::tpacf
