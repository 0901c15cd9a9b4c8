// SPDX-License-Identifier: Apache-2.0
//
// Windows come and go, and say what they are. One over shared objects or memory of a device is
// MPI's over a public copy (separate_window.h). What MPI allocates itself is plain.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/memory.h"
#include "mpi/abi/one_sided.h"
#include "mpi/abi/separate_window.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

bool isStaged(const void* memory, MPI_Aint bytes) {
  return bytes > 0 && memory != MPI_BOTTOM && needsStaging(memory, bytes, MPI_BYTE);
}

template <Layer layer, auto call, typename Unit>
int create(void* memory, MPI_Aint bytes, Unit unit, MPI_Info info, MPI_Comm communicator,
           MPI_Win* window) {
  const auto function = next<layer>().*call;
  int rank = 0;
  if (!isStaged(memory, bytes) || real().Comm_rank(communicator, &rank) != MPI_SUCCESS) {
    return function(memory, bytes, unit, info, communicator, window);
  }
  std::string reason;
  SeparateWindowPtr separate =
      SeparateWindow::make(memory, static_cast<std::size_t>(bytes), unit, rank, &reason);
  if (separate == nullptr) {
    return refuse(communicator, kName<call>, reason);
  }
  const int code = function(separate->publicBase(), bytes, unit, info, communicator, window);
  if (code == MPI_SUCCESS) {
    separate_windows::add(*window, std::move(separate));
  }
  return code;
}

// Other processes name what is attached by its address, which is the application's.
template <Layer layer>
int attach(MPI_Win window, void* memory, MPI_Aint bytes) {
  return isStaged(memory, bytes)
             ? refuseAtWindow(window, "MPI_Win_attach",
                              "the memory is a shared object's or a device's, which other "
                              "processes cannot reach by its address: make a window of it with "
                              "MPI_Win_create, or attach plain memory")
             : next<layer>().Win_attach(window, memory, bytes);
}

// When MPI has the window freed, all operations on it are complete, and its handle may stand for
// another one.
template <Layer layer>
int freeWindow(MPI_Win* window) {
  SeparateWindowPtr separate = separate_windows::take(*window);
  if (separate == nullptr && !operations::any()) {
    return next<layer>().Win_free(window);
  }
  const MPI_Win freed = *window;
  const std::vector<OperationPtr> begun = operations::of(freed, std::nullopt);
  const int code = next<layer>().Win_free(window);
  if (code != MPI_SUCCESS) {
    if (separate != nullptr) {
      separate_windows::add(freed, std::move(separate));
    }
    return code;
  }
  std::string reason;
  for (const OperationPtr& operation : begun) {
    if (!operation->finish() && reason.empty()) {
      reason = operation->reason();
    }
    operations::remove(operation);
  }
  // Memory that was freed before its window gets nothing more.
  std::string other;
  if (separate != nullptr && separate->lives() && !separate->collect(&other) && reason.empty()) {
    reason = other;
  }
  return reason.empty() ? MPI_SUCCESS : refuse(MPI_COMM_WORLD, "MPI_Win_free", reason);
}

// Answers with the application's own memory, not with the public copy.
template <Layer layer>
int getAttribute(MPI_Win window, int key, void* value, int* found) {
  const int code = next<layer>().Win_get_attr(window, key, value, found);
  const SeparateWindowPtr separate = separate_windows::find(window);
  if (code == MPI_SUCCESS && separate != nullptr && *found != 0) {
    if (key == MPI_WIN_BASE) {
      *static_cast<void**>(value) = separate->base();
    } else if (key == MPI_WIN_MODEL) {
      static int model = MPI_WIN_SEPARATE;
      *static_cast<int**>(value) = &model;
    }
  }
  return code;
}

// The same of Fortran's. (MPICH's keys are there one more than C's.)
template <Layer layer, FortranName name>
void getAttributeOfFortran(const MPI_Fint* handle, const MPI_Fint* key, MPI_Aint* value,
                           MPI_Fint* found, MPI_Fint* error) {
  fortranGetAttribute[static_cast<std::size_t>(layer)][static_cast<std::size_t>(name)](
      handle, key, value, found, error);
#ifdef OPEN_MPI
  constexpr int kLater = 0;
#else
  constexpr int kLater = 1;
#endif
  if ((*key != MPI_WIN_BASE + kLater && *key != MPI_WIN_MODEL + kLater) ||
      (error != nullptr && *error != MPI_SUCCESS) || *found == 0) {
    return;
  }
  if (const SeparateWindowPtr separate = separate_windows::find(windowOfFortran(*handle))) {
    *value = *key == MPI_WIN_BASE + kLater ? reinterpret_cast<MPI_Aint>(separate->base())
                                           : MPI_Aint{MPI_WIN_SEPARATE};
  }
}

}  // namespace

std::span<const Hook> windowHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOKS(Win_create, create),
      GMAC_MPI_HOOK(Win_attach, attach),
      GMAC_MPI_HOOK(Win_free, freeWindow),
      GMAC_MPI_HOOK(Win_get_attr, getAttribute),
#define GMAC_MPI_FORTRAN(name)                                                       \
  {#name,                                                                            \
   {reinterpret_cast<void*>(&getAttributeOfFortran<Layer::kMpi, FortranName::name>), \
    reinterpret_cast<void*>(&getAttributeOfFortran<Layer::kPmpi, FortranName::name>)}},
#include "mpi/stub/fortran_names.inc"
#undef GMAC_MPI_FORTRAN
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
