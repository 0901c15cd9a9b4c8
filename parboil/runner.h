// SPDX-License-Identifier: Apache-2.0
//
// Runs benchmarks, each run in a process of its own with a fresh runtime, and reports.
#ifndef GMAC_PARBOIL_RUNNER_H_
#define GMAC_PARBOIL_RUNNER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "parboil/options.h"

namespace parboil {

// The runtime's counts of a run, from the file that GMAC_STATS names.
struct Traffic {
  std::uint64_t bytesToAccelerator = 0;
  std::uint64_t bytesToHost = 0;
  std::uint64_t readFaults = 0;
  std::uint64_t writeFaults = 0;
  std::uint64_t evictions = 0;
};

// One run. A plain value.
struct Run {
  std::string benchmark;
  std::string
      accelerator;       // as the runtime named it; "explicit" for a program with explicit copies
  std::string protocol;  // "none" for a program with explicit copies
  Size size = Size::kSmall;
  std::optional<double> seconds;   // nothing when the run failed
  std::optional<Traffic> traffic;  // nothing when the run failed, and with explicit copies
  bool checked = false;            // the output was held against the reference and is right
  std::string error;               // why not: one line
};

// Runs everything, with progress on stderr. A run that fails is in the result with its error.
// Throws Failure when nothing can be run, e.g. because the folder cannot be written.
std::vector<Run> runAll(const Options& options);

// The child's side of a run: see kRunCommand in runner.cc. Returns the exit status.
bool isRunCommand(const std::vector<std::string>& arguments);
int runCommand(const std::vector<std::string>& arguments);

// {"runs": [...]}, one entry for each run.
nlohmann::ordered_json toJson(const std::vector<Run>& runs);

// One line for each benchmark, accelerator and protocol, that of the run of median time; then a
// line for each failure.
std::string toTable(const std::vector<Run>& runs);

// Parses a file of the runtime's statistics; Failure when it is missing or lacks a value.
Traffic readTraffic(const nlohmann::json& statistics);

}  // namespace parboil

#endif  // GMAC_PARBOIL_RUNNER_H_
