// SPDX-License-Identifier: Apache-2.0
#include "parboil/require_cuda.h"
#include "parboil/sad/sad.h"

extern "C" __global__ void sadSearch4x4(const std::uint16_t* current,
                                        const std::uint16_t* reference, std::uint16_t* sads,
                                        std::uint32_t width, std::uint32_t height);
extern "C" __global__ void sadCombine8x8(std::uint16_t* sads);
extern "C" __global__ void sadCombine16x16(std::uint16_t* sads);

namespace parboil::sad {

void runExplicit(const Context& context) {
  const Parameters size = parameters(context.size);
  const std::size_t frameBytes = size.samples() * sizeof(std::uint16_t);
  const std::size_t rowBytes = size.rowSads() * sizeof(std::uint16_t);
  const dim3 grid(size.columns(), size.rows());
  const std::uint32_t slots = size.references + 1;

  std::uint16_t* hostFrame = requireMemory<std::uint16_t>(malloc(frameBytes));
  std::uint16_t* sads = requireMemory<std::uint16_t>(malloc(rowBytes));
  std::uint16_t* deviceFrames;
  std::uint16_t* deviceSads;
  require(cudaMalloc(&deviceFrames, slots * frameBytes));
  require(cudaMalloc(&deviceSads, size.rows() * rowBytes));

  InputFile input(dataPath(context, "sad", "in"), kInput, context.size);
  OutputFile output(dataPath(context, "sad", "out"), kOutput, context.size);
  input.read(hostFrame, frameBytes);
  require(cudaMemcpy(deviceFrames, hostFrame, frameBytes, cudaMemcpyHostToDevice));
  for (std::uint32_t frame = 1; frame < size.frames; ++frame) {
    std::uint16_t* current = deviceFrames + frame % slots * size.samples();
    input.read(hostFrame, frameBytes);
    require(cudaMemcpy(current, hostFrame, frameBytes, cudaMemcpyHostToDevice));
    for (std::uint32_t back = 1; back <= size.referencesOf(frame); ++back) {
      const std::uint16_t* reference = deviceFrames + (frame - back) % slots * size.samples();
      sadSearch4x4<<<grid, kThreads>>>(current, reference, deviceSads, size.width, size.height);
      require(cudaGetLastError());
      sadCombine8x8<<<grid, kThreads>>>(deviceSads);
      require(cudaGetLastError());
      sadCombine16x16<<<grid, kThreads>>>(deviceSads);
      require(cudaGetLastError());
    }
    for (std::uint32_t row = size.firstRow(); row < size.rows(); row += size.rowStride) {
      require(
          cudaMemcpy(sads, deviceSads + row * size.rowSads(), rowBytes, cudaMemcpyDeviceToHost));
      output.write(sads, rowBytes);
    }
  }
  output.commit();

  require(cudaFree(deviceFrames));
  require(cudaFree(deviceSads));
  free(hostFrame);
  free(sads);
}

}  // namespace parboil::sad
