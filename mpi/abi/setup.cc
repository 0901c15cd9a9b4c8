// SPDX-License-Identifier: Apache-2.0
//
// MPI_Init, MPI_Init_thread, MPI_Finalize, sessions, and what the library can do.
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

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

bool isOpen = false;  // between MPI_Init and MPI_Finalize

void opened() {
  int size = 0;
  int rank = 0;
  if (real().Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS) {
    noteInit(size);
  }
  // (MPI_Init of one layer may call the other's.)
  if (!std::exchange(isOpen, true)) {
    findConcurrency();
    if (ownCommunicator() == MPI_COMM_NULL) openTypes();
    if (ownCommunicator() != MPI_COMM_NULL &&
        real().Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS) {
      tickets::open(rank, size);
      fragments::open(size);
    }
  }
}

#if MPI_VERSION >= 4
// The application's sessions: it may use MPI by them before MPI_Init, without it, and after
// MPI_Finalize.
struct Sessions {
  std::mutex lock;  // guards what follows
  std::vector<MPI_Session> all;
  bool isNeeded = false;  // one of them has ownCommunicator()
  MPI_Session needed = MPI_SESSION_NULL;
};
Sessions& sessions() {
  static auto* const sessions = new Sessions;  // also for exit handlers
  return *sessions;
}

// Whoever uses MPI still has ownCommunicator() from then on.
void useWhatIsLeft() {
  Sessions& open = sessions();
  MPI_Session session = MPI_SESSION_NULL;
  {
    const std::lock_guard guard(open.lock);
    open.isNeeded = !isOpen && !open.all.empty();
    open.needed = session = open.isNeeded ? open.all.back() : MPI_SESSION_NULL;
  }
  if (isOpen) {
    openTypes();
  } else if (session != MPI_SESSION_NULL) {
    openTypes(session);
  }
}

template <Layer layer>
int initialiseSession(MPI_Info info, MPI_Errhandler handler, MPI_Session* session) {
  const int code = next<layer>().Session_init(info, handler, session);
  if (code != MPI_SUCCESS) {
    return code;
  }
  Sessions& open = sessions();
  bool isFirst = false;
  {
    const std::lock_guard guard(open.lock);
    // (Of one layer it may call the other's.)
    if (std::find(open.all.begin(), open.all.end(), *session) == open.all.end()) {
      open.all.push_back(*session);
    }
    isFirst = !open.isNeeded && ownCommunicator() == MPI_COMM_NULL;
    if (isFirst) {
      open.isNeeded = true;
      open.needed = *session;
    }
  }
  if (isFirst) {
    openTypes(*session);
  }
  return code;
}

template <Layer layer>
int finalizeSession(MPI_Session* session) {
  Sessions& open = sessions();
  bool wasNeeded = false;
  {
    const std::lock_guard guard(open.lock);
    const auto found = std::find(open.all.begin(), open.all.end(), *session);
    if (found != open.all.end()) open.all.erase(found);
    wasNeeded = open.isNeeded && open.needed == *session;
  }
  if (wasNeeded) {
    requests::keepOrphans(true);
    closeTypes();
    useWhatIsLeft();
  }
  return next<layer>().Session_finalize(session);
}
#endif

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
  if (isOpen && ownCommunicator() != MPI_COMM_NULL) {
    requests::keepOrphans(true);
    Peers::close();
    fragments::close();
    tickets::close();
    closeTypes();
    isOpen = false;
#if MPI_VERSION >= 4
    useWhatIsLeft();
#endif
  }
  return next<layer>().Finalize();
}

// With this library MPI takes memory of CUDA's. (MPIX_CUDA_AWARE_SUPPORT, a macro, stays as it is.)
int servesCuda() {
  const auto other = queryCudaSupport;
  return gmacServesDeviceMemory() != 0 || (other != nullptr && other() != 0) ? 1 : 0;
}

#ifdef MPIX_GPU_SUPPORT_CUDA
int servesGpu(int kind, int* serves) {
  if (kind == MPIX_GPU_SUPPORT_CUDA && gmacServesDeviceMemory() != 0) {
    *serves = 1;
    return MPI_SUCCESS;
  }
  return queryGpuSupport(kind, serves);
}
#endif

}  // namespace

std::span<const Hook> setupHooks() {
  static const Hook hooks[] = {
    GMAC_MPI_HOOK(Init, initialise),
    GMAC_MPI_HOOK(Init_thread, initialiseThread),
    GMAC_MPI_HOOK(Finalize, finalize),
    // No layer asks the other.
    {"MPIX_Query_cuda_support",
     {reinterpret_cast<void*>(&servesCuda), reinterpret_cast<void*>(&servesCuda)}},
#ifdef MPIX_GPU_SUPPORT_CUDA
    {"MPIX_GPU_query_support",
     {reinterpret_cast<void*>(&servesGpu), reinterpret_cast<void*>(&servesGpu)}},
#endif
#if MPI_VERSION >= 4
    GMAC_MPI_HOOK(Session_init, initialiseSession),
    GMAC_MPI_HOOK(Session_finalize, finalizeSession),
#endif
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
