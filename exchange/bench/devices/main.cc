// SPDX-License-Identifier: Apache-2.0
//
// The cost of one message between the memories of two GPUs (or of one, that both processes use), by
// gmac, by MPI's wire, and by what programs and papers do instead, in one run.
//   mpirun -n 2 gmac run --mpi -- devices_openmpi [--only GROUP...] [--repeat N] [--json FILE]
//   [--plots DIR] [--gate]
#include <dlfcn.h>
#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/interleaved.h"
#include "datatypes/plots.h"
#include "exchange/bench/command.h"
#include "exchange/bench/devices/device_pair.h"
#include "exchange/bench/devices/messages.h"
#include "exchange/bench/layouts.h"
#include "exchange/bench/mpi_types.h"
#include "exchange/bench/run_with_mpi.h"

namespace gmac::exchange::bench {
namespace {

struct Row {
  const Message* message = nullptr;
  std::map<std::string, double> us;  // of the ways that can send it
  std::optional<double> ofHand;      // gmac's time over that of the better kernel written by hand
  double packingUs = 0;              // of the message packed by hand
  double unpackingUs = 0;
  bool right = true;
  bool met() const {
    return (message->mostUs == 0 || us.at(wayName(Way::kGmac)) <= message->mostUs) &&
           (message->mostOfHand == 0 || !ofHand.has_value() || *ofHand <= message->mostOfHand);
  }
  bool promised() const { return message->mostUs != 0 || message->mostOfHand != 0; }
};

Row measure(DevicePair& pair, const Message& message, std::size_t rounds) {
  Row row;
  row.message = &message;
  pair.use(message);
  std::vector<Way> ways;
  for (const Way way : kWays) {
    if (!pair.inBoth(pair.can(way))) continue;
    ways.push_back(way);
    row.right = pair.inBoth(pair.arrives(way)) && row.right;
  }
  const gmac::bench::Interleaved turns(ways.size(), rounds,
                                       [&](std::size_t i) { return pair.seconds(ways[i]); });
  for (std::size_t i = 0; i < ways.size(); ++i) {
    row.us[wayName(ways[i])] = turns.seconds(i) * 1e6;
    if (ways[0] == Way::kGmac && (ways[i] == Way::kWarps || ways[i] == Way::kFused)) {
      const double ratio = turns.ratio(0, i);
      row.ofHand = std::max(row.ofHand.value_or(ratio), ratio);
    }
    if (ways[i] == Way::kByHand) {
      row.packingUs = pair.packing() * 1e6;
      row.unpackingUs = pair.unpacking() * 1e6;
    }
  }
  return row;
}

void printHead() {
  fmt::print("{:<34} {:>10}", "message", "bytes");
  for (const Way way : kWays) fmt::print(" {:>9}", wayName(way));
  fmt::print("  {:>6} {:>8}\n", "/ best", "GB/s");
}

void print(const Row& row, bool oneGpu) {
  const auto bytes = static_cast<double>(row.message->from.bytes());
  fmt::print("{:<34} {:>10}", row.message->name, sizeText(row.message->from.bytes()));
  for (const Way way : kWays) {
    const auto found = row.us.find(wayName(way));
    found == row.us.end() ? fmt::print(" {:>9}", "-") : fmt::print(" {:>9.1f}", found->second);
  }
  row.ofHand.has_value() ? fmt::print("  {:>6.2f}", *row.ofHand) : fmt::print("  {:>6}", "-");
  if (!row.us.empty()) {
    // Of gmac; where it is not measured, of the fastest.
    const auto gmac = row.us.find(wayName(Way::kGmac));
    const auto fastest = std::min_element(row.us.begin(), row.us.end(),
                                          [](auto& a, auto& b) { return a.second < b.second; });
    fmt::print(" {:>8.1f}", bytes / (gmac != row.us.end() ? gmac : fastest)->second / 1e3);
  }
  if (row.promised() && !oneGpu) fmt::print("  {}", row.met() ? "met" : "MISSED");
  fmt::print("{}\n", row.right ? "" : "  WRONG BYTES");
  std::fflush(stdout);
}

nlohmann::ordered_json toJson(const std::string& mpi, const DevicePair& pair,
                              const std::vector<Row>& rows) {
  nlohmann::ordered_json all = {{"mpi", mpi},
                                {"gpu", pair.gpu()},
                                {"gpus", pair.oneGpu() ? 1 : 2},
                                {"rows", nlohmann::ordered_json::array()}};
  for (const Row& row : rows) {
    nlohmann::ordered_json one = {{"group", row.message->group},
                                  {"message", row.message->name},
                                  {"bytes", row.message->from.bytes()},
                                  {"us", row.us},
                                  {"packingByHandUs", row.packingUs},
                                  {"unpackingByHandUs", row.unpackingUs},
                                  {"right", row.right}};
    if (row.ofHand.has_value()) one["gmacOverBestKernel"] = *row.ofHand;
    if (row.message->mostUs != 0) one["atMostUs"] = row.message->mostUs;
    if (row.message->mostOfHand != 0) one["atMostOverBestKernel"] = row.message->mostOfHand;
    all["rows"].push_back(std::move(one));
  }
  return all;
}

// A figure for each group, with a panel for each series: microseconds by way.
std::vector<datatypes::Figure> figures(const DevicePair& pair, const std::vector<Row>& rows) {
  std::vector<datatypes::Figure> all;
  for (const Group& group : groups()) {
    datatypes::Figure figure;
    figure.name = "devices-" + group.name;
    for (const Row& row : rows) {
      const Message& message = *row.message;
      if (message.group != group.name) continue;
      std::string name = message.series.empty() ? "all" : message.series;
      std::replace(name.begin(), name.end(), ' ', '-');
      name += pair.oneGpu() ? "-1gpu" : "-2gpus";
      if (figure.panels.empty() || figure.panels.back().name != name) {
        const auto found = std::find_if(figure.panels.begin(), figure.panels.end(),
                                        [&](const auto& panel) { return panel.name == name; });
        if (found == figure.panels.end()) {
          datatypes::Panel panel;
          panel.name = name;
          panel.title = fmt::format("{}{}{}, {}", group.title, message.series.empty() ? "" : ", ",
                                    message.series, pair.oneGpu() ? "one GPU" : "two GPUs");
          panel.xLabel = group.xLabel;
          panel.yLabel = "us one way";
          panel.logX = group.name != "busy";
          panel.logY = true;
          for (const Way way : kWays) panel.series.emplace_back(wayName(way));
          figure.panels.push_back(std::move(panel));
        } else {
          std::rotate(found, found + 1, figure.panels.end());
        }
      }
      for (const auto& [way, us] : row.us) figure.panels.back().set(message.x, way, us);
    }
    if (!figure.panels.empty()) all.push_back(std::move(figure));
  }
  return all;
}

int run(const Options& options) {
  std::vector<Message> wanted;
  std::int64_t most = 0;
  for (Message& message : messages()) {
    if (!options.wants(message.group)) continue;
    most = std::max({most, message.from.bounds().last, message.to.bounds().last});
    wanted.push_back(std::move(message));
  }
  DevicePair pair(most);
  const bool first = pair.rank() == 0;
  const std::string mpi = nameOfMpi();
  if (first) {
    fmt::print("Microseconds one way, medians of {} rounds; {}; {}, {}\n", options.rounds, mpi,
               pair.gpu(), pair.oneGpu() ? "one GPU for both processes" : "a GPU each");
    if (!pair.whyNoHandles().empty()) {
      fmt::print("no copies, warps and fused: {}\n", pair.whyNoHandles());
    }
    printHead();
  }
  std::vector<Row> rows;
  for (const Message& message : wanted) {
    rows.push_back(measure(pair, message, options.rounds));
    if (first) print(rows.back(), pair.oneGpu());
  }
  if (first && !options.json.empty()) addRun(toJson(mpi, pair, rows), options.json);
  if (first && !options.plots.empty()) {
    fmt::print("{}\n", datatypes::writePlots(figures(pair, rows), options.plots));
  }
  const bool right = std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.right; });
  const bool met = std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.met(); });
  return !right || (options.gate && first && !met && !pair.oneGpu()) ? 1 : 0;
}

int start(int argc, char** argv) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Command command = {"devices",
                     "What one message between the memories of two GPUs costs, by gmac, by MPI's "
                     "wire, and by what programs and papers do instead, in one run, with all bytes "
                     "compared. One GPU is used by both processes.",
                     {}};
  for (const Group& group : groups()) command.groups.push_back(group.name);
  Options options;
  if (const std::optional<int> status = parse(command, argc, argv, rank, options)) {
    return *status;
  }
  // Without gmac an MPI that knows no GPU would be given device memory.
  if (::dlsym(RTLD_DEFAULT, "adsmAlloc") == nullptr) {
    throw std::runtime_error("gmac is not loaded: mpirun -n 2 gmac run --mpi -- devices_openmpi");
  }
  return run(options);
}

}  // namespace
}  // namespace gmac::exchange::bench

int main(int argc, char** argv) {
  return gmac::exchange::bench::runWithMpi("devices", &gmac::exchange::bench::start, argc, argv);
}
