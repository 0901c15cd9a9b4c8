// SPDX-License-Identifier: Apache-2.0
//
// The functions of the MPI library that this folder is compiled against. The folder is compiled
// once for each MPI, in a namespace of its own (GMAC_MPI_ABI), and linked with none: every function
// and every variable of the library is looked up when the process first calls MPI.
#ifndef GMAC_MPI_ABI_CALLS_H_
#define GMAC_MPI_ABI_CALLS_H_

#include <mpi.h>

#include <atomic>
#include <cstddef>

#ifdef OPEN_MPI
// Open MPI's handles are addresses of the library's variables.
namespace gmac::mpi::GMAC_MPI_ABI {
struct Globals {
#define GMAC_MPI_GLOBAL(name) void* name;
#include "mpi/abi/openmpi_globals.inc"
#undef GMAC_MPI_GLOBAL
};
extern Globals globals;
}  // namespace gmac::mpi::GMAC_MPI_ABI
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global) \
  (static_cast<type>(::gmac::mpi::GMAC_MPI_ABI::globals.global))
#endif

#include "mpi/stub/abi.h"

#if MPI_VERSION < 4
namespace gmac::mpi::GMAC_MPI_ABI {
template <typename Blocking>
struct PersistentForm;
template <typename... Arguments>
struct PersistentForm<int(Arguments...)> {
  using Function = int(Arguments..., MPI_Info, MPI_Request*);
};
}  // namespace gmac::mpi::GMAC_MPI_ABI

// Open MPI 5 has these functions of MPI 4, and says that it is of version 3.1. Open MPI 4 has the
// collectives among them by names that begin with MPIX_.
extern "C" {
#define GMAC_MPI_COLLECTIVE(name, iname, function, pattern) \
  ::gmac::mpi::GMAC_MPI_ABI::PersistentForm<decltype(MPI_##name)>::Function MPI_##name##_init;
#include "mpi/abi/collective_calls.inc"
#undef GMAC_MPI_COLLECTIVE
int MPI_Isendrecv(const void* sent, int sentCount, MPI_Datatype sentType, int destination,
                  int sentTag, void* received, int receivedCount, MPI_Datatype receivedType,
                  int source, int receivedTag, MPI_Comm communicator, MPI_Request* request);
int MPI_Isendrecv_replace(void* buffer, int count, MPI_Datatype datatype, int destination,
                          int sentTag, int source, int receivedTag, MPI_Comm communicator,
                          MPI_Request* request);
int MPI_Parrived(MPI_Request request, int partition, int* flag);
int MPI_Pready(int partition, MPI_Request request);
int MPI_Pready_list(int length, const int partitions[], MPI_Request request);
int MPI_Pready_range(int low, int high, MPI_Request request);
int MPI_Precv_init(void* buffer, int partitions, MPI_Count count, MPI_Datatype datatype, int source,
                   int tag, MPI_Comm communicator, MPI_Info info, MPI_Request* request);
int MPI_Psend_init(const void* buffer, int partitions, MPI_Count count, MPI_Datatype datatype,
                   int destination, int tag, MPI_Comm communicator, MPI_Info info,
                   MPI_Request* request);
}
#endif

namespace gmac::mpi::GMAC_MPI_ABI {

struct Calls {
#define GMAC_MPI_CALL(name) decltype(&::MPI_##name) name;
#include "mpi/abi/used_calls.inc"
#undef GMAC_MPI_CALL
};

// The function's name in C.
template <auto call>
inline constexpr const char* kName = nullptr;
#define GMAC_MPI_CALL(name) \
  template <>               \
  inline constexpr const char* kName<&Calls::name> = "MPI_" #name;
#include "mpi/abi/used_calls.inc"
#undef GMAC_MPI_CALL

// MPIX_Query_cuda_support, which mpi.h need not declare, and MPICH's MPIX_GPU_query_support; NULL
// where the library has none.
extern int (*queryCudaSupport)();
extern int (*queryGpuSupport)(int kind, int* serves);

// Fortran's MPI_Win_get_attr: a logical, integers for handles, and values as long as an address.
using FortranGetAttribute = void(const MPI_Fint* window, const MPI_Fint* key, MPI_Aint* value,
                                 MPI_Fint* found, MPI_Fint* error);
// The numbers of its names.
enum class FortranName {
#define GMAC_MPI_FORTRAN(name) name,
#include "mpi/stub/fortran_names.inc"
#undef GMAC_MPI_FORTRAN
  kCount
};
// By Layer and FortranName; NULL where the process has no such function. And MPI_Win_f2c, which is
// a macro where handles are integers.
extern FortranGetAttribute* fortranGetAttribute[2][static_cast<std::size_t>(FortranName::kCount)];
MPI_Win windowOfFortran(MPI_Fint window);

// By which name the application has called. A call that is forwarded keeps it: a profiler that
// comes after this library stands in for MPI_x and calls PMPI_x.
enum class Layer { kMpi, kPmpi };

namespace internal {
extern Calls layers[2];  // by Layer
}  // namespace internal

template <Layer layer>
const Calls& next() {
  return internal::layers[static_cast<int>(layer)];
}

// For calls of our own: a profiler does not see them.
inline const Calls& real() { return next<Layer::kPmpi>(); }

namespace internal {
extern std::atomic<bool> concurrent;
}  // namespace internal

// Whether several threads may call MPI at the same time: until MPI has said that they may not.
inline bool concurrentCalls() { return internal::concurrent.load(std::memory_order_relaxed); }
// After MPI_Init, before other threads call MPI.
void findConcurrency();

// Looks all of it up.
void openCalls(Find next, Find variable);

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_CALLS_H_
