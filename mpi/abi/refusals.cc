// SPDX-License-Identifier: Apache-2.0
//
// Calls that are not served yet: with a shared object as a buffer they fail, instead of leaving
// protected pages to other processes.
#include <type_traits>

#include "gmac/coherence/shared_memory.h"
#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

template <typename Argument>
bool isShared(Argument argument) {
  if constexpr (std::is_same_v<Argument, void*> || std::is_same_v<Argument, const void*>) {
    return argument != MPI_IN_PLACE && gmacTouchesShared(argument, 1) != 0;
  } else {
    return false;
  }
}

template <Layer layer, auto call, typename Function>
struct Refusal;
template <Layer layer, auto call, typename... Arguments>
struct Refusal<layer, call, int (*)(Arguments...)> {
  static int run(Arguments... arguments) {
    if (gmacAnythingShared() != 0 && (isShared<Arguments>(arguments) || ...)) {
      return refuse(MPI_COMM_WORLD, kName<call>,
                    "a buffer is a shared object, which this call does not take yet");
    }
    return (next<layer>().*call)(arguments...);
  }
};

}  // namespace

std::span<const Hook> refusalHooks() {
  static const Hook hooks[] = {
#define GMAC_MPI_CALL(name)                                                                     \
  {"MPI_" #name,                                                                                \
   {reinterpret_cast<void*>(&Refusal<Layer::kMpi, &Calls::name, decltype(&::MPI_##name)>::run), \
    reinterpret_cast<void*>(&Refusal<Layer::kPmpi, &Calls::name, decltype(&::MPI_##name)>::run)}},

#include "mpi/abi/refused_calls.inc"

#undef GMAC_MPI_CALL
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
