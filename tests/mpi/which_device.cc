// SPDX-License-Identifier: Apache-2.0
//
//   which_device [DEVICES [CHOSEN]]
//
// On a driver that shows so many devices, or as many as there are: says on which one each rank
// works, and its objects lie, when it chooses none, or that one.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/mpi/shared.h"

using namespace gmac::testing;

int main(int argc, char** argv) {
  loadDriver();
  if (argc > 1) showDevices(std::atoi(argv[1]));
  MPI_Init(&argc, &argv);
  if (argc > 2) chooseDevice(std::atoi(argv[2]));
  initialiseCuda();
  // The first device is everybody's without a context.
  const int current = currentDevice();
  const Memory object(Memory::Kind::kShared, 4096);
  int own = deviceOf(object.data());
  if (own != (current < 0 ? 0 : current)) own = -1;
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> devices(static_cast<std::size_t>(size));
  MPI_Gather(&own, 1, MPI_INT, devices.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  for (int i = 0; rank == 0 && i < size; ++i) {
    std::printf("rank %d: %d\n", i, devices[static_cast<std::size_t>(i)]);
  }
  MPI_Finalize();
}
