// SPDX-License-Identifier: Apache-2.0
//
// Alternatives measured in turns, so that what disturbs the machine disturbs all of them.
#ifndef GMAC_BENCH_INTERLEAVED_H_
#define GMAC_BENCH_INTERLEAVED_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "bench/median.h"

namespace gmac::bench {

// Calls `turn(i)`, which measures alternative i in seconds (or another unit, that of what is asked
// for), in turns; one turn of each first to warm up. Who begins changes with the round, so that
// what one leaves for the next to wait for is not always the same one's. Rounds are short, so that
// most of them are whole between two interruptions, and medians are theirs.
class Interleaved {
 public:
  template <typename Turn>
  Interleaved(std::size_t alternatives, std::size_t rounds, const Turn& turn)
      : seconds_(alternatives) {
    for (std::size_t round = 0; round <= rounds; ++round) {
      for (std::size_t next = 0; next < alternatives; ++next) {
        const std::size_t i = (next + round) % alternatives;
        const double one = turn(i);
        if (round > 0) {
          seconds_[i].push_back(one);
        }
      }
    }
  }
  double seconds(std::size_t i) const { return median(seconds_[i]); }
  std::size_t alternatives() const { return seconds_.size(); }
  // The median of the rounds' own differences, for the same reason as the ratios below.
  double over(std::size_t i, std::size_t base) const {
    std::vector<double> differences;
    for (std::size_t round = 0; round < seconds_[i].size(); ++round) {
      differences.push_back(seconds_[i][round] - seconds_[base][round]);
    }
    return median(std::move(differences));
  }
  // The median of the rounds' own ratios: a machine that slows down for a while slows both.
  double ratio(std::size_t i, std::size_t to) const {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < seconds_[i].size(); ++round) {
      ratios.push_back(seconds_[i][round] / seconds_[to][round]);
    }
    return median(std::move(ratios));
  }

 private:
  std::vector<std::vector<double>> seconds_;
};

// The same alternatives in several sets of turns, each set in processes of its own. What a machine
// that others use as well does to a process may last for all of its turns, or change for seconds,
// and only ever adds to its time. So of each alternative the set counts in which it took least.
class LeastOfSets {
 public:
  void add(const Interleaved& set) {
    least_.resize(set.alternatives(), std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < least_.size(); ++i) {
      least_[i] = std::min(least_[i], set.seconds(i));
    }
    ++sets_;
  }
  std::size_t sets() const { return sets_; }
  double seconds(std::size_t i) const { return least_[i]; }
  double ratio(std::size_t i, std::size_t to) const { return least_[i] / least_[to]; }

 private:
  std::vector<double> least_;
  std::size_t sets_ = 0;
};

}  // namespace gmac::bench

#endif  // GMAC_BENCH_INTERLEAVED_H_
