// SPDX-License-Identifier: Apache-2.0
//
// FALCON-X, Figure 12: the communication of a seven-point stencil over a cube of doubles that the
// processes share by blocks. Each sends the outermost layer of cells on each side, a subarray, to
// the neighbour there. Microseconds of one exchange of all faces, of the slowest process, by
//   MPI       MPI_Isend and MPI_Irecv of the subarrays
//   by hand   packed, sent by MPI and unpacked
//   exchange  the receiver copies each face from the sender's memory to its own; descriptions by
//   MPI
// for 2, 4, 8 ... processes, up to all of the job's; the others sleep meanwhile.
//   mpirun -n N stencil_3d_MPI [--edge CELLS] [--repeat N] [--json FILE] [--plots DIR]
#include <fmt/core.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/interleaved.h"
#include "datatypes/plots.h"
#include "exchange/bench/command.h"
#include "exchange/bench/exchange_calls.h"
#include "exchange/bench/layouts.h"
#include "exchange/bench/memory_file.h"
#include "exchange/bench/mpi_layouts.h"
#include "exchange/bench/mpi_types.h"
#include "exchange/bench/run_with_mpi.h"
#include "exchange/bench/workloads.h"
#include "exchange/exchange.h"
#include "gmac/datatype/cpu/cpu_engine.h"

