// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "parboil/parallel.h"
#include "parboil/sad/sad.h"

namespace parboil::sad {
namespace {

struct Shape {
  int first, width, height;
};
constexpr Shape kShapes[] = {{k4x4, 4, 4},   {k8x4, 8, 4},   {k4x8, 4, 8},    {k8x8, 8, 8},
                             {k16x8, 16, 8}, {k8x16, 8, 16}, {k16x16, 16, 16}};

// SADs of one macroblock; `window` holds the kWindow x kWindow reference samples around it.
void searchMacroblock(const std::uint16_t* block, const std::uint16_t* window,
                      std::uint16_t* sads) {
  std::fill(sads, sads + std::size_t{kPartitions} * kPositions, kNoSad);
  for (const Shape& shape : kShapes) {
    std::uint16_t* out = sads + std::size_t{kPositions} * static_cast<std::size_t>(shape.first);
    for (int top = 0; top < kMacroblock; top += shape.height) {
      for (int left = 0; left < kMacroblock; left += shape.width, out += kPositions) {
        for (int dy = 0; dy < kSide; ++dy) {
          std::uint16_t sums[kSide] = {};
          for (int y = top; y < top + shape.height; ++y) {
            for (int x = left; x < left + shape.width; ++x) {
              const int sample = block[y * kMacroblock + x];
              const std::uint16_t* shifted = window + (y + dy) * kWindow + x;
              for (int dx = 0; dx < kSide; ++dx)
                sums[dx] = static_cast<std::uint16_t>(sums[dx] + std::abs(sample - shifted[dx]));
            }
          }
          std::copy(sums, sums + kSide, out + dy * kSide);
        }
      }
    }
  }
}

}  // namespace

void searchRow(const Parameters& size, const std::uint16_t* current, const std::uint16_t* reference,
               std::uint32_t row, std::uint16_t* sads) {
  parallelFor(size.columns(), [&](std::size_t column) {
    const int left = static_cast<int>(column) * kMacroblock;
    const int top = static_cast<int>(row) * kMacroblock;
    std::uint16_t block[kMacroblock * kMacroblock];
    std::uint16_t window[kWindow * kWindow];
    for (int y = 0; y < kMacroblock; ++y) {
      for (int x = 0; x < kMacroblock; ++x) {
        block[y * kMacroblock + x] = current[static_cast<std::size_t>(top + y) * size.width +
                                             static_cast<std::size_t>(left + x)];
      }
    }
    for (int y = 0; y < kWindow; ++y) {
      for (int x = 0; x < kWindow; ++x) {
        const auto fromY = static_cast<std::size_t>(clampTo(top + y - kRange, size.height));
        const auto fromX = static_cast<std::size_t>(clampTo(left + x - kRange, size.width));
        window[y * kWindow + x] = reference[fromY * size.width + fromX];
      }
    }
    searchMacroblock(block, window, sads + column * kPartitions * kPositions);
  });
}

namespace {

void makeReference(const Context& context) {
  const auto path = dataPath(context, "sad", "ref");
  if (isCurrent(path, kReference, context.size)) return;
  const Parameters size = parameters(context.size);
  std::vector<std::vector<std::uint16_t>> recent(size.references + 1);
  std::vector<std::uint16_t> sads(size.rowSads());
  InputFile input(dataPath(context, "sad", "in"), kInput, context.size);
  OutputFile file(path, kReference, context.size);
  for (std::uint32_t frame = 0; frame < size.frames; ++frame) {
    auto& current = recent[frame % recent.size()];
    current.resize(size.samples());
    input.read(current.data(), current.size() * sizeof(std::uint16_t));
    if (frame == 0) continue;
    const auto& oldest = recent[(frame - size.referencesOf(frame)) % recent.size()];
    for (std::uint32_t row = size.firstRow(); row < size.rows(); row += size.rowStride) {
      searchRow(size, current.data(), oldest.data(), row, sads.data());
      file.write(sads.data(), sads.size() * sizeof(std::uint16_t));
    }
  }
  file.commit();
}

}  // namespace

// Tolerance: none, all is done in integers.
Check check(const Context& context) {
  makeReference(context);
  const Parameters size = parameters(context.size);
  InputFile reference(dataPath(context, "sad", "ref"), kReference, context.size);
  InputFile output(dataPath(context, "sad", "out"), kOutput, context.size);
  if (output.payloadBytes() != reference.payloadBytes()) {
    return {false, std::to_string(output.payloadBytes()) + " bytes instead of " +
                       std::to_string(reference.payloadBytes())};
  }
  std::vector<std::uint16_t> want(size.rowSads());
  std::vector<std::uint16_t> got(want.size());
  const std::size_t rows = reference.payloadBytes() / (want.size() * sizeof(std::uint16_t));
  for (std::size_t row = 0; row < rows; ++row) {
    reference.read(want.data(), want.size() * sizeof(std::uint16_t));
    output.read(got.data(), got.size() * sizeof(std::uint16_t));
    const auto wrong = std::mismatch(got.begin(), got.end(), want.begin());
    if (wrong.first != got.end()) {
      return {false, "SAD " + std::to_string(wrong.first - got.begin()) + " of sampled row " +
                         std::to_string(row) + " is " + std::to_string(*wrong.first) +
                         ", reference " + std::to_string(*wrong.second)};
    }
  }
  return {rows > 0, "all " + std::to_string(rows * want.size()) + " SADs equal"};
}

}  // namespace parboil::sad
