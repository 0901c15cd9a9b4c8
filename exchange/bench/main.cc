// SPDX-License-Identifier: Apache-2.0
//
// The cost of messages between two processes of a host, by exchange/ and by the MPI that started
// them, in one run.
//   mpirun -n 2 transfers_MPI [--only GROUP...] [--repeat N] [--json FILE] [--plots DIR] [--gate]
#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/interleaved.h"
#include "datatypes/plots.h"
#include "exchange/bench/command.h"
#include "exchange/bench/exchange_calls.h"
#include "exchange/bench/layouts.h"
#include "exchange/bench/mpi_types.h"
#include "exchange/bench/pair.h"
#include "exchange/bench/run_with_mpi.h"
#include "exchange/bench/workloads.h"

namespace gmac::exchange::bench {
namespace {

struct Row {
  const Workload* workload = nullptr;
  const Group* group = nullptr;
  std::map<std::string, double> us;
  double toMpi = 0;     // the time of the chosen way, over MPI's
  double toByHand = 0;  // and over that of packing by hand
  std::string path;     // of the chosen way
  bool right = true;    // all bytes arrived, by every way
  // GB/s of a direction, of many messages at once.
  std::map<std::string, double> oneWay;
  std::map<std::string, double> bothWays;
  std::optional<Steps> steps;
  bool met() const { return workload->most == 0 || toMpi <= workload->most; }
};

// The way's number among the group's.
std::size_t numberOf(const Group& group, Way way) {
  return static_cast<std::size_t>(std::find(group.ways.begin(), group.ways.end(), way) -
                                  group.ways.begin());
}

std::map<std::string, double> stream(Pair& pair, Row& row, std::size_t rounds, bool bothWays) {
  std::vector<Way> ways = row.group->ways;
  std::erase(ways, Way::kRead);  // the kernel takes up to a second for small pieces
  for (const Way way : ways) {
    row.right = inAll(pair.streamArrives(way, bothWays)) && row.right;
  }
  const gmac::bench::Interleaved turns(
      ways.size(), rounds, [&](std::size_t i) { return pair.streamSeconds(ways[i], bothWays); });
  std::map<std::string, double> rates;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    rates[wayName(ways[i])] =
        static_cast<double>(row.workload->from.bytes()) / turns.seconds(i) / 1e9;
  }
  return rates;
}

Row measure(Pair& pair, const Workload& workload, const Group& group, std::size_t rounds) {
  Row row;
  row.workload = &workload;
  row.group = &group;
  pair.use(workload);
  for (const Way way : group.ways) {
    row.right = inAll(pair.arrives(way)) && row.right;
  }
  const gmac::bench::Interleaved turns(group.ways.size(), rounds,
                                       [&](std::size_t i) { return pair.seconds(group.ways[i]); });
  for (std::size_t i = 0; i < group.ways.size(); ++i) {
    row.us[wayName(group.ways[i])] = turns.seconds(i) * 1e6;
  }
  const std::size_t chosen = numberOf(group, Way::kChosen);
  row.toMpi = turns.ratio(chosen, numberOf(group, Way::kMpi));
  row.toByHand = turns.ratio(chosen, numberOf(group, Way::kByHand));
  row.path = pathName(*pair.path(Way::kChosen));
  if (group.steps) row.steps = pair.steps(rounds);
  if (group.streams) {
    row.oneWay = stream(pair, row, rounds, false);
    row.bothWays = stream(pair, row, rounds, true);
  }
  return row;
}

void printHead(const Group& group) {
  fmt::print("{:<32} {:>10}", group.name, "bytes");
  for (const Way way : group.ways) fmt::print(" {:>9}", wayName(way));
  fmt::print("  {:>6} {:>7}  {}\n", "/ MPI", "/ hand", "path");
}

void printRates(const Group& group, const char* name, const std::map<std::string, double>& rates) {
  if (rates.empty()) return;
  fmt::print("{:<32} {:>10}", name, "GB/s");
  for (const Way way : group.ways) {
    const auto rate = rates.find(wayName(way));
    rate == rates.end() ? fmt::print(" {:>9}", "-") : fmt::print(" {:>9.3f}", rate->second);
  }
  fmt::print("\n");
}

void print(const Row& row) {
  fmt::print("{:<32} {:>10}", row.workload->name, sizeText(row.workload->from.bytes()));
  for (const Way way : row.group->ways) fmt::print(" {:>9.1f}", row.us.at(wayName(way)));
  fmt::print("  {:>6.2f} {:>7.2f}  {}", row.toMpi, row.toByHand, row.path);
  if (row.workload->most != 0) {
    fmt::print("  <= {:g} {}", row.workload->most, row.met() ? "met" : "MISSED");
  }
  fmt::print("{}\n", row.right ? "" : "  WRONG BYTES");
  if (row.steps.has_value()) {
    fmt::print(
        "  us of its steps: translation {:.1f}, exchange of the layout {:.1f}, addresses "
        "{:.1f}, copy {:.1f}\n",
        row.steps->translation * 1e6, row.steps->exchange * 1e6, row.steps->addresses * 1e6,
        row.steps->copy * 1e6);
  }
  printRates(*row.group, "  8 at once, one way", row.oneWay);
  printRates(*row.group, "  8 at once, both ways", row.bothWays);
  std::fflush(stdout);
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
    if (row.steps.has_value()) {
      one["stepsUs"] = {{"translation", row.steps->translation * 1e6},
                        {"exchange", row.steps->exchange * 1e6},
                        {"addresses", row.steps->addresses * 1e6},
                        {"copy", row.steps->copy * 1e6}};
    }
    if (!row.oneWay.empty()) one["oneWayGBps"] = row.oneWay;
    if (!row.bothWays.empty()) one["bothWaysGBps"] = row.bothWays;
    all["rows"].push_back(std::move(one));
  }
  return all;
}

