// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/calls.h"

namespace gmac::mpi::GMAC_MPI_ABI {

#ifdef OPEN_MPI
Globals globals;
#endif
Calls internal::layers[2];
constinit std::atomic<bool> internal::concurrent{true};
int (*queryCudaSupport)() = nullptr;
int (*queryGpuSupport)(int kind, int* serves) = nullptr;
FortranGetAttribute* fortranGetAttribute[2][static_cast<std::size_t>(FortranName::kCount)] = {};

namespace {

template <typename Function>
void look(Find find, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(find(name));
}

// The first of the two names that the library has.
template <typename Function>
void look(Find find, const char* name, const char* otherName, Function* function) {
  look(find, name, function);
  if (*function == nullptr) look(find, otherName, function);
}

}  // namespace

#ifdef OPEN_MPI
namespace {
decltype(&::MPI_Win_f2c) winFromFortran = nullptr;
}  // namespace
MPI_Win windowOfFortran(MPI_Fint window) { return winFromFortran(window); }
#else
MPI_Win windowOfFortran(MPI_Fint window) { return window; }
#endif

void findConcurrency() {
  int level = MPI_THREAD_MULTIPLE;
  internal::concurrent = real().Query_thread(&level) != MPI_SUCCESS || level == MPI_THREAD_MULTIPLE;
}

void openCalls(Find next, [[maybe_unused]] Find variable) {
#ifdef OPEN_MPI
#define GMAC_MPI_GLOBAL(name) globals.name = variable(#name);
#include "mpi/abi/openmpi_globals.inc"
#undef GMAC_MPI_GLOBAL
#endif
  look(next, "MPIX_Query_cuda_support", &queryCudaSupport);
  look(next, "MPIX_GPU_query_support", &queryGpuSupport);
#ifdef OPEN_MPI
  look(next, "MPI_Win_f2c", &winFromFortran);
#endif
#define GMAC_MPI_FORTRAN(name)                                                             \
  look(next, #name, &fortranGetAttribute[0][static_cast<std::size_t>(FortranName::name)]); \
  look(next, "p" #name, &fortranGetAttribute[1][static_cast<std::size_t>(FortranName::name)]);
#include "mpi/stub/fortran_names.inc"
#undef GMAC_MPI_FORTRAN
  Calls& mpi = internal::layers[static_cast<int>(Layer::kMpi)];
  Calls& pmpi = internal::layers[static_cast<int>(Layer::kPmpi)];
  // (Open MPI 4 has the persistent collectives as extensions.)
#define GMAC_MPI_CALL(name)                           \
  look(next, "MPI_" #name, "MPIX_" #name, &mpi.name); \
  look(next, "PMPI_" #name, "PMPIX_" #name, &pmpi.name);
#include "mpi/abi/used_calls.inc"
#undef GMAC_MPI_CALL
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
