// SPDX-License-Identifier: Apache-2.0
//
// FALCON-X, Figure 15: a nine-point stencil over a square of doubles that the processes share by
// columns, so that every step sends the outermost columns east and west: rows of 8 B.
// Floating-point operations a second, and the halo's part of a step, with
//   gmac     MPI_Isend and MPI_Irecv of the columns where they are, by a vector type
//   wire     the same with MPI_Issend, which gmac packs and sends by MPI's own wire
//   by hand  packed by a kernel, copied to the CPU, sent by MPI, copied and unpacked
// All end with the same cells.
//   mpirun -n N gmac run --mpi -- stencil_openmpi [rounds [columns [steps]]]
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bench/interleaved.h"
#include "exchange/bench/devices/stencil_kernels.h"
#include "exchange/bench/run_with_mpi.h"

namespace gmac::exchange::bench {
namespace {

enum class Way { kGmac, kWire, kByHand };
constexpr std::array kWays = {Way::kGmac, Way::kWire, Way::kByHand};

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(fmt::format("{}: {}", what, cudaGetErrorString(error)));
  }
}

class Stencil {
 public:
  // Of a square of `side`.
  Stencil(std::int64_t side, int rank, int size)
      : rank_(rank), size_(size), grid_{side / size, side} {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    for (double** cells : {&now_, &next_}) {
      check(cudaMalloc(cells, static_cast<std::size_t>(grid_.cells()) * sizeof(double)),
            "cudaMalloc");
    }
    const std::size_t column = static_cast<std::size_t>(grid_.rows) * sizeof(double);
    for (Side& one : sides_) {
      check(cudaMalloc(&one.packed, column), "cudaMalloc");
      check(cudaMalloc(&one.unpacked, column), "cudaMalloc");
      check(cudaHostAlloc(&one.sent, column, cudaHostAllocDefault), "cudaHostAlloc");
      check(cudaHostAlloc(&one.received, column, cudaHostAllocDefault), "cudaHostAlloc");
    }
    sides_[0].other = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    sides_[1].other = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    MPI_Type_vector(static_cast<int>(grid_.rows), 1, static_cast<int>(grid_.pitch()), MPI_DOUBLE,
                    &column_);
    MPI_Type_commit(&column_);
  }
  ~Stencil() {
    MPI_Type_free(&column_);
    for (const Side& one : sides_) {
      (void)cudaFree(one.packed);
      (void)cudaFree(one.unpacked);
      (void)cudaFreeHost(one.sent);
      (void)cudaFreeHost(one.received);
    }
    (void)cudaFree(now_);
    (void)cudaFree(next_);
    (void)cudaStreamDestroy(stream_);
  }
  Stencil(const Stencil&) = delete;
  Stencil& operator=(const Stencil&) = delete;

