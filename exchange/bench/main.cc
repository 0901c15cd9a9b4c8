// SPDX-License-Identifier: Apache-2.0
//
// What one message between two processes of a host costs, by exchange/ and by the MPI that started
// them, in one run.
//   mpirun -n 2 transfers_MPI [--only GROUP...] [--repeat N] [--json FILE] [--plots DIR] [--gate]
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/turns.h"
#include "datatypes/plots.h"
#include "exchange/bench/pair.h"
#include "exchange/bench/workloads.h"

namespace gmac::exchange::bench {
namespace {

constexpr int kUsage = 2;

struct Options {
  std::vector<std::string> groups;
  std::size_t rounds = 15;
  std::filesystem::path json;
  std::filesystem::path plots;
  bool gate = false;
  bool list = false;
};

struct Row {
  const Workload* workload = nullptr;
  std::map<std::string, double> us;
  double toMpi = 0;     // the time of the chosen way, over MPI's
  double toByHand = 0;  // and over that of packing by hand
  std::string path;     // of the chosen way
  bool right = true;    // all bytes arrived, by every way
  bool met() const { return workload->most == 0 || toMpi <= workload->most; }
};

// The way's number in kWays.
std::size_t numberOf(Way way) {
  return static_cast<std::size_t>(std::find(kWays.begin(), kWays.end(), way) - kWays.begin());
}

Row measure(Pair& pair, const Workload& workload, std::size_t rounds) {
  Row row;
  row.workload = &workload;
  pair.use(workload);
  for (const Way way : kWays) {
    row.right = pair.inBoth(pair.arrives(way)) && row.right;
  }
  const gmac::bench::Turns turns(kWays.size(), rounds,
                                 [&](std::size_t i) { return pair.seconds(kWays[i]); });
  for (const Way way : kWays) {
    row.us[wayName(way)] = turns.seconds(numberOf(way)) * 1e6;
  }
  row.toMpi = turns.ratio(numberOf(Way::kChosen), numberOf(Way::kMpi));
  row.toByHand = turns.ratio(numberOf(Way::kChosen), numberOf(Way::kByHand));
  row.path = pathName(*pair.path(Way::kChosen));
  return row;
}

void printHead() {
  fmt::print("{:<32} {:>10}", "message", "bytes");
  for (const Way way : kWays) fmt::print(" {:>9}", wayName(way));
  fmt::print("  {:>6} {:>7}  {}\n", "/ MPI", "/ hand", "path");
}

void print(const Row& row) {
  fmt::print("{:<32} {:>10}", row.workload->name, sizeText(row.workload->from.bytes()));
  for (const Way way : kWays) fmt::print(" {:>9.1f}", row.us.at(wayName(way)));
  fmt::print("  {:>6.2f} {:>7.2f}  {}", row.toMpi, row.toByHand, row.path);
  if (row.workload->most != 0) {
    fmt::print("  <= {:g} {}", row.workload->most, row.met() ? "met" : "MISSED");
  }
  fmt::print("{}\n", row.right ? "" : "  WRONG BYTES");
  std::fflush(stdout);
}

// Adds this run to the runs that the file holds, if it is there. Throws std::runtime_error.
void add(const nlohmann::ordered_json& run, const std::filesystem::path& path) {
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

nlohmann::ordered_json toJson(const std::string& mpi, const std::vector<Row>& rows) {
  nlohmann::ordered_json all = {{"mpi", mpi}, {"rows", nlohmann::ordered_json::array()}};
  for (const Row& row : rows) {
    nlohmann::ordered_json one = {{"group", row.workload->group},
                                  {"message", row.workload->name},
                                  {"bytes", row.workload->from.bytes()},
                                  {"us", row.us},
                                  {"chosenOverMpi", row.toMpi},
                                  {"chosenOverByHand", row.toByHand},
                                  {"chosen", row.path},
                                  {"right", row.right}};
    if (row.workload->most != 0) one["atMost"] = row.workload->most;
    all["rows"].push_back(std::move(one));
  }
  return all;
}

// A figure for each group: microseconds over bytes, or over the size of a block.
std::vector<datatypes::Figure> figures(const std::string& mpi, const std::vector<Row>& rows) {
  std::vector<datatypes::Figure> all;
  for (const Row& row : rows) {
    const std::string& group = row.workload->group;
    if (group == "one-side") continue;  // two curves of three points: the table says it
    if (all.empty() || all.back().name != "transfers-" + group) {
      datatypes::Figure figure;
      figure.name = "transfers-" + group;
      datatypes::Panel panel;
      panel.name = mpi == "MPICH" ? "mpich" : "openmpi";
      panel.title = fmt::format("{}, one message between two processes, beside {}", group, mpi);
      panel.xLabel = group == "vector" ? "bytes of a block, 2 MiB in all" : "bytes";
      panel.yLabel = "us one way";
      panel.logX = panel.logY = true;
      for (const Way way : kWays) panel.series.emplace_back(wayName(way));
      figure.panels.push_back(std::move(panel));
      all.push_back(std::move(figure));
    }
    const auto x = static_cast<double>(group == "vector" ? row.workload->from.blockBytes()
                                                         : row.workload->from.bytes());
    for (const auto& [name, us] : row.us) all.back().panels.front().set(x, name, us);
  }
  return all;
}

std::string nameOfMpi() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return std::string(text, static_cast<std::size_t>(length)).find("Open MPI") != std::string::npos
             ? "Open MPI"
             : "MPICH";
}

// Exit status for a wrong command line; nothing: it is right.
std::optional<int> parse(int argc, char** argv, int rank, Options& options) {
  CLI::App app(
      "What one message between two processes of a host costs, by each path of the exchange, by "
      "MPI and by MPI after packing by hand, in one run, with all bytes compared.",
      "transfers");
  std::string json;
  std::string plots;
  app.add_option("--only", options.groups, "groups of messages; all when not given")
      ->type_name("GROUP")
      ->check(CLI::IsMember(groupNames()));
  app.add_option("--repeat", options.rounds, "rounds; each figure is the median of theirs")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}))
      ->capture_default_str();
  app.add_option("--json", json, "file that everything that was measured is added to")
      ->type_name("FILE");
  app.add_option("--plots", plots, "folder for the figures' data, gnuplot's scripts and SVG files")
      ->type_name("DIR");
  app.add_flag("--gate", options.gate, "exit status 1 when a target is missed");
  app.add_flag("--list", options.list, "the groups, and nothing else");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (rank == 0) fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    if (rank == 0) {
      fmt::print(stderr, "transfers: {}; --help lists the arguments\n", error.what());
    }
    return kUsage;
  }
  options.json = json;
  options.plots = plots;
  return std::nullopt;
}

