// SPDX-License-Identifier: Apache-2.0
//
// Ways to do one thing, checked and then timed in turns.
#ifndef GMAC_DATATYPES_WAYS_H_
#define GMAC_DATATYPES_WAYS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace datatypes {

struct Way {
  std::string name;
  std::function<void()> run;  // from the start to the end, waiting included
  // Between two timed runs, without being timed itself.
  std::function<void()> between;
};

// Medians of one run of each way, and of the rounds' own ratios and differences. A value.
class Times {
 public:
  // `rounds` rounds of all ways in turns, after one of each to warm up; in another order each
  // round, so that no way always comes after the same one and finds what that leaves in caches.
  // Short ways are run several times in one turn.
  Times(const std::vector<Way>& ways, std::size_t rounds);

  bool has(const std::string& way) const { return medians_.count(way) > 0; }
  double microseconds(const std::string& way) const { return medians_.at(way); }
  // Of two ways; nothing where one was not measured.
  std::optional<double> ratio(const std::string& way, const std::string& to) const;
  std::optional<double> over(const std::string& way, const std::string& base) const;
  // The quickest of the ways that were measured.
  std::string quickest(const std::vector<std::string>& ways) const;
  const std::map<std::string, double>& all() const& { return medians_; }
  std::map<std::string, double> all() && { return std::move(medians_); }

 private:
  std::map<std::string, std::vector<double>> rounds_;  // microseconds
  std::map<std::string, double> medians_;
};

}  // namespace datatypes

#endif  // GMAC_DATATYPES_WAYS_H_
