// SPDX-License-Identifier: Apache-2.0
#include "parboil/comparison.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

namespace parboil {

void Comparison::add(double got, double want) {
  const double error = std::fabs(got - want);
  const double allowed = absolute_ + relative_ * std::fabs(want);
  double ratio = 0;
  if (!(error <= allowed)) {
    ++failed_;
    ratio = std::isfinite(error) && allowed > 0 ? error / allowed
                                                : std::numeric_limits<double>::infinity();
  } else if (allowed > 0) {
    ratio = error / allowed;
  }
  if (ratio > worst_) {
    worst_ = ratio;
    worstIndex_ = count_;
    worstGot_ = got;
    worstWant_ = want;
  }
  ++count_;
}

Check Comparison::result() const {
  if (count_ == 0) return {false, "nothing to compare"};
  return {failed_ == 0, fmt::format("{} of {} values wrong; worst error {:.2g} of the {:g} + {:g} "
                                    "relative allowed: value {} is {:g}, "
                                    "reference {:g}",
                                    failed_, count_, worst_, absolute_, relative_, worstIndex_,
                                    worstGot_, worstWant_)};
}

}  // namespace parboil
