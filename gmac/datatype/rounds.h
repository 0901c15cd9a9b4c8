// SPDX-License-Identifier: Apache-2.0
//
// How long work takes that is done several times.
#ifndef GMAC_DATATYPE_ROUNDS_H_
#define GMAC_DATATYPE_ROUNDS_H_

#include <functional>

#include "gmac/base/status.h"

namespace gmac::datatype {

// Microseconds of one round.
struct RoundTimes {
  double least = 0;
  double median = 0;  // of an even number: the longer one in the middle
};

// Calls `round` so many times (1 or more); each call does the work once, and returns when it is
// over. The first round that fails is the last, and its error the answer.
Result<RoundTimes> timeRounds(int rounds, const std::function<Status()>& round);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ROUNDS_H_