// The panels of one group's figure.
class Panels {
 public:
  Panels(const std::string& mpi, const Group& group) : mpi_(mpi), group_(group) {
    figure_.name = "transfers-" + group.name;
  }

  // `name`: of what is added to the MPI's; "": the MPI's alone.
  datatypes::Panel& panel(const std::string& name, const std::string& yLabel) {
    const std::string whole = (mpi_ == "MPICH" ? "mpich" : "openmpi") + name;
    for (datatypes::Panel& one : figure_.panels) {
      if (one.name == whole) return one;
    }
    datatypes::Panel made;
    made.name = whole;
    made.title = fmt::format("{}, beside {}", group_.title, mpi_);
    made.xLabel = group_.xLabel;
    made.yLabel = yLabel;
    made.logX = made.logY = true;
    figure_.panels.push_back(std::move(made));
    return figure_.panels.back();
  }
  // Values by the way's name.
  void add(datatypes::Panel& panel, double x, const std::map<std::string, double>& values) {
    if (panel.series.empty()) {
      for (const Way way : group_.ways) panel.series.emplace_back(wayName(way));
    }
    for (const auto& [name, value] : values) panel.set(x, name, value);
  }
  // Bars, with a name for each line.
  static void addBars(datatypes::Panel& panel, const std::string& line,
                      const std::vector<std::pair<std::string, double>>& values) {
    panel.logX = panel.logY = false;
    if (panel.series.empty()) {
      for (const auto& [name, value] : values) panel.series.push_back(name);
    }
    for (const auto& [name, value] : values) {
      panel.set(static_cast<double>(panel.lines.size()), name, value);
    }
    panel.lines.push_back(line);
  }
  datatypes::Figure take() { return std::move(figure_); }

 private:
  const std::string& mpi_;
  const Group& group_;
  datatypes::Figure figure_;
};

