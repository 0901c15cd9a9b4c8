// SPDX-License-Identifier: Apache-2.0
//
// Windows are made over memory that other processes write without a call of this process, so
// neither shared objects, which are followed where there is a call, nor memory of devices can be
// one. What MPI allocates itself is plain.
#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// Why memory cannot be a window; NULL: it can.
const char* objection(const void* memory, MPI_Count bytes) {
  if (!mayNeedStaging() || memory == MPI_BOTTOM || bytes <= 0) {
    return nullptr;
  }
  if (gmacTouchesShared(memory, static_cast<std::size_t>(bytes)) != 0) {
    return "the window would be over a shared object, which other processes cannot write at any "
           "time: make it of MPI_Win_allocate's memory, or of plain memory";
  }
  if (gmacIsDeviceMemory(memory) != 0 || gmacIsDeviceMemory(shifted(memory, bytes - 1)) != 0) {
    return "the window would be over memory of a device, which this MPI does not reach: make it of "
           "MPI_Win_allocate's memory, or of plain memory";
  }
  return nullptr;
}

template <Layer layer, auto call, typename Unit>
int create(void* memory, MPI_Aint bytes, Unit unit, MPI_Info info, MPI_Comm communicator,
           MPI_Win* window) {
  const char* const reason = objection(memory, bytes);
  return reason != nullptr ? refuse(communicator, kName<call>, reason)
                           : (next<layer>().*call)(memory, bytes, unit, info, communicator, window);
}

template <Layer layer>
int attach(MPI_Win window, void* memory, MPI_Aint bytes) {
  const char* const reason = objection(memory, bytes);
  return reason != nullptr ? refuseAtWindow(window, "MPI_Win_attach", reason)
                           : next<layer>().Win_attach(window, memory, bytes);
}

}  // namespace

std::span<const Hook> windowHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOKS(Win_create, create),
      GMAC_MPI_HOOK(Win_attach, attach),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
