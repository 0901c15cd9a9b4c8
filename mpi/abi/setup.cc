// SPDX-License-Identifier: Apache-2.0
//
// MPI_Init, MPI_Init_thread, MPI_Finalize, and what the library can do.
#include "gmac/session/device_memory.h"
#include "mpi/abi/fragments.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/peers.h"
#include "mpi/abi/requests.h"
#include "mpi/abi/types.h"
#include "mpi/stub/launch.h"
#include "mpi/tickets.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

void opened() {
  int size = 0;
  int rank = 0;
  if (real().Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS) {
    noteInit(size);
  }
  // (MPI_Init of one layer may call the other's.)
  if (ownCommunicator() == MPI_COMM_NULL) {
    findConcurrency();
    openTypes();
    if (ownCommunicator() != MPI_COMM_NULL &&
        real().Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS) {
      tickets::open(rank, size);
      fragments::open(size);
    }
  }
}

template <Layer layer>
int initialise(int* argc, char*** argv) {
  tickets::prepare();
  fragments::prepare();
  const int code = next<layer>().Init(argc, argv);
  if (code == MPI_SUCCESS) {
    opened();
  }
  return code;
}

template <Layer layer>
int initialiseThread(int* argc, char*** argv, int required, int* provided) {
  tickets::prepare();
  fragments::prepare();
  const int code = next<layer>().Init_thread(argc, argv, required, provided);
  if (code == MPI_SUCCESS) {
    opened();
  }
  return code;
}

template <Layer layer>
int finalize() {
  if (ownCommunicator() != MPI_COMM_NULL) {
    requests::keepOrphans(true);
    Peers::close();
    fragments::close();
    tickets::close();
    closeTypes();
  }
  return next<layer>().Finalize();
}

// With this library MPI takes memory of CUDA's. (MPIX_CUDA_AWARE_SUPPORT, a macro, stays as it is.)
int servesCuda() {
  const auto other = queryCudaSupport;
  return gmacServesDeviceMemory() != 0 || (other != nullptr && other() != 0) ? 1 : 0;
}

}  // namespace

std::span<const Hook> setupHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOK(Init, initialise),
      GMAC_MPI_HOOK(Init_thread, initialiseThread),
      GMAC_MPI_HOOK(Finalize, finalize),
      // No layer asks the other.
      {"MPIX_Query_cuda_support",
       {reinterpret_cast<void*>(&servesCuda), reinterpret_cast<void*>(&servesCuda)}},
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