void addRow(Panels& panels, const Row& row) {
  const Workload& workload = *row.workload;
  const char* const time = "us one way";
  if (row.steps.has_value()) {
    Panels::addBars(panels.panel("-steps", "us"), workload.name,
                    {{"translation", row.steps->translation * 1e6},
                     {"exchange of the layout", row.steps->exchange * 1e6},
                     {"address translation", row.steps->addresses * 1e6},
                     {"copy", row.steps->copy * 1e6}});
    std::vector<std::pair<std::string, double>> messages;
    for (const Way way : row.group->ways) {
      messages.emplace_back(wayName(way), row.us.at(wayName(way)));
    }
    Panels::addBars(panels.panel("-messages", time), workload.name, messages);
    return;
  }
  if (!workload.series.empty()) {
    // A panel for each way.
    for (const Way way : row.group->ways) {
      std::string name = fmt::format("-{}", wayName(way));
      std::replace(name.begin(), name.end(), ' ', '-');
      datatypes::Panel& panel = panels.panel(name, time);
      if (panel.series.empty()) panel.title += fmt::format(": {}", wayName(way));
      if (std::find(panel.series.begin(), panel.series.end(), workload.series) ==
          panel.series.end()) {
        panel.series.push_back(workload.series);
      }
      panel.set(workload.x, workload.series, row.us.at(wayName(way)));
    }
    return;
  }
  panels.add(panels.panel("", time), workload.x, row.us);
  if (!row.oneWay.empty()) {
    panels.add(panels.panel("-one-way", "GB/s, 8 messages at once"), workload.x, row.oneWay);
  }
  if (!row.bothWays.empty()) {
    panels.add(panels.panel("-both-ways", "GB/s of each direction, 8 messages at once"), workload.x,
               row.bothWays);
  }
}

std::vector<datatypes::Figure> figures(const std::string& mpi, const std::vector<Group>& groups,
                                       const std::vector<Row>& rows) {
  std::vector<datatypes::Figure> all;
  for (const Group& group : groups) {
    if (group.title.empty()) continue;  // two curves of three points: the table says it
    Panels panels(mpi, group);
    for (const Row& row : rows) {
      if (row.workload->group == group.name) addRow(panels, row);
    }
    datatypes::Figure figure = panels.take();
    if (!figure.panels.empty()) all.push_back(std::move(figure));
  }
  return all;
}

int run(const Options& options, Pair& pair) {
  const std::string mpi = nameOfMpi();
  const std::vector<Workload> all = workloads();
  const std::vector<Group> known = groups();
  std::vector<Row> rows;
  if (pair.rank() == 0) {
    fmt::print("Microseconds one way, medians of {} rounds; {}\n", options.rounds, mpi);
  }
  for (const Group& group : known) {
    if (!options.wants(group.name)) continue;
    if (pair.rank() == 0) printHead(group);
    for (const Workload& workload : all) {
      if (workload.group != group.name) continue;
      rows.push_back(measure(pair, workload, group, options.rounds));
      if (pair.rank() == 0) print(rows.back());
    }
  }
  if (pair.rank() == 0 && !options.json.empty()) {
    addRun(toJson(mpi, rows), options.json);
  }
  if (pair.rank() == 0 && !options.plots.empty()) {
    fmt::print("{}\n", datatypes::writePlots(figures(mpi, known, rows), options.plots));
  }
  const bool right = std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.right; });
  const bool met = std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.met(); });
  return !right || (options.gate && pair.rank() == 0 && !met) ? 1 : 0;
}

int start(int argc, char** argv) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Options options;
  Command command = {
      "transfers",
      "What messages between two processes of a host cost, by each path of the exchange, by "
      "MPI and by MPI after packing by hand, in one run, with all bytes compared.",
      {},
      {kStencilGroup}};
  for (const Group& group : groups()) command.groups.push_back(group.name);
  if (const std::optional<int> status = parse(command, argc, argv, rank, options)) {
    return *status;
  }
  if (!std::any_of(command.groups.begin(), command.groups.end(),
                   [&](const std::string& group) { return options.wants(group); })) {
    return 0;
  }
  Pair pair;
  return run(options, pair);
}

}  // namespace
}  // namespace gmac::exchange::bench

int main(int argc, char** argv) {
  return gmac::exchange::bench::runWithMpi("transfers", &gmac::exchange::bench::start, argc, argv);
}
