// SPDX-License-Identifier: Apache-2.0
#include "parboil/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

namespace parboil {
namespace {

constexpr int kUsageStatus = 2;
const std::vector<std::string> kAccelerators = {"cuda", "cudart", "host"};
const std::vector<std::string> kProtocols = {"rolling", "lazy", "batch"};
const std::vector<std::string> kSizes = {"small", "medium", "large"};

// Returns `value` if it is one of `allowed`.
const std::string& requireOneOf(const char* what, const std::string& value,
                                const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return value;
  throw UsageError(
      fmt::format("there is no {} '{}'; there are: {}", what, value, fmt::join(allowed, ", ")),
      kUsageStatus);
}

std::filesystem::path defaultDir() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::filesystem::path(cache) / "gmac" / "parboil";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0')
    return std::filesystem::path(home) / ".cache" / "gmac" / "parboil";
  return std::filesystem::temp_directory_path() / "gmac-parboil";
}

std::vector<const Benchmark*> findAll(const std::vector<std::string>& names) {
  const auto all = benchmarks();
  if (names.empty()) return {all.begin(), all.end()};
  std::vector<std::string> allowed;
  for (const Benchmark* benchmark : all) allowed.emplace_back(benchmark->name);
  std::vector<const Benchmark*> found;
  for (const std::string& name : names) {
    const Benchmark* benchmark = findBenchmark(requireOneOf("benchmark", name, allowed));
    if (std::find(found.begin(), found.end(), benchmark) == found.end()) found.push_back(benchmark);
  }
  return found;
}

}  // namespace

Size parseSize(const std::string& name) {
  const auto at = std::find(kSizes.begin(), kSizes.end(), requireOneOf("size", name, kSizes));
  return static_cast<Size>(at - kSizes.begin());
}

Options parseOptions(const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  std::string accelerator;
  std::string protocol = "rolling";
  std::string size = "small";
  std::string json;
  std::string dir = defaultDir().string();
  Options options;

  CLI::App app(
      "Runs the Parboil benchmarks, the 3D stencil and the vector addition on gmac and checks what "
      "they compute.",
      "parboil");
  std::vector<std::string> help;
  for (const Benchmark* benchmark : benchmarks()) {
    help.push_back(fmt::format("{} ({})", benchmark->name, benchmark->title));
  }
  app.add_option(
      "NAME", names,
      fmt::format("benchmarks to run, of {}; all when none is given", fmt::join(help, ", ")));
  app.add_option(
      "--accel", accelerator,
      fmt::format("accelerator: {}; found when not given", fmt::join(kAccelerators, ", ")));
  app.add_option("--protocol", protocol,
                 fmt::format("coherence protocol: {}, or all", fmt::join(kProtocols, ", ")))
      ->capture_default_str();
  app.add_option("--size", size, fmt::format("problem size: {}", fmt::join(kSizes, ", ")))
      ->capture_default_str();
  app.add_option("--repeat", options.repeat, "runs of each; the table shows the one of median time")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  app.add_option("--json", json, "file for all runs as JSON");
  app.add_option("--dir", dir, "folder for inputs, outputs and references")->capture_default_str();
  app.add_flag("--explicit", options.explicitCopies,
               "also run the CUDA programs with explicit copies");

  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    throw UsageError(app.help(), 0);
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; parboil --help lists the arguments",
                     kUsageStatus);
  }

  options.benchmarks = findAll(names);
  if (app.count("--accel") > 0)
    options.accelerator = requireOneOf("accelerator", accelerator, kAccelerators);
  std::vector<std::string> protocols = kProtocols;
  protocols.emplace_back("all");
  if (requireOneOf("protocol", protocol, protocols) == "all") {
    options.protocols = kProtocols;
  } else {
    options.protocols = {protocol};
  }
  options.size = parseSize(size);
  options.json = json;
  options.dir = std::filesystem::absolute(dir);
  if (options.explicitCopies && options.benchmarks.front()->runExplicit == nullptr) {
    throw UsageError(
        "--explicit: this build has no CUDA toolkit, and so no programs with explicit copies",
        kUsageStatus);
  }
  return options;
}

}  // namespace parboil
