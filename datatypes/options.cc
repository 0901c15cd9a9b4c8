// SPDX-License-Identifier: Apache-2.0
#include "datatypes/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

namespace datatypes {
namespace {

constexpr int kUsageStatus = 2;

std::vector<const Group*> findAll(const std::vector<std::string>& names) {
  std::vector<const Group*> found;
  std::vector<std::string> allowed;
  for (const Group& group : groups()) {
    if (names.empty()) found.push_back(&group);
    allowed.push_back(group.name);
  }
  for (const std::string& name : names) {
    const auto group = std::find_if(groups().begin(), groups().end(),
                                    [&](const Group& one) { return one.name == name; });
    if (group == groups().end()) {
      throw UsageError(
          fmt::format("there is nothing named '{}'; there are: {}", name, fmt::join(allowed, ", ")),
          kUsageStatus);
    }
    if (std::find(found.begin(), found.end(), &*group) == found.end()) found.push_back(&*group);
  }
  return found;
}

}  // namespace

Options parseOptions(const std::vector<std::string>& arguments) {
  Options options;
  std::vector<std::string> names;
  std::string plots;
  std::string json;
  CLI::App app(
      "What packing datatypes costs, beside kernels written by hand and CUDA's own copies, in one "
      "run, with all outputs compared; and the figures of the papers on datatypes in GPU memory. "
      "Without a GPU, small sizes on the host accelerator.",
      "datatypes");
  app.add_option("--only", names, "lines of the table and figures to measure; all when not given")
      ->type_name("NAME");
  app.add_option("--plots", plots, "folder for the figures' data, gnuplot's scripts and SVG files")
      ->type_name("DIR");
  app.add_option("--json", json, "file for everything that was measured")->type_name("FILE");
  app.add_option("--repeat", options.rounds, "rounds; each figure is the median of theirs")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}))
      ->capture_default_str();
  app.add_flag("--gate", options.gate, "exit status 1 when a target that was measured is missed");
  app.add_flag("--list", options.list, "the names that --only takes, and nothing else");
  const std::map<std::string, Place> places = {{"device", Place::kDevice},
                                               {"pinned", Place::kPinned}};
  app.add_option("--first-pack", options.firstPack,
                 "the microseconds of this process's first pack of short rows into device or "
                 "pinned memory and of later ones, and nothing else: first-use starts it")
      ->transform(CLI::CheckedTransformer(places))
      ->type_name("PLACE");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    throw UsageError(app.help(), 0);
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; datatypes --help lists the arguments",
                     kUsageStatus);
  }
  options.groups = findAll(names);
  options.plots = plots;
  options.json = json;
  return options;
}

}  // namespace datatypes
