// SPDX-License-Identifier: Apache-2.0
#include "parboil/pns/pns.h"

namespace parboil::pns {

void runGmac(const Context& context) {
  const Parameters size = parameters(context.size);
  const std::size_t netBytes = size.transitions * sizeof(Transition);
  const std::size_t markingBytes = size.places * sizeof(std::int32_t);
  const std::size_t trajectoryBytes =
      kRunsPerLaunch * trajectoryLength(size.places, size.steps) * sizeof(std::int32_t);

  Transition* net = requireShared<Transition>(adsmAlloc(netBytes));
  std::int32_t* initial = requireShared<std::int32_t>(adsmAlloc(markingBytes));
  std::int32_t* trajectories = requireShared<std::int32_t>(adsmAlloc(trajectoryBytes));
  float* variance = requireShared<float>(adsmAlloc(kRunsPerLaunch * sizeof(float)));
  std::int32_t* peak =
      requireShared<std::int32_t>(adsmAlloc(kRunsPerLaunch * sizeof(std::int32_t)));

  InputFile input(dataPath(context, "pns", "in"), kInput, context.size);
  input.read(net, netBytes);
  input.read(initial, markingBytes);

  OutputFile output(dataPath(context, "pns", "out"), kOutput, context.size);
  for (std::uint32_t launch = 0; launch < size.launches; ++launch) {
    const Simulation simulation{size.places, size.transitions, size.steps, launch * kRunsPerLaunch};
    simulateKernel().call({kRunsPerLaunch, 1, 1}, {kThreads, 1, 1}, sharedBytes(size.places), net,
                          initial, trajectories, variance, peak, simulation);
    require(adsmSync());
    output.write(variance, kRunsPerLaunch * sizeof(float));
    output.write(peak, kRunsPerLaunch * sizeof(std::int32_t));
  }
  output.commit();

  require(adsmFree(net));
  require(adsmFree(initial));
  require(adsmFree(trajectories));
  require(adsmFree(variance));
  require(adsmFree(peak));
}

}  // namespace parboil::pns
