// SPDX-License-Identifier: Apache-2.0
//
// The transpose of a cube of doubles that is cut along its first dimension into one that is cut
// along its third, and back, in three ways that take turns:
//   by hand  loops pack and unpack plain memory, MPI_Alltoall moves what is packed
//   plain    MPI_Alltoallw of subarrays of plain memory: MPI's own packing
//   objects  MPI_Alltoallw of subarrays of shared objects: gmac's packing
// GB/s of each process, both ways, and how many times as long as by hand. The edge, 128 by default,
// is a multiple of the number of processes.
//   mpirun -n 2 gmac run --mpi -- transpose_rate [EDGE]
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace {

constexpr int kRounds = 15;

struct Cube {
  int edge;
  int layers;  // of this process
  int size;
  std::size_t count() const {
    return static_cast<std::size_t>(layers) * static_cast<std::size_t>(edge) *
           static_cast<std::size_t>(edge);
  }
  int block() const { return layers * edge * layers; }  // elements for one process
};

// Rows of `layers` elements of the first cut, in the order of the processes they are for.
template <typename Move>
void eachRow(const Cube& cube, const Move& move) {
  for (int other = 0; other < cube.size; ++other) {
    for (int row = 0; row < cube.layers * cube.edge; ++row) {
      const auto packed = static_cast<std::size_t>(other) * static_cast<std::size_t>(cube.block()) +
                          static_cast<std::size_t>(row) * static_cast<std::size_t>(cube.layers);
      const auto strided = static_cast<std::size_t>(row) * static_cast<std::size_t>(cube.edge) +
                           static_cast<std::size_t>(other * cube.layers);
      move(packed, strided);
    }
  }
}

void byHand(const Cube& cube, double* first, double* third, double* packed) {
  const std::size_t bytes = sizeof(double) * static_cast<std::size_t>(cube.layers);
  eachRow(cube,
          [&](std::size_t to, std::size_t from) { std::memcpy(packed + to, first + from, bytes); });
  MPI_Alltoall(packed, cube.block(), MPI_DOUBLE, third, cube.block(), MPI_DOUBLE, MPI_COMM_WORLD);
  MPI_Alltoall(third, cube.block(), MPI_DOUBLE, packed, cube.block(), MPI_DOUBLE, MPI_COMM_WORLD);
  eachRow(cube,
          [&](std::size_t from, std::size_t to) { std::memcpy(first + to, packed + from, bytes); });
}

MPI_Datatype box(std::array<int, 3> sizes, std::array<int, 3> subsizes, std::array<int, 3> starts) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_subarray(3, sizes.data(), subsizes.data(), starts.data(), MPI_ORDER_C, MPI_DOUBLE,
                           &type);
  MPI_Type_commit(&type);
  return type;
}

struct Types {
  std::vector<int> ones;
  std::vector<int> zeros;
  std::vector<MPI_Datatype> rows;
  std::vector<MPI_Datatype> columns;

  explicit Types(const Cube& cube)
      : ones(static_cast<std::size_t>(cube.size), 1), zeros(ones.size(), 0) {
    for (int other = 0; other < cube.size; ++other) {
      const int start = other * cube.layers;
      rows.push_back(box({cube.layers, cube.edge, cube.edge}, {cube.layers, cube.edge, cube.layers},
                         {0, 0, start}));
      columns.push_back(box({cube.edge, cube.edge, cube.layers},
                            {cube.layers, cube.edge, cube.layers}, {start, 0, 0}));
    }
  }
  ~Types() {
    for (auto* const types : {&rows, &columns}) {
      for (MPI_Datatype& type : *types) MPI_Type_free(&type);
    }
  }
  Types(const Types&) = delete;
  Types& operator=(const Types&) = delete;
};

void byTypes(const Types& types, double* first, double* third) {
  const auto& [ones, zeros, rows, columns] = types;
  MPI_Alltoallw(first, ones.data(), zeros.data(), rows.data(), third, ones.data(), zeros.data(),
                columns.data(), MPI_COMM_WORLD);
  MPI_Alltoallw(third, ones.data(), zeros.data(), columns.data(), first, ones.data(), zeros.data(),
                rows.data(), MPI_COMM_WORLD);
}

// Seconds of the slowest process.
template <typename Call>
double timeOf(const Call& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  double own = took.count();
  double slowest = 0;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

void fill(double* values, const Cube& cube, int rank) {
  for (std::size_t i = 0; i < cube.count(); ++i) values[i] = static_cast<double>(i) + rank;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  Cube cube = {argc > 1 ? std::atoi(argv[1]) : 128, 0, 0};
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &cube.size);
  using Allocate = void* (*)(std::size_t);
  const auto allocate = reinterpret_cast<Allocate>(dlsym(RTLD_DEFAULT, "adsmAlloc"));
  if (allocate == nullptr || cube.edge <= 0 || cube.edge % cube.size != 0) {
    std::fprintf(stderr, "transpose_rate: mpirun -n 2 gmac run --mpi -- transpose_rate [EDGE]\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  cube.layers = cube.edge / cube.size;
  {
    const Types types(cube);
    const std::size_t bytes = sizeof(double) * cube.count();
    std::array<double*, 3> plain{};
    std::array<double*, 2> objects{};
    for (double*& memory : plain) memory = static_cast<double*>(std::malloc(bytes));
    for (double*& memory : objects) memory = static_cast<double*>(allocate(bytes));
    fill(plain[0], cube, rank);
    fill(objects[0], cube, rank);
    std::array<std::vector<double>, 3> seconds;
    for (int round = 0; round <= kRounds; ++round) {
      const std::array<double, 3> took = {
          timeOf([&] { byHand(cube, plain[0], plain[1], plain[2]); }),
          timeOf([&] { byTypes(types, plain[0], plain[1]); }),
          timeOf([&] { byTypes(types, objects[0], objects[1]); })};
      for (std::size_t i = 0; i < 3 && round > 0; ++i) seconds[i].push_back(took[i]);
    }
    if (std::memcmp(plain[0], objects[0], bytes) != 0 ||
        std::memcmp(plain[1], objects[1], bytes) != 0) {
      std::fprintf(stderr, "transpose_rate: the cubes differ\n");
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    const double hand = median(seconds[0]);
    const double own = median(seconds[1]);
    const double shared = median(seconds[2]);
    if (rank == 0) {
      const double moved = 2e-9 * static_cast<double>(bytes);
      std::printf(
          "%d^3 doubles, %d processes: by hand %6.2f GB/s; plain %6.2f, %5.2f times as long; "
          "objects %6.2f, %5.2f times as long\n",
          cube.edge, cube.size, moved / hand, moved / own, own / hand, moved / shared,
          shared / hand);
    }
  }
  MPI_Finalize();
}
