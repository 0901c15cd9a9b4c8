// SPDX-License-Identifier: Apache-2.0
//
// The cost of one message between two processes of a host, by exchange/ and by the MPI that started
// them, in one run.
//   mpirun -n 2 transfers_MPI [--only GROUP...] [--repeat N] [--json FILE] [--plots DIR] [--gate]
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/turns.h"
#include "datatypes/plots.h"
#include "exchange/bench/command.h"
#include "exchange/bench/layouts.h"
#include "exchange/bench/mpi_types.h"
#include "exchange/bench/pair.h"
#include "exchange/bench/run_with_mpi.h"
#include "exchange/bench/workloads.h"

namespace gmac::exchange::bench {
namespace {

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

int run(const Options& options, Pair& pair) {
  const std::string mpi = nameOfMpi();
  const std::vector<Workload> all = workloads();
  std::vector<Row> rows;
  if (pair.rank() == 0) {
    fmt::print("Microseconds one way, medians of {} rounds; {}\n", options.rounds, mpi);
    printHead();
  }
  for (const Workload& workload : all) {
    if (!options.wants(workload.group)) continue;
    rows.push_back(measure(pair, workload, options.rounds));
    if (pair.rank() == 0) print(rows.back());
  }
  if (pair.rank() == 0 && !options.json.empty()) {
    addRun(toJson(mpi, rows), options.json);
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
  const Command command = {
      "transfers",
      "What one message between two processes of a host costs, by each path of the exchange, by "
      "MPI and by MPI after packing by hand, in one run, with all bytes compared.",
      groupNames()};
  if (const std::optional<int> status = parse(command, argc, argv, rank, options)) {
    return *status;
  }
  Pair pair;
  return run(options, pair);
}

}  // namespace
}  // namespace gmac::exchange::bench

int main(int argc, char** argv) {
  return gmac::exchange::bench::runWithMpi("transfers", &gmac::exchange::bench::start, argc, argv);
}
