// SPDX-License-Identifier: Apache-2.0
#include "parboil/pns/pns.h"
#include "parboil/require_cuda.h"

extern "C" __global__ void pnsSimulate(const parboil::pns::Transition* net,
                                       const std::int32_t* initial, std::int32_t* trajectories,
                                       float* variance, std::int32_t* peaks,
                                       parboil::pns::Simulation simulation);

namespace parboil::pns {

void runExplicit(const Context& context) {
  const Parameters size = parameters(context.size);
  const std::size_t netBytes = size.transitions * sizeof(Transition);
  const std::size_t markingBytes = size.places * sizeof(std::int32_t);
  const std::size_t trajectoryBytes =
      kRunsPerLaunch * trajectoryLength(size.places, size.steps) * sizeof(std::int32_t);

  Transition* net = requireMemory<Transition>(malloc(netBytes));
  std::int32_t* initial = requireMemory<std::int32_t>(malloc(markingBytes));
  float* variance = requireMemory<float>(malloc(kRunsPerLaunch * sizeof(float)));
  std::int32_t* peak = requireMemory<std::int32_t>(malloc(kRunsPerLaunch * sizeof(std::int32_t)));
  Transition* deviceNet;
  std::int32_t* deviceInitial;
  std::int32_t* deviceTrajectories;
  float* deviceVariance;
  std::int32_t* devicePeak;
  require(cudaMalloc(&deviceNet, netBytes));
  require(cudaMalloc(&deviceInitial, markingBytes));
  require(cudaMalloc(&deviceTrajectories, trajectoryBytes));
  require(cudaMalloc(&deviceVariance, kRunsPerLaunch * sizeof(float)));
  require(cudaMalloc(&devicePeak, kRunsPerLaunch * sizeof(std::int32_t)));

  InputFile input(dataPath(context, "pns", "in"), kInput, context.size);
  input.read(net, netBytes);
  input.read(initial, markingBytes);
  require(cudaMemcpy(deviceNet, net, netBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceInitial, initial, markingBytes, cudaMemcpyHostToDevice));

  OutputFile output(dataPath(context, "pns", "out"), kOutput, context.size);
  for (std::uint32_t launch = 0; launch < size.launches; ++launch) {
    const Simulation simulation{size.places, size.transitions, size.steps, launch * kRunsPerLaunch};
    pnsSimulate<<<kRunsPerLaunch, kThreads, sharedBytes(size.places)>>>(
        deviceNet, deviceInitial, deviceTrajectories, deviceVariance, devicePeak, simulation);
    require(cudaGetLastError());
    require(cudaMemcpy(variance, deviceVariance, kRunsPerLaunch * sizeof(float),
                       cudaMemcpyDeviceToHost));
    require(cudaMemcpy(peak, devicePeak, kRunsPerLaunch * sizeof(std::int32_t),
                       cudaMemcpyDeviceToHost));
    output.write(variance, kRunsPerLaunch * sizeof(float));
    output.write(peak, kRunsPerLaunch * sizeof(std::int32_t));
  }
  output.commit();

  require(cudaFree(deviceNet));
  require(cudaFree(deviceInitial));
  require(cudaFree(deviceTrajectories));
  require(cudaFree(deviceVariance));
  require(cudaFree(devicePeak));
  free(net);
  free(initial);
  free(variance);
  free(peak);
}

}  // namespace parboil::pns
