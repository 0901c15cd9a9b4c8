// SPDX-License-Identifier: Apache-2.0
//
// The layouts that are measured, each with its hand-written kernel.
#ifndef GMAC_BENCH_PACK_KERNELS_CASES_H_
#define GMAC_BENCH_PACK_KERNELS_CASES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gmac/datatype/layout/layout.h"

struct CUstream_st;

namespace packbench {

// A strided copy that the copy engine can do.
struct Copy2d {
  std::size_t width = 0;  // bytes; 0: there is none
  std::size_t pitch = 0;
  std::size_t rows = 0;
};

struct Case {
  std::string name;
  gmac::datatype::Layout layout;
  // Packs on the stream: source, target, device table of the piece offsets (in words) or NULL.
  using Hand = std::function<void(const void*, void*, const void*, CUstream_st*)>;
  std::vector<Hand> hands;
  Copy2d copy2d;
  std::vector<std::uint32_t> handTable;
};

// The cases whose name contains `filter`.
std::vector<Case> makeCases(const std::string& filter);

}  // namespace packbench

#endif  // GMAC_BENCH_PACK_KERNELS_CASES_H_
