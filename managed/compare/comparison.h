// SPDX-License-Identifier: Apache-2.0
//
// Runs programs in both ways, in turn, and holds their results against each other.
#ifndef GMAC_MANAGED_COMPARE_COMPARISON_H_
#define GMAC_MANAGED_COMPARE_COMPARISON_H_

#include <string>
#include <vector>

#include "managed/compare/options.h"

namespace managed::compare {

// All runs of one program in one way. A plain value.
struct Measured {
  std::vector<double> seconds;  // of the runs that succeeded
  std::string checksum;         // of the result
  std::string note;             // the program's own
  std::string problem;          // why a run failed; empty: none did

  double median() const;  // 0 without a run
};

// One line of the table. A plain value.
struct Row {
  std::string program;
  std::string runtime;
  std::string accelerator;
  std::string protocol;
  Measured managed;
  Measured gmac;
  bool equal =
      false;  // every run of both ways gave the same bytes, and a reference found them right
};

struct Skipped {
  std::string program;
  std::string runtime;
  std::string reason;
};

struct Comparison {
  std::vector<Row> rows;
  std::vector<Skipped> skipped;

  bool allEqual() const;
};

// Runs everything, with progress on standard error. Throws std::runtime_error when nothing can be
// run, e.g. because no file can be written.
Comparison compareAll(const Options& options);

}  // namespace managed::compare

#endif  // GMAC_MANAGED_COMPARE_COMPARISON_H_
