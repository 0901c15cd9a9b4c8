// SPDX-License-Identifier: Apache-2.0
#include "parboil/sad/sad.h"

namespace parboil::sad {

void runGmac(const Context& context) {
  const Parameters size = parameters(context.size);
  const std::size_t frameBytes = size.samples() * sizeof(std::uint16_t);
  const std::size_t rowBytes = size.rowSads() * sizeof(std::uint16_t);
  const adsmDim_t grid{size.columns(), size.rows(), 1};
  const std::uint32_t slots = size.references + 1;

  std::uint16_t* frames = requireShared<std::uint16_t>(adsmAlloc(slots * frameBytes));
  std::uint16_t* sads = requireShared<std::uint16_t>(adsmAlloc(size.rows() * rowBytes));

  InputFile input(dataPath(context, "sad", "in"), kInput, context.size);
  OutputFile output(dataPath(context, "sad", "out"), kOutput, context.size);
  input.read(frames, frameBytes);
  for (std::uint32_t frame = 1; frame < size.frames; ++frame) {
    std::uint16_t* current = frames + frame % slots * size.samples();
    input.read(current, frameBytes);
    for (std::uint32_t back = 1; back <= size.referencesOf(frame); ++back) {
      const std::uint16_t* reference = frames + (frame - back) % slots * size.samples();
      search4x4Kernel().call(grid, {kThreads, 1, 1}, 0, current, reference, sads, size.width,
                             size.height);
      combine8x8Kernel().call(grid, {kThreads, 1, 1}, 0, sads);
      combine16x16Kernel().call(grid, {kThreads, 1, 1}, 0, sads);
    }
    require(adsmSync());
    for (std::uint32_t row = size.firstRow(); row < size.rows(); row += size.rowStride)
      output.write(sads + row * size.rowSads(), rowBytes);
  }
  output.commit();

  require(adsmFree(frames));
  require(adsmFree(sads));
}

}  // namespace parboil::sad
