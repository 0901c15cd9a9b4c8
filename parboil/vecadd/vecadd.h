// SPDX-License-Identifier: Apache-2.0
//
// Vector addition, the synthetic benchmark of Figure 11: the CPU fills two vectors, the accelerator
// adds them, the CPU sums the result. Nearly all of it is data movement.
//
// vecadd-*.in   Seeds: what the CPU fills the vectors from
// vecadd-*.out  double: the sum of all elements, then kSamples floats c[i * stride]
#ifndef GMAC_PARBOIL_VECADD_VECADD_H_
#define GMAC_PARBOIL_VECADD_VECADD_H_

#include <cstddef>
#include <cstdint>

#include "parboil/benchmark.h"
#include "parboil/files.h"
#include "parboil/kernel.h"

namespace parboil::vecadd {

inline constexpr FileFormat kInput{"vecadd.in", 1};
inline constexpr FileFormat kOutput{"vecadd.out", 1};
inline constexpr unsigned kThreads = 256;
inline constexpr std::size_t kSamples = 1024;

// Elements of a vector; a multiple of kSamples. Large is one whole second of a PCIe link.
constexpr std::size_t elements(Size size) {
  return std::size_t{1} << (size == Size::kSmall ? 22 : size == Size::kMedium ? 26 : 30);
}

struct Seeds {
  std::uint32_t a, b;
};

// The CPU's part: element i of a vector, in [0, 1), cheap enough to be vectorised.
inline float element(std::uint32_t seed, std::uint32_t i) {
  std::uint32_t x = (i ^ seed) * 0x9e3779b1u;
  x ^= x >> 15;
  return static_cast<float>(static_cast<std::int32_t>(x >> 8)) * 0x1p-24f;
}
void fill(float* vector, std::size_t count, std::uint32_t seed);
double sum(const float* vector, std::size_t count);

// c[i] = a[i] + b[i] for i < count, one thread each.
const Kernel<const float*, const float*, float*, std::uint64_t>& addKernel();
void addBlock(const adsmThreadBlock_t* block, void** args);
const void* addSymbol();

void generate(const Context& context);
void runGmac(const Context& context);
void runExplicit(const Context& context);
Check check(const Context& context);

}  // namespace parboil::vecadd

#endif  // GMAC_PARBOIL_VECADD_VECADD_H_
