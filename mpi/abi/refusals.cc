// SPDX-License-Identifier: Apache-2.0
//
// Calls that are not served yet: with a shared object or memory of a device as a buffer they fail,
// instead of leaving it to other processes, or to an MPI that does not reach it.
#include <type_traits>
#include <vector>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// Why a call does not take an argument; NULL: it does.
template <typename Argument>
const char* objection(Argument argument) {
  if constexpr (std::is_same_v<Argument, void*> || std::is_same_v<Argument, const void*>) {
    return objectionTo(argument);
  }
  return nullptr;
}

template <Layer layer, auto call, typename Function>
struct Refusal;
template <Layer layer, auto call, typename... Arguments>
struct Refusal<layer, call, int (*)(Arguments...)> {
  static int run(Arguments... arguments) {
    if (mayNeedStaging()) {
      const char* reason = nullptr;
      (void)(((reason = objection<Arguments>(arguments)) != nullptr) || ...);
      if (reason != nullptr) {
        return refuse(MPI_COMM_WORLD, kName<call>, reason);
      }
    }
    return (next<layer>().*call)(arguments...);
  }
};

}  // namespace

std::span<const Hook> refusalHooks() {
  static const std::vector<Hook> hooks = {
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
