// SPDX-License-Identifier: Apache-2.0
//
// The micro-benchmarks: loops under Google Benchmark, then the table of what the project promises
// about its cost.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/targets.h"

namespace {

using gmac::bench::json;

constexpr int kUsageStatus = 2;
constexpr const char* kBaselinePath = "bench/baseline.json";

struct Options {
  bool gate = false;
  bool tableOnly = false;
  bool sweep = false;
  std::string only;
  std::string jsonPath;
  std::string baselinePath;
  std::string measurement;
  std::string parameters = "{}";
  std::string parent;
};

// Runs the program with the loops, which lies beside this one, and returns its exit status. Google
// Benchmark is a shared library that not every machine has: without that program the table is all
// there is.
int runLoops(const std::vector<std::string>& arguments) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "loops";
  if (!std::filesystem::exists(program)) {
    std::fprintf(stderr, "no program `loops` beside this one: the table alone\n");
    return 0;
  }
  // The loops are of faults alone: nothing is evicted. What the caller has set stays.
  setenv("GMAC_BLOCK_SIZE", "65536", 0);
  setenv("GMAC_ROLLING_SIZE", "1073741824", 0);
  std::vector<std::string> strings = {program.string()};
  strings.insert(strings.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& string : strings) {
    pointers.push_back(string.data());
  }
  pointers.push_back(nullptr);
  pid_t child = -1;
  if (const int error =
          posix_spawn(&child, program.c_str(), nullptr, nullptr, pointers.data(), environ);
      error != 0) {
    throw std::runtime_error(program.string() + ": " + std::strerror(error));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

json readBaseline(const Options& options) {
  std::ifstream file(options.baselinePath.empty() ? kBaselinePath : options.baselinePath.c_str());
  if (!file) {
    if (!options.baselinePath.empty()) {
      throw std::runtime_error("cannot read " + options.baselinePath);
    }
    std::fprintf(stderr, "no %s here: compared with the targets alone\n", kBaselinePath);
    return json::object();
  }
  return json::parse(file);
}

int run(const Options& options) {
  if (!options.measurement.empty()) {
    std::cout << gmac::bench::measureHere(options.measurement, json::parse(options.parameters))
              << std::endl;
    return 0;
  }
  if (options.sweep) {
    std::cout << gmac::bench::sweep();
    return 0;
  }
  const json baseline = options.gate ? readBaseline(options) : json::object();
  std::vector<std::string> skipped;
  const auto rows = gmac::bench::measureRows(options.only, skipped);
  if (const std::string why = gmac::bench::whyNoRows(options.only, rows, skipped); !why.empty()) {
    std::fprintf(stderr, "bench: %s\n", why.c_str());
    return kUsageStatus;
  }
  std::cout << gmac::bench::table(rows, skipped) << std::flush;
  if (!options.jsonPath.empty()) {
    std::ofstream file(options.jsonPath);
    file << gmac::bench::rowsJson(rows, skipped).dump(2) << '\n';
    if (!file.flush()) {
      throw std::runtime_error("cannot write " + options.jsonPath);
    }
  }
  if (!options.gate) {
    return 0;
  }
  const auto misses = gmac::bench::misses(rows, baseline);
  for (const std::string& sentence : misses) {
    std::fprintf(stderr, "missed: %s\n", sentence.c_str());
  }
  return misses.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "What the runtime costs. Without options: loops under Google Benchmark, then a table of "
      "figures measured "
      "side by side, with their targets. Options of Google Benchmark (--benchmark_...) are handed "
      "on.");
  app.allow_extras();
  app.add_flag("--table", options.tableOnly, "the table alone");
  app.add_flag("--gate", options.gate,
               "the table alone; exit status 1 when a target is missed or a figure is worse than "
               "the baseline allows");
  const CLI::Validator isGiven(
      [](const std::string& value) { return value.empty() ? "it is empty" : std::string(); }, "");
  app.add_option("--baseline", options.baselinePath, std::string("default: ") + kBaselinePath)
      ->check(isGiven);
  app.add_option("--only", options.only, "the rows whose name contains this")->check(isGiven);
  app.add_option("--json", options.jsonPath, "writes the rows to this file too")->check(isGiven);
  app.add_flag("--sweep", options.sweep, "the vector addition under several block sizes instead");
  // How the program runs one measurement in a process of its own.
  app.add_option("--measure", options.measurement)->group("");
  const CLI::Option* const parameters = app.add_option("parameters", options.parameters)->group("");
  app.add_option("--parent", options.parent)->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (*parameters && options.measurement.empty()) {
      std::fprintf(stderr, "bench: what is '%s'? See --help\n", options.parameters.c_str());
      return kUsageStatus;
    }
    const bool loops = !options.tableOnly && !options.gate && !options.sweep &&
                       options.measurement.empty() && options.only.empty();
    if (loops) {
      if (const int status = runLoops(app.remaining()); status != 0) {
        return status;
      }
    } else if (!app.remaining().empty()) {
      std::fprintf(stderr, "bench: what is %s? See --help\n", app.remaining().front().c_str());
      return kUsageStatus;
    }
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench: %s\n", error.what());
    return 1;
  }
}
