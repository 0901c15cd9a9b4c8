// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "parboil/random.h"
#include "parboil/tpacf/tpacf.h"

namespace parboil::tpacf {

void makeEdges(double* chords) {
  for (unsigned k = 0; k <= kBins; ++k) {
    const double minutes = kSmallestAngle * std::pow(10.0, k / 5.0);
    chords[k] = 2 * std::sin(minutes / 60 / 180 * std::numbers::pi / 2);
  }
}

void makeSquaredEdges(float* edges) {
  double chords[kBins + 1];
  makeEdges(chords);
  for (unsigned k = 0; k <= kBins; ++k) edges[k] = static_cast<float>(chords[k] * chords[k]);
}

void makeSet(std::uint64_t seed, bool observed, std::uint32_t points, float* rightAscension,
             float* declination) {
  constexpr double kDegree = std::numbers::pi / 180;
  Random random(seed);
  double centre[3] = {};
  for (std::uint32_t i = 0; i < points; ++i) {
    double v[3];
    do {
      for (double& c : v) c = random.uniform(-1, 1);
    } while (v[0] * v[0] + v[1] * v[1] + v[2] * v[2] > 1);
    // Of observed bodies, every second one belongs to a cluster of about 32, within some degrees.
    if (observed && i % 64 == 0) std::copy(v, v + 3, centre);
    if (observed && i % 2 == 1) {
      const double spread = 0.05 * random.uniform();
      for (int c = 0; c < 3; ++c) v[c] = centre[c] + spread * v[c];
    }
    const double length = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    const double angle = std::atan2(v[1], v[0]) / kDegree;
    rightAscension[i] = static_cast<float>(angle < 0 ? angle + 360 : angle);
    declination[i] = static_cast<float>(std::asin(std::clamp(v[2] / length, -1.0, 1.0)) / kDegree);
  }
}

void generate(const Context& context) {
  const auto path = dataPath(context, "tpacf", "in");
  if (isCurrent(path, kInput, context.size)) return;
  const Parameters size = parameters(context.size);
  std::vector<float> set(2 * std::size_t{size.points});
  OutputFile file(path, kInput, context.size);
  for (std::uint32_t s = 0; s < size.sets(); ++s) {
    makeSet(1 + s, s == 0, size.points, set.data(), set.data() + size.points);
    file.write(set.data(), set.size() * sizeof(float));
  }
  file.commit();
}

void toUnitVectors(float* sets, const Parameters& size) {
  const std::size_t points = size.points;
  float* const end = sets + 3 * points * size.sets();
  for (float* set = sets; set != end; set += 3 * points) {
    for (std::size_t i = 0; i < 2 * points; ++i)
      set[i] = static_cast<float>(set[i] * (std::numbers::pi / 180));
  }
  for (float* set = sets; set != end; set += 3 * points) {
    const float* declination = set + points;
    float* z = set + 2 * points;
    for (std::size_t i = 0; i < points; ++i)
      z[i] = static_cast<float>(std::sin(static_cast<double>(declination[i])));
  }
  for (float* set = sets; set != end; set += 3 * points) {
    float* x = set;
    float* y = set + points;
    for (std::size_t i = 0; i < points; ++i) {
      const double rightAscension = x[i];
      const double cosine = std::cos(static_cast<double>(y[i]));
      x[i] = static_cast<float>(cosine * std::cos(rightAscension));
      y[i] = static_cast<float>(cosine * std::sin(rightAscension));
    }
  }
}

}  // namespace parboil::tpacf
