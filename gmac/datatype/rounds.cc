// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/rounds.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace gmac::datatype {

Result<RoundTimes> timeRounds(int rounds, const std::function<Status()>& round) {
  std::vector<double> times(static_cast<std::size_t>(rounds));
  for (double& time : times) {
    const auto begin = std::chrono::steady_clock::now();
    GMAC_TRY(round());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    time = took.count();
  }
  std::sort(times.begin(), times.end());
  return RoundTimes{times.front(), times[times.size() / 2]};
}

}  // namespace gmac::datatype
