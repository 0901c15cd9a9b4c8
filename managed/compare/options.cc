// SPDX-License-Identifier: Apache-2.0
#include "managed/compare/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "gmac/session/config.h"

namespace managed::compare {
namespace {

namespace fs = std::filesystem;

// Those that memory which is consistent at calls can serve.
const std::vector<std::string> kPrograms = {
    "graph_traversal", "jacobi",          "kmeans",           "image_filter",   "sparse_updates",
    "two_streams",     "prefetch_advise", "allocation_churn", "small_training", "small_reads",
    "short_records",   "devices_in_turn", "devices_at_once",  "devices_jacobi", "devices_links",
    "devices_random",  "devices_pool",    "devices_phases",   "working_set",    "filled_ahead",
    "disjoint_arrays", "phase_change",    "event_counters",   "small_objects",  "own_streams"};
// Asked for by name only: these show what is told to programs that cannot be served.
const std::vector<std::string> kOtherPrograms = {"managed_variable", "ping_pong"};
const std::vector<std::string> kRuntimes = {"static", "shared"};
const std::vector<std::string> kSizes = {"small", "medium", "large"};

CLI::Validator allowedBy(const std::string& variable) {
  return CLI::Validator(
      [variable](std::string& word) {
        return gmac::isAllowedValue(variable, word)
                   ? std::string()
                   : fmt::format("{} is not allowed; allowed: {}", word,
                                 gmac::allowedValues(variable));
      },
      "WORD");
}

}  // namespace

Options parseOptions(int argc, char** argv) {
  Options options;
  options.size = "medium";
  options.repeats = 3;
  options.timeoutSeconds = 120;
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  options.programFolder = here.parent_path();
  options.gmacCommand = here.parent_path().parent_path() / "tools" / "gmac" / "gmac";

  std::vector<std::string> every = kPrograms;
  every.insert(every.end(), kOtherPrograms.begin(), kOtherPrograms.end());

  CLI::App app(
      "Runs managed-memory programs as they are and under `gmac run --managed`, holds their "
      "results "
      "against each other, and prints the times side by side. Exit status 1 when results differ or "
      "a run fails.",
      "compare");
  app.add_option("--size", options.size, "of the programs' data; default: medium")
      ->check(CLI::IsMember(kSizes));
  app.add_option("--repeats", options.repeats, "of every run; the medians are printed; default: 3")
      ->check(CLI::Range(1U, 1000U));
  app.add_option("--accel", options.accelerators, "default: cuda")->check(allowedBy("GMAC_ACCEL"));
  app.add_option("--protocol", options.protocols, "default: rolling")
      ->check(allowedBy("GMAC_PROTOCOL"));
  app.add_option("--program", options.programs, "default: all that can be served")
      ->check(CLI::IsMember(every));
  app.add_option("--runtime", options.runtimes, "how CUDA's runtime is linked; default: both")
      ->check(CLI::IsMember(kRuntimes));
  app.add_option("--timeout", options.timeoutSeconds, "seconds for one run; default: 120")
      ->check(CLI::Range(1U, 86400U));
  app.add_option("--json", options.jsonPath, "writes everything measured to this file too");
  app.add_option("--programs-in", options.programFolder, "default: where this command lies");
  app.add_option("--gmac", options.gmacCommand, "the command; default: the one built with this");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {
    throw UsageError(0, app.help());
  } catch (const CLI::ParseError& error) {
    throw UsageError(2, fmt::format("compare: {}\n{}", error.what(), app.help()));
  }
  if (options.accelerators.empty()) options.accelerators = {"cuda"};
  if (options.protocols.empty()) options.protocols = {"rolling"};
  if (options.programs.empty()) options.programs = kPrograms;
  if (options.runtimes.empty()) options.runtimes = kRuntimes;
  return options;
}

}  // namespace managed::compare