int run(const Options& options, Pair& pair) {
  const std::string mpi = nameOfMpi();
  const std::vector<Workload> all = workloads();
  std::vector<Row> rows;
  if (pair.rank() == 0) {
    fmt::print("Microseconds one way, medians of {} rounds; {}\n", options.rounds, mpi);
    printHead();
  }
  for (const Workload& workload : all) {
    if (!options.groups.empty() && std::find(options.groups.begin(), options.groups.end(),
                                             workload.group) == options.groups.end()) {
      continue;
    }
    rows.push_back(measure(pair, workload, options.rounds));
    if (pair.rank() == 0) print(rows.back());
  }
  if (pair.rank() == 0 && !options.json.empty()) {
    add(toJson(mpi, rows), options.json);
  }
  if (pair.rank() == 0 && !options.plots.empty()) {
    fmt::print("{}\n", datatypes::writePlots(figures(mpi, rows), options.plots));
  }
  const bool right = std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.right; });
  const bool met = std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.met(); });
  return !right || (options.gate && pair.rank() == 0 && !met) ? 1 : 0;
}

int start(int argc, char** argv) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Options options;
  if (const std::optional<int> status = parse(argc, argv, rank, options)) {
    return *status;
  }
  if (options.list) {
    if (rank == 0) fmt::print("{}\n", fmt::join(groupNames(), "\n"));
    return 0;
  }
  Pair pair;
  return run(options, pair);
}

}  // namespace
}  // namespace gmac::exchange::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    status = gmac::exchange::bench::start(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "transfers: {}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
