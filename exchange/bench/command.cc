// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace gmac::exchange::bench {
namespace {

constexpr int kUsage = 2;

}  // namespace

bool Options::wants(const std::string& group) const {
  return groups.empty() || std::find(groups.begin(), groups.end(), group) != groups.end();
}

std::optional<int> parse(const Command& command, int argc, char** argv, int rank,
                         Options& options) {
  CLI::App app(command.text, command.name);
  std::string json;
  std::string plots;
  bool list = false;
  std::vector<std::string> known = command.groups;
  known.insert(known.end(), command.others.begin(), command.others.end());
  app.add_option("--only", options.groups, "groups of messages; all when not given")
      ->type_name("GROUP")
      ->check(CLI::IsMember(known));
  if (command.takesEdge) {
    app.add_option("--edge", options.edge, "cells along an edge of the cube")
        ->check(CLI::Range(std::int64_t{4}, std::int64_t{1024}))
        ->capture_default_str();
  }
  app.add_option("--repeat", options.rounds, "rounds; each figure is the median of theirs")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}))
      ->capture_default_str();
  app.add_option("--json", json, "file that everything that was measured is added to")
      ->type_name("FILE");
  app.add_option("--plots", plots, "folder for the figures' data, gnuplot's scripts and SVG files")
      ->type_name("DIR");
  app.add_flag("--gate", options.gate, "exit status 1 when a target is missed");
  app.add_flag("--list", list, "the groups, and nothing else");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (rank == 0) fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    if (rank == 0) {
      fmt::print(stderr, "{}: {}; --help lists the arguments\n", command.name, error.what());
    }
    return kUsage;
  }
  options.json = json;
  options.plots = plots;
  if (list) {
    if (rank == 0) fmt::print("{}\n", fmt::join(known, "\n"));
    return 0;
  }
  return std::nullopt;
}

void addRun(const nlohmann::ordered_json& run, const std::filesystem::path& path) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  if (std::ifstream before(path); before) {
    runs = nlohmann::ordered_json::parse(before, nullptr, false);
    if (!runs.is_array()) {
      throw std::runtime_error(fmt::format("{} holds something else already", path.string()));
    }
  }
  runs.push_back(run);
  std::ofstream file(path);
  file << runs.dump(2) << '\n';
  if (!file.flush()) {
    throw std::runtime_error(fmt::format("cannot write {}", path.string()));
  }
}

}  // namespace gmac::exchange::bench
