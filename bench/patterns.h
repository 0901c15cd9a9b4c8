// SPDX-License-Identifier: Apache-2.0
//
// Access patterns: what a program may do to its data between calls. Each is measured under every
// protocol and, on a GPU, with managed memory, round by round in turns.
#ifndef GMAC_BENCH_PATTERNS_H_
#define GMAC_BENCH_PATTERNS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gmac::bench {

struct Pattern {
  std::string name;
  // The measurement "pattern" takes it.
  nlohmann::json parameters;
};

// All of them. A launch of the host accelerator takes a hundred times as long as one of a GPU: what
// launches often does it less often there.
std::vector<Pattern> patterns(bool cuda);

}  // namespace gmac::bench

#endif  // GMAC_BENCH_PATTERNS_H_
