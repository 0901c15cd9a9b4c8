// SPDX-License-Identifier: Apache-2.0
#include "datatypes/ways.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include "bench/median.h"

namespace datatypes {
namespace {

using Clock = std::chrono::steady_clock;

double microsecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// One turn of a way: microseconds of one run.
double turn(const Way& way, int runs) {
  if (way.between) {
    double sum = 0;
    for (int i = 0; i < runs; ++i) {
      way.between();
      const auto start = Clock::now();
      way.run();
      sum += microsecondsSince(start);
    }
    return sum / runs;
  }
  const auto start = Clock::now();
  for (int i = 0; i < runs; ++i) way.run();
  return microsecondsSince(start) / runs;
}

// How often a way is run in one turn: long enough to be timed well, short enough that most turns
// lie between two interruptions.
int runsInATurn(const Way& way) {
  constexpr double kTurnMicroseconds = 200;
  constexpr double kMostRuns = 32;
  (void)turn(way, 1);
  const double once = turn(way, 1);
  return static_cast<int>(std::clamp(std::ceil(kTurnMicroseconds / once), 1.0, kMostRuns));
}

}  // namespace

Times::Times(const std::vector<Way>& ways, std::size_t rounds) {
  std::vector<int> runs;
  for (const Way& way : ways) runs.push_back(runsInATurn(way));
  std::vector<std::size_t> order(ways.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(1);
  for (std::size_t round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      rounds_[ways[i].name].push_back(turn(ways[i], runs[i]));
    }
  }
  for (const auto& [name, values] : rounds_) medians_[name] = gmac::bench::median(values);
}

std::optional<double> Times::ratio(const std::string& way, const std::string& to) const {
  if (!has(way) || !has(to)) return std::nullopt;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < rounds_.at(way).size(); ++i) {
    ratios.push_back(rounds_.at(way)[i] / rounds_.at(to)[i]);
  }
  return gmac::bench::median(std::move(ratios));
}

std::optional<double> Times::over(const std::string& way, const std::string& base) const {
  if (!has(way) || !has(base)) return std::nullopt;
  std::vector<double> differences;
  for (std::size_t i = 0; i < rounds_.at(way).size(); ++i) {
    differences.push_back(rounds_.at(way)[i] - rounds_.at(base)[i]);
  }
  return gmac::bench::median(std::move(differences));
}

std::string Times::quickest(const std::vector<std::string>& ways) const {
  std::string best;
  for (const std::string& way : ways) {
    if (has(way) && (best.empty() || microseconds(way) < microseconds(best))) best = way;
  }
  return best;
}

}  // namespace datatypes