  // Seconds of so many steps from the same cells.
  double seconds(Way way, int steps) {
    fillGrid(grid_, now_, rank_ * grid_.columns, stream_);
    fillGrid(grid_, next_, rank_ * grid_.columns, stream_);
    check(cudaStreamSynchronize(stream_), "filling the grid");
    halo_ = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) {
      stepGrid(grid_, next_, now_, stream_);
      check(cudaStreamSynchronize(stream_), "a step");
      std::swap(now_, next_);
      const auto halo = Clock::now();
      way == Way::kByHand ? exchangeByHand() : exchange(way);
      halo_ += secondsSince(halo);
    }
    const double own = secondsSince(start);
    double slowest = 0;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
  }
  // Of the last run: seconds of the exchange of columns, waiting for slower neighbours included.
  double halo() const { return halo_; }
  // The cells after the last run.
  std::vector<double> cells() const {
    std::vector<double> all(static_cast<std::size_t>(grid_.cells()));
    check(
        cudaMemcpyAsync(all.data(), now_, all.size() * sizeof(double), cudaMemcpyDefault, stream_),
        "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return all;
  }

 private:
  using Clock = std::chrono::steady_clock;
  // West and east.
  struct Side {
    int other = MPI_PROC_NULL;
    double* packed = nullptr;
    double* unpacked = nullptr;
    double* sent = nullptr;
    double* received = nullptr;
  };

  static double secondsSince(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  // The outermost column on that side, and the rim beyond it.
  std::int64_t last(int side) const { return side == 0 ? 1 : grid_.columns; }
  std::int64_t rim(int side) const { return side == 0 ? 0 : grid_.columns + 1; }

  void exchange(Way way) {
    std::array<MPI_Request, 4> requests{};
    const auto send = way == Way::kWire ? &MPI_Issend : &MPI_Isend;
    for (const int side : {0, 1}) {
      const int other = sides_[static_cast<std::size_t>(side)].other;
      MPI_Irecv(now_ + grid_.pitch() + rim(side), 1, column_, other, 1 - side, MPI_COMM_WORLD,
                &requests[static_cast<std::size_t>(side)]);
      send(now_ + grid_.pitch() + last(side), 1, column_, other, side, MPI_COMM_WORLD,
           &requests[2 + static_cast<std::size_t>(side)]);
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }

  void exchangeByHand() {
    const auto rows = static_cast<int>(grid_.rows);
    const std::size_t bytes = static_cast<std::size_t>(rows) * sizeof(double);
    std::array<MPI_Request, 4> requests{};
    for (const int side : {0, 1}) {
      const Side& one = sides_[static_cast<std::size_t>(side)];
      MPI_Irecv(one.received, rows, MPI_DOUBLE, one.other, 1 - side, MPI_COMM_WORLD,
                &requests[static_cast<std::size_t>(side)]);
      if (one.other == MPI_PROC_NULL) continue;
      packColumn(grid_, one.packed, now_, last(side), stream_);
      check(cudaMemcpyAsync(one.sent, one.packed, bytes, cudaMemcpyDeviceToHost, stream_),
            "cudaMemcpyAsync");
    }
    check(cudaStreamSynchronize(stream_), "packing");
    for (const int side : {0, 1}) {
      const Side& one = sides_[static_cast<std::size_t>(side)];
      MPI_Isend(one.sent, rows, MPI_DOUBLE, one.other, side, MPI_COMM_WORLD,
                &requests[2 + static_cast<std::size_t>(side)]);
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    for (const int side : {0, 1}) {
      const Side& one = sides_[static_cast<std::size_t>(side)];
      if (one.other == MPI_PROC_NULL) continue;
      check(cudaMemcpyAsync(one.unpacked, one.received, bytes, cudaMemcpyHostToDevice, stream_),
            "cudaMemcpyAsync");
      unpackColumn(grid_, now_, one.unpacked, rim(side), stream_);
    }
    check(cudaStreamSynchronize(stream_), "unpacking");
  }

  const int rank_;
  const int size_;
  const Grid grid_;
  cudaStream_t stream_ = nullptr;
  MPI_Datatype column_ = MPI_DATATYPE_NULL;
  double* now_ = nullptr;
  double* next_ = nullptr;
  std::array<Side, 2> sides_{};
  double halo_ = 0;
};

// Whether all ways ended with the same cells, in every process.
bool measure(std::int64_t side, int steps, std::size_t rounds, int rank, int size) {
  Stencil stencil(side, rank, size);
  std::array<std::vector<double>, kWays.size()> cells;
  std::array<double, kWays.size()> halo{};
  const gmac::bench::Interleaved turns(kWays.size(), rounds, [&](std::size_t i) {
    const double seconds = stencil.seconds(kWays[i], steps);
    halo[i] = stencil.halo();
    if (cells[i].empty()) cells[i] = stencil.cells();
    return seconds;
  });
  int same = cells[0] == cells[1] && cells[0] == cells[2] ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank == 0) {
    const double operations = static_cast<double>(side) * static_cast<double>(side / size * size) *
                              kStencilOperations * steps;
    fmt::print("{:>6}^2, {} processes, {} steps:", side, size, steps);
    for (const auto& [name, i] : {std::pair{"gmac", 0U}, {"wire", 1U}, {"by hand", 2U}}) {
      fmt::print(" {} {:.1f} GFLOPS, halo {:.1f} us a step;", name,
                 operations / turns.seconds(i) / 1e9, halo[i] / steps * 1e6);
    }
    fmt::print(" gmac over by hand {:.2f}{}\n", turns.ratio(2, 0),
               same != 0 ? "" : "  CELLS DIFFER");
    std::fflush(stdout);
  }
  return same != 0;
}

int start(int argc, char** argv) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (::dlsym(RTLD_DEFAULT, "adsmAlloc") == nullptr) {
    throw std::runtime_error("gmac is not loaded: mpirun -n 2 gmac run --mpi -- stencil_openmpi");
  }
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  check(cudaSetDevice(rank % devices), "cudaSetDevice");
  const auto argument = [&](int i, int otherwise) {
    return argc > i ? std::max(1, std::atoi(argv[i])) : otherwise;
  };
  const auto rounds = static_cast<std::size_t>(argument(1, 5));
  if (argc > 2) return measure(argument(2, 0), argument(3, 1000), rounds, rank, size) ? 0 : 1;
  const bool small = measure(1048, 1000, rounds, rank, size);
  const bool large = measure(16384, 100, rounds, rank, size);
  return small && large ? 0 : 1;
}

}  // namespace
}  // namespace gmac::exchange::bench

int main(int argc, char** argv) {
  return gmac::exchange::bench::runWithMpi("stencil", &gmac::exchange::bench::start, argc, argv);
}
