// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "parboil/parallel.h"
#include "parboil/random.h"
#include "parboil/sad/sad.h"

namespace parboil::sad {
namespace {

constexpr std::uint32_t kTexture = 512;  // samples along an axis; the texture repeats

// Noise smoothed over 5 x 5 samples, so that a displacement that is nearly right is nearly as good.
std::vector<std::uint16_t> makeTexture(std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint32_t> noise(kTexture * kTexture);
  for (std::uint32_t& sample : noise) sample = random.below(256);
  std::vector<std::uint16_t> texture(noise.size());
  for (std::uint32_t y = 0; y < kTexture; ++y) {
    for (std::uint32_t x = 0; x < kTexture; ++x) {
      std::uint32_t sum = 0;
      for (std::uint32_t j = 0; j < 5; ++j) {
        for (std::uint32_t i = 0; i < 5; ++i)
          sum += noise[(y + j) % kTexture * kTexture + (x + i) % kTexture];
      }
      texture[y * kTexture + x] = static_cast<std::uint16_t>(sum / 25);
    }
  }
  return texture;
}

}  // namespace

void makeFrame(const Parameters& size, std::uint32_t number, std::uint16_t* frame) {
  static const std::vector<std::uint16_t> texture = makeTexture(264);
  // The scene pans; every other tile of 96 x 96 samples moves by itself; the sensor adds noise.
  parallelFor(size.height, [&](std::size_t row) {
    Random random(row * 1000003 + number);
    const auto y = static_cast<std::uint32_t>(row);
    for (std::uint32_t x = 0; x < size.width; ++x) {
      const bool moves = ((x / 96) + (y / 96)) % 2 != 0;
      const std::uint32_t u = x + number * (moves ? 5 : 2);
      const std::uint32_t v = y + number * (moves ? 509 : 1);  // 509: three back
      const std::uint32_t light = texture[v % kTexture * kTexture + u % kTexture];
      frame[row * size.width + x] = static_cast<std::uint16_t>((light + random.below(6)) & 255);
    }
  });
}

void generate(const Context& context) {
  const auto path = dataPath(context, "sad", "in");
  if (isCurrent(path, kInput, context.size)) return;
  const Parameters size = parameters(context.size);
  std::vector<std::uint16_t> frame(size.samples());
  OutputFile file(path, kInput, context.size);
  for (std::uint32_t number = 0; number < size.frames; ++number) {
    makeFrame(size, number, frame.data());
    file.write(frame.data(), frame.size() * sizeof(std::uint16_t));
  }
  file.commit();
}

}  // namespace parboil::sad
