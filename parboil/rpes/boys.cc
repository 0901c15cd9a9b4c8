// SPDX-License-Identifier: Apache-2.0
#include "parboil/rpes/boys.h"

#include <cmath>
#include <numbers>

namespace parboil::rpes {

void boys(double t, int last, double* values) {
  const double decay = std::exp(-t);
  if (t > 60) {
    // The integral to infinity; what is beyond 1 is below exp(-60).
    values[0] = std::sqrt(std::numbers::pi / t) / 2;
    for (int m = 0; m < last; ++m) values[m + 1] = ((2 * m + 1) * values[m] - decay) / (2 * t);
    return;
  }
  // A series of positive terms for the last, then the recurrence downwards, which is stable.
  double term = 1.0 / (2 * last + 1);
  double sum = term;
  for (int i = 1; term > sum * 1e-17; ++i) {
    term *= 2 * t / (2 * last + 2 * i + 1);
    sum += term;
  }
  values[last] = decay * sum;
  for (int m = last; m > 0; --m) values[m - 1] = (2 * t * values[m] + decay) / (2 * m - 1);
}

}  // namespace parboil::rpes
