// SPDX-License-Identifier: Apache-2.0
//
// The functions that stand in for MPI's, by name. Each file that has some has a table of them.
#ifndef GMAC_MPI_ABI_HOOKS_H_
#define GMAC_MPI_ABI_HOOKS_H_

#include <cstddef>
#include <new>
#include <span>
#include <string_view>

#include "mpi/abi/calls.h"
#include "mpi/abi/errors.h"
#include "mpi/slow_messages.h"

namespace gmac::mpi::GMAC_MPI_ABI {

struct Hook {
  std::string_view name;  // MPI_x, or a name of stub/fortran_names.inc
  void* functions[2];     // by Layer
};

// The name of a call, as a template argument.
template <std::size_t length>
struct CallName {
  char text[length];
  // NOLINTNEXTLINE(google-explicit-constructor): of a literal
  consteval CallName(const char (&literal)[length]) {
    for (std::size_t i = 0; i < length; ++i) text[i] = literal[i];
  }
};

// The same function for callers that know no exceptions.
template <auto function, CallName name>
struct Guarded;
template <typename... Arguments, int (*function)(Arguments...), CallName name>
struct Guarded<function, name> {
  static int call(Arguments... arguments) {
    const slow::Call named(name.text);
    try {
      return function(arguments...);
    } catch (const std::bad_alloc&) {
      return refuseForMemory(name.text);
    }
  }
};

// The hook for MPI_name: function<Layer, ...>, whose type must be that of MPI_name. What follows
// the layer in its template arguments comes last.
#define GMAC_MPI_HOOK(name, function, ...)                                                     \
  ::gmac::mpi::GMAC_MPI_ABI::Hook {                                                            \
    "MPI_" #name, {                                                                            \
      reinterpret_cast<void*>(&Guarded<static_cast<decltype(&::MPI_##name)>(                   \
                                           &function<Layer::kMpi __VA_OPT__(, ) __VA_ARGS__>), \
                                       "MPI_" #name>::call),                                   \
          reinterpret_cast<void*>(                                                             \
              &Guarded<static_cast<decltype(&::MPI_##name)>(                                   \
                           &function<Layer::kPmpi __VA_OPT__(, ) __VA_ARGS__>),                \
                       "MPI_" #name>::call)                                                    \
    }                                                                                          \
  }

// The hooks for MPI_name and, where the MPI has it, MPI_name_c: function<Layer, &Calls::name, ...>.
#if MPI_VERSION >= 4
#define GMAC_MPI_HOOKS(name, function, ...)                               \
  GMAC_MPI_HOOK(name, function, &Calls::name __VA_OPT__(, ) __VA_ARGS__), \
      GMAC_MPI_HOOK(name##_c, function, &Calls::name##_c __VA_OPT__(, ) __VA_ARGS__)
#else
#define GMAC_MPI_HOOKS(name, function, ...) \
  GMAC_MPI_HOOK(name, function, &Calls::name __VA_OPT__(, ) __VA_ARGS__)
#endif

std::span<const Hook> pointToPointHooks();
std::span<const Hook> nonblockingHooks();
std::span<const Hook> sendReceiveHooks();
std::span<const Hook> partitionedHooks();
std::span<const Hook> completionHooks();
std::span<const Hook> probeHooks();
std::span<const Hook> collectiveHooks();
std::span<const Hook> packingHooks();
std::span<const Hook> fileHooks();
std::span<const Hook> oneSidedHooks();
std::span<const Hook> synchronisationHooks();
std::span<const Hook> windowHooks();
std::span<const Hook> bufferHooks();
std::span<const Hook> typeHooks();
std::span<const Hook> setupHooks();

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_HOOKS_H_
