// SPDX-License-Identifier: Apache-2.0
//
// Holds a result against its reference.
#ifndef GMAC_PARBOIL_COMPARISON_H_
#define GMAC_PARBOIL_COMPARISON_H_

#include <cstddef>

#include "parboil/benchmark.h"

namespace parboil {

// Collects the worst error over all values of a result. A value passes when |got - want| <=
// absolute + relative * |want|; NaN never passes. Not thread-safe.
class Comparison {
 public:
  Comparison(double absolute, double relative) : absolute_(absolute), relative_(relative) {}

  void add(double got, double want);
  // Fails when nothing was compared.
  Check result() const;

 private:
  double absolute_;
  double relative_;
  std::size_t count_ = 0;
  std::size_t failed_ = 0;
  double worst_ = -1;  // error / allowed
  std::size_t worstIndex_ = 0;
  double worstGot_ = 0;
  double worstWant_ = 0;
};

}  // namespace parboil

#endif  // GMAC_PARBOIL_COMPARISON_H_