namespace gmac::exchange::bench {
namespace {

enum class By { kMpi, kHand, kExchange };
constexpr std::array kBy = {By::kMpi, By::kHand, By::kExchange};
constexpr std::array kNames = {"MPI", "by hand", "exchange"};

constexpr std::size_t kDims = 3;
constexpr std::size_t kFaces = 2 * kDims;
using Cells = std::array<std::int64_t, kDims>;  // the last varies fastest
using Description = std::array<std::byte, kDescriptionBytes>;

// One process's block of the cube, with a rim of one cell.
class Block {
 public:
  Block(MPI_Comm communicator, Exchange& exchange, std::int64_t edge)
      : communicator_(communicator), exchange_(exchange) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &size);
    MPI_Dims_create(size, static_cast<int>(kDims), processes_.data());
    std::array<int, kDims> place{};
    for (std::size_t d = kDims, rest = static_cast<std::size_t>(rank); d-- > 0;) {
      const auto many = static_cast<std::size_t>(processes_[d]);
      place[d] = static_cast<int>(rest % many);
      rest /= many;
    }
    std::int64_t all = 1;
    for (std::size_t d = 0; d < kDims; ++d) {
      cells_[d] = edge / processes_[d];
      origin_[d] = place[d] * cells_[d];
      all *= cells_[d] + 2;
    }
    memory_ = std::make_unique<MemoryFile>(all * static_cast<std::int64_t>(sizeof(double)));
    file_ = valueOf(exchange_.exportFile(memory_->file(), 0, memory_->bytes()), "exportFile");
    int distance = 1;
    for (std::size_t d = kDims; d-- > 0; distance *= processes_[d]) {
      for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
        const int next = place[d] + (side == 0 ? -1 : 1);
        if (next < 0 || next >= processes_[d]) continue;
        addFace(d, side, rank + (side == 0 ? -distance : distance));
      }
    }
    MPI_Barrier(communicator);
  }
  ~Block() {
    for (Face& face : faces_) {
      MPI_Type_free(&face.sentType);
      MPI_Type_free(&face.receivedType);
    }
    MPI_Barrier(communicator_);
    (void)exchange_.revoke(file_);
    exchange_.sweep();
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const std::array<int, kDims>& processes() const { return processes_; }

  void exchange(By by) {
    switch (by) {
      case By::kMpi:
        return exchangeByMpi();
      case By::kHand:
        return exchangeByHand();
      case By::kExchange:
        return exchangeByReading();
    }
  }

  // Whether an exchange brings every cell of the neighbours' layers, here, and changes no others.
  bool arrives(By by) {
    each([&](const Cells& at, double& cell) { cell = inside(at) ? valueAt(at) : kNothing; });
    MPI_Barrier(communicator_);
    exchange(by);
    MPI_Barrier(communicator_);
    bool right = true;
    each([&](const Cells& at, double& cell) {
      right = right && cell == (inside(at) || fromNeighbour(at) ? valueAt(at) : kNothing);
    });
    return right;
  }

 private:
  static constexpr double kNothing = -1;

  struct Face {
    int number;  // of the side: 2 d + side
    int other;
    MPI_Datatype sentType;
    MPI_Datatype receivedType;
    SharedLayoutPtr sent;
    datatype::Layout received;
    std::vector<std::byte> out;
    std::vector<std::byte> in;
  };

  // The layer of the block's own cells at `index` in dimension d.
  MPI_Datatype layer(std::size_t d, std::int64_t index) const {
    std::array<int, kDims> sizes{};
    std::array<int, kDims> subsizes{};
    std::array<int, kDims> starts{};
    for (std::size_t i = 0; i < kDims; ++i) {
      sizes[i] = static_cast<int>(cells_[i] + 2);
      subsizes[i] = i == d ? 1 : static_cast<int>(cells_[i]);
      starts[i] = i == d ? static_cast<int>(index) : 1;
    }
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_create_subarray(static_cast<int>(kDims), sizes.data(), subsizes.data(), starts.data(),
                             MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
  }

  void addFace(std::size_t d, std::size_t side, int other) {
    Face face{static_cast<int>(2 * d + side),
              other,
              layer(d, side == 0 ? 1 : cells_[d]),
              layer(d, side == 0 ? 0 : cells_[d] + 1),
              nullptr,
              {},
              {},
              {}};
    face.sent = shareLayout(layoutOf(face.sentType));
    face.received = layoutOf(face.receivedType);
    face.out.resize(static_cast<std::size_t>(face.received.bytes()));
    face.in.resize(face.out.size());
    check(exchange_.offer(file_, other), "offer");
    faces_.push_back(std::move(face));
  }

  template <typename Visit>
  void each(const Visit& visit) {
    auto* cell = reinterpret_cast<double*>(memory_->data());
    Cells at{};
    for (at[0] = 0; at[0] < cells_[0] + 2; ++at[0]) {
      for (at[1] = 0; at[1] < cells_[1] + 2; ++at[1]) {
        for (at[2] = 0; at[2] < cells_[2] + 2; ++at[2]) visit(at, *cell++);
      }
    }
  }
  bool isRim(const Cells& at, std::size_t d) const { return at[d] == 0 || at[d] == cells_[d] + 1; }
  bool inside(const Cells& at) const { return !isRim(at, 0) && !isRim(at, 1) && !isRim(at, 2); }
  // In the rim beyond one face, and no edge's, where there is a neighbour.
  bool fromNeighbour(const Cells& at) const {
    int rims = 0;
    int number = 0;
    for (std::size_t d = 0; d < kDims; ++d) {
      if (!isRim(at, d)) continue;
      ++rims;
      number = static_cast<int>(2 * d + (at[d] == 0 ? 0 : 1));
    }
    return rims == 1 && std::any_of(faces_.begin(), faces_.end(),
                                    [&](const Face& face) { return face.number == number; });
  }
  // The same for all processes that have the cell.
  double valueAt(const Cells& at) const {
    double value = 0;
    for (std::size_t d = 0; d < kDims; ++d) {
      value = value * static_cast<double>(cells_[d] * processes_[d] + 2) +
              static_cast<double>(origin_[d] + at[d]);
    }
    return value;
  }

  void exchangeByMpi() {
    std::vector<MPI_Request> requests;
    for (const Face& face : faces_) {
      MPI_Irecv(memory_->data(), 1, face.receivedType, face.other, face.number ^ 1, communicator_,
                &requests.emplace_back());
    }
    for (const Face& face : faces_) {
      MPI_Isend(memory_->data(), 1, face.sentType, face.other, face.number, communicator_,
                &requests.emplace_back());
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }

  void exchangeByHand() {
    std::vector<MPI_Request> in;
    std::vector<MPI_Request> out;
    for (Face& face : faces_) {
      MPI_Irecv(face.in.data(), static_cast<int>(face.in.size()), MPI_BYTE, face.other,
                face.number ^ 1, communicator_, &in.emplace_back());
    }
    for (Face& face : faces_) {
      datatype::pack(face.sent->layout, face.out.data(), memory_->data(), 0,
                     face.sent->layout.bytes());
      MPI_Isend(face.out.data(), static_cast<int>(face.out.size()), MPI_BYTE, face.other,
                face.number, communicator_, &out.emplace_back());
    }
    for (std::size_t i = 0; i < faces_.size(); ++i) {
      int which = 0;
      MPI_Waitany(static_cast<int>(in.size()), in.data(), &which, MPI_STATUS_IGNORE);
      const Face& face = faces_[static_cast<std::size_t>(which)];
      datatype::unpack(face.received, memory_->data(), face.in.data(), 0, face.received.bytes());
    }
    MPI_Waitall(static_cast<int>(out.size()), out.data(), MPI_STATUSES_IGNORE);
  }

  void exchangeByReading() {
    const std::size_t count = faces_.size();
    std::array<Description, kFaces> told;
    std::array<Description, kFaces> said;
    std::array<MPI_Request, kFaces> in{};
    std::vector<MPI_Request> out;
    std::vector<Sending> sent;
    std::vector<std::pair<std::size_t, Receiving>> received;
    const auto bytes = static_cast<int>(kDescriptionBytes);
    for (std::size_t i = 0; i < count; ++i) {
      MPI_Irecv(told[i].data(), bytes, MPI_BYTE, faces_[i].other, faces_[i].number ^ 1,
                communicator_, &in[i]);
    }
    SendOptions options;
    options.file = file_;
    for (std::size_t i = 0; i < count; ++i) {
      sent.push_back(valueOf(
          exchange_.send(faces_[i].other, memory_->data(), faces_[i].sent, options), "send"));
      sent.back().describe(said[i]);
      MPI_Isend(said[i].data(), bytes, MPI_BYTE, faces_[i].other, faces_[i].number, communicator_,
                &out.emplace_back());
    }
    Spin spin;
    for (std::size_t left = count; left > 0 || !sent.empty();) {
      bool moved = false;
      int which = MPI_UNDEFINED;
      int there = 0;
      MPI_Testany(static_cast<int>(count), in.data(), &which, &there, MPI_STATUS_IGNORE);
      if (there != 0 && which != MPI_UNDEFINED) {
        const auto i = static_cast<std::size_t>(which);
        received.emplace_back(i, valueOf(exchange_.receive(faces_[i].other, told[i],
                                                           memory_->data(), faces_[i].received),
                                         "receive"));
        moved = true;
      }
      left -= std::erase_if(received,
                            [](auto& one) { return valueOf(one.second.advance(), "receiving"); });
      moved =
          std::erase_if(sent, [](Sending& one) { return valueOf(one.advance(), "sending"); }) > 0 ||
          moved;
      moved ? spin.progressed() : spin.idled();
    }
    MPI_Waitall(static_cast<int>(out.size()), out.data(), MPI_STATUSES_IGNORE);
  }

  const MPI_Comm communicator_;
  Exchange& exchange_;
  std::array<int, kDims> processes_{};
  Cells cells_{};   // of this process, without the rim
  Cells origin_{};  // of its first cell, in the cube
  std::unique_ptr<MemoryFile> memory_;
  ExportId file_ = kNoExport;
  std::vector<Face> faces_;
};

struct Row {
  int size = 0;
  std::array<int, kDims> processes{};
  std::map<std::string, double> us;
  double toMpi = 0;
  double toHand = 0;
  bool right = true;
};

Row measure(MPI_Comm communicator, Exchange& exchange, const Options& options) {
  constexpr int kTimes = 10;
  Row row;
  MPI_Comm_size(communicator, &row.size);
  Block block(communicator, exchange, options.edge);
  row.processes = block.processes();
  for (const By by : kBy) row.right = inAll(block.arrives(by), communicator) && row.right;
  const gmac::bench::Interleaved turns(kBy.size(), options.rounds, [&](std::size_t i) {
    MPI_Barrier(communicator);
    const double start = MPI_Wtime();
    for (int time = 0; time < kTimes; ++time) block.exchange(kBy[i]);
    const double own = MPI_Wtime() - start;
    double slowest = 0;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, communicator);
    return slowest / kTimes;
  });
  for (std::size_t i = 0; i < kBy.size(); ++i) row.us[kNames[i]] = turns.seconds(i) * 1e6;
  row.toMpi = turns.ratio(2, 0);
  row.toHand = turns.ratio(2, 1);
  return row;
}

// Those that have nothing to do leave the processors to the others.
void waitAsleep() {
  constexpr unsigned kMicroseconds = 500;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  int over = 0;
  while (MPI_Test(&request, &over, MPI_STATUS_IGNORE) == MPI_SUCCESS && over == 0) {
    ::usleep(kMicroseconds);
  }
}

std::vector<int> sizes(int all) {
  std::vector<int> some;
  for (int size = 2; size < all; size *= 2) some.push_back(size);
  some.push_back(all);
  return some;
}

nlohmann::ordered_json toJson(const std::string& mpi, std::int64_t edge,
                              const std::vector<Row>& rows) {
  nlohmann::ordered_json all = {{"mpi", mpi}, {"rows", nlohmann::ordered_json::array()}};
  for (const Row& row : rows) {
    all["rows"].push_back({{"group", kStencilGroup},
                           {"processes", row.size},
                           {"grid", row.processes},
                           {"edge", edge},
                           {"us", row.us},
                           {"exchangeOverMpi", row.toMpi},
                           {"exchangeOverByHand", row.toHand},
                           {"right", row.right}});
  }
  return all;
}

std::vector<datatypes::Figure> figures(const std::string& mpi, std::int64_t edge,
                                       const std::vector<Row>& rows) {
  datatypes::Figure figure;
  figure.name = fmt::format("transfers-{}", kStencilGroup);
  datatypes::Panel panel;
  panel.name = mpi == "MPICH" ? "mpich" : "openmpi";
  panel.title =
      fmt::format("faces of a stencil of {}^3 (FALCON-X, Figure 12), beside {}", edge, mpi);
  panel.xLabel = "processes";
  panel.yLabel = "us of an exchange";
  panel.logX = panel.logY = true;
  for (const char* const name : kNames) panel.series.emplace_back(name);
  for (const Row& row : rows) {
    for (const auto& [name, us] : row.us) panel.set(row.size, name, us);
  }
  figure.panels.push_back(std::move(panel));
  return {figure};
}

int run(const Options& options, int rank, int size) {
  const std::string mpi = nameOfMpi();
  const std::unique_ptr<Exchange> exchange = openExchange();
  if (rank == 0) {
    fmt::print(
        "{}: microseconds of one exchange of the faces of {}^3 cells, medians of {} rounds; "
        "{}\n{:<12} {:>10}",
        kStencilGroup, options.edge, options.rounds, mpi, "processes", "");
    for (const char* const name : kNames) fmt::print(" {:>9}", name);
    fmt::print("  {:>6} {:>7}\n", "/ MPI", "/ hand");
  }
  std::vector<Row> rows;
  for (const int some : sizes(size)) {
    MPI_Comm communicator = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank < some ? 0 : MPI_UNDEFINED, rank, &communicator);
    if (communicator != MPI_COMM_NULL) {
      rows.push_back(measure(communicator, *exchange, options));
      MPI_Comm_free(&communicator);
    }
    waitAsleep();
    if (rank != 0) continue;
    const Row& row = rows.back();
    fmt::print("{:<12} {:>10}", row.size,
               fmt::format("{}x{}x{}", row.processes[0], row.processes[1], row.processes[2]));
    for (const char* const name : kNames) fmt::print(" {:>9.1f}", row.us.at(name));
    fmt::print("  {:>6.2f} {:>7.2f}{}\n", row.toMpi, row.toHand, row.right ? "" : "  WRONG CELLS");
    std::fflush(stdout);
  }
  if (rank == 0 && !options.json.empty()) {
    addRun(toJson(mpi, options.edge, rows), options.json);
  }
  if (rank == 0 && !options.plots.empty()) {
    fmt::print("{}\n", datatypes::writePlots(figures(mpi, options.edge, rows), options.plots));
  }
  return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.right; }) ? 0 : 1;
}

int start(int argc, char** argv) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Options options;
  Command command = {"stencil_3d",
                     "What it costs to exchange the faces of a cube of cells that processes share "
                     "by blocks, by MPI, packed by hand, and by the exchange, in one run, with all "
                     "cells compared.",
                     {kStencilGroup},
                     {},
                     true};
  for (const Group& group : groups()) command.others.push_back(group.name);
  if (const std::optional<int> status = parse(command, argc, argv, rank, options)) {
    return *status;
  }
  if (!options.wants(kStencilGroup)) return 0;
  if (size < 2) {
    throw std::runtime_error("1 process; there have to be 2 or more: mpirun -n 2");
  }
  if (options.edge < size) {
    throw std::runtime_error(
        fmt::format("--edge {}: {} processes need at least {}", options.edge, size, size));
  }
  return run(options, rank, size);
}

}  // namespace
}  // namespace gmac::exchange::bench

int main(int argc, char** argv) {
  return gmac::exchange::bench::runWithMpi("stencil_3d", &gmac::exchange::bench::start, argc, argv);
}
