// SPDX-License-Identifier: Apache-2.0
//
// MPI_Init, MPI_Init_thread, MPI_Finalize.
#include "mpi/abi/hooks.h"
#include "mpi/abi/requests.h"
#include "mpi/abi/types.h"
#include "mpi/stub/launch.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

void opened() {
  int size = 0;
  if (real().Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS) {
    noteInit(size);
  }
  // (MPI_Init of one layer may call the other's.)
  if (ownCommunicator() == MPI_COMM_NULL) {
    openTypes();
  }
}

template <Layer layer>
int initialise(int* argc, char*** argv) {
  const int code = next<layer>().Init(argc, argv);
  if (code == MPI_SUCCESS) {
    opened();
  }
  return code;
}

template <Layer layer>
int initialiseThread(int* argc, char*** argv, int required, int* provided) {
  const int code = next<layer>().Init_thread(argc, argv, required, provided);
  if (code == MPI_SUCCESS) {
    opened();
  }
  return code;
}

template <Layer layer>
int finalize() {
  requests::keepOrphans(true);
  closeTypes();
  return next<layer>().Finalize();
}

}  // namespace

std::span<const Hook> setupHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOK(Init, initialise),
      GMAC_MPI_HOOK(Init_thread, initialiseThread),
      GMAC_MPI_HOOK(Finalize, finalize),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
