// SPDX-License-Identifier: Apache-2.0
//
// The functions of the MPI library that this folder is compiled against. The folder is compiled
// once for each MPI, in a namespace of its own (GMAC_MPI_ABI), and linked with none: every function
// and every variable of the library is looked up when the process first calls MPI.
#ifndef GMAC_MPI_ABI_CALLS_H_
#define GMAC_MPI_ABI_CALLS_H_

#include <mpi.h>

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

namespace gmac::mpi::GMAC_MPI_ABI {

// In all of them.
#define GMAC_MPI_CALLS_3(X)                                                                       \
  X(Bsend)                                                                                        \
  X(Comm_call_errhandler)                                                                         \
  X(Comm_create)                                                                                  \
  X(Comm_free)                                                                                    \
  X(Comm_group)                                                                                   \
  X(Comm_set_errhandler)                                                                          \
  X(Comm_size)                                                                                    \
  X(Allgather)                                                                                    \
  X(Allreduce)                                                                                    \
  X(Alltoall) X(Bcast) X(Exscan) X(Gather) X(Reduce) X(Scan) X(Scatter) X(Comm_rank)              \
      X(Comm_remote_size) X(Comm_test_inter) X(Add_error_class) X(Add_error_code)                 \
          X(Add_error_string) X(Error_string) X(Finalize) X(Get_elements_x) X(Group_free) X(Init) \
              X(Init_thread) X(Mrecv) X(Pack) X(Recv) X(Rsend) X(Send) X(Sendrecv)                \
                  X(Sendrecv_replace) X(Ssend) X(Ibsend) X(Imrecv) X(Irecv) X(Irsend) X(Isend)    \
                      X(Issend) X(Request_free) X(Request_get_status) X(Test) X(Test_cancelled)   \
                          X(Testall) X(Testany) X(Testsome) X(Wait) X(Waitall) X(Waitany)         \
                              X(Waitsome) X(Type_commit) X(Type_contiguous) X(Type_create_keyval) \
                                  X(Type_dup) X(Type_free) X(Type_free_keyval)                    \
                                      X(Type_get_contents) X(Type_get_envelope)                   \
                                          X(Type_get_extent_x) X(Type_get_true_extent_x)          \
                                              X(Type_set_attr) X(Type_size_x) X(Unpack)

#if MPI_VERSION >= 4
#define GMAC_MPI_CALLS_4(X)                                                                 \
  X(Ibsend_c)                                                                               \
  X(Imrecv_c)                                                                               \
  X(Irecv_c)                                                                                \
  X(Irsend_c)                                                                               \
  X(Isend_c) X(Issend_c) X(Bsend_c) X(Mrecv_c) X(Recv_c) X(Rsend_c) X(Send_c) X(Sendrecv_c) \
      X(Sendrecv_replace_c) X(Ssend_c) X(Type_get_contents_c) X(Type_get_envelope_c)
#else
#define GMAC_MPI_CALLS_4(X)
#endif

// Not served yet.
#define GMAC_MPI_COLLECTIVES(X)                                                                \
                                                                                               \
  X(Allgatherv)                                                                                \
                                                                                               \
  X(Alltoallv)                                                                                 \
  X(Alltoallw)                                                                                 \
  X(Gatherv) X(Neighbor_allgather) X(Neighbor_allgatherv) X(Neighbor_alltoall)                 \
      X(Neighbor_alltoallv) X(Neighbor_alltoallw) X(Reduce_scatter) X(Reduce_scatter_block)    \
          X(Scatterv) X(Iallgather) X(Iallgatherv) X(Iallreduce) X(Ialltoall) X(Ialltoallv)    \
              X(Ialltoallw) X(Ibcast) X(Iexscan) X(Igather) X(Igatherv) X(Ineighbor_allgather) \
                  X(Ineighbor_allgatherv) X(Ineighbor_alltoall) X(Ineighbor_alltoallv)         \
                      X(Ineighbor_alltoallw) X(Ireduce) X(Ireduce_scatter)                     \
                          X(Ireduce_scatter_block) X(Iscan) X(Iscatter) X(Iscatterv)
#define GMAC_MPI_OTHERS_REFUSED(X)                                                                 \
  X(Send_init)                                                                                     \
  X(Ssend_init)                                                                                    \
  X(Rsend_init)                                                                                    \
  X(Bsend_init)                                                                                    \
  X(Recv_init)                                                                                     \
  X(Accumulate) X(Compare_and_swap) X(Fetch_and_op) X(Get) X(Get_accumulate) X(Put) X(Raccumulate) \
      X(Rget) X(Rget_accumulate) X(Rput) X(Win_attach) X(Win_create) X(Buffer_attach)
#if MPI_VERSION >= 4
#define GMAC_MPI_REFUSED_4(X)                                                                     \
  X(Allgather_c)                                                                                  \
  X(Allgatherv_c)                                                                                 \
  X(Allreduce_c) X(Alltoall_c) X(Alltoallv_c) X(Alltoallw_c) X(Bcast_c) X(Exscan_c) X(Gather_c)   \
      X(Gatherv_c) X(Neighbor_allgather_c) X(Neighbor_allgatherv_c) X(Neighbor_alltoall_c)        \
          X(Neighbor_alltoallv_c) X(Neighbor_alltoallw_c) X(Reduce_c) X(Reduce_scatter_c)         \
              X(Reduce_scatter_block_c) X(Scan_c) X(Scatter_c) X(Scatterv_c) X(Iallgather_c) X(   \
                  Iallgatherv_c) X(Iallreduce_c) X(Ialltoall_c) X(Ialltoallv_c) X(Ialltoallw_c)   \
                  X(Ibcast_c) X(Iexscan_c) X(Igather_c) X(Igatherv_c) X(Ineighbor_allgather_c) X( \
                      Ineighbor_allgatherv_c) X(Ineighbor_alltoall_c) X(Ineighbor_alltoallv_c)    \
                      X(Ineighbor_alltoallw_c) X(Ireduce_c) X(Ireduce_scatter_c) X(               \
                          Ireduce_scatter_block_c) X(Iscan_c) X(Iscatter_c) X(Iscatterv_c)        \
                          X(Allgather_init) X(Allgatherv_init) X(Allreduce_init) X(Alltoall_init) \
                              X(Alltoallv_init) X(Alltoallw_init) X(Bcast_init) X(Exscan_init)    \
                                  X(Gather_init) X(Gatherv_init) X(Neighbor_allgather_init)       \
                                      X(Neighbor_allgatherv_init) X(Neighbor_alltoall_init)       \
                                          X(Neighbor_alltoallv_init) X(Neighbor_alltoallw_init)   \
                                              X(Reduce_init) X(Reduce_scatter_init)               \
                                                  X(Reduce_scatter_block_init) X(Scan_init)       \
                                                      X(Scatter_init) X(Scatterv_init)            \
                                                          X(Isendrecv) X(Isendrecv_replace)       \
                                                              X(Psend_init) X(Precv_init)
#else
#define GMAC_MPI_REFUSED_4(X)
#endif
#define GMAC_MPI_REFUSED(X) GMAC_MPI_COLLECTIVES(X) GMAC_MPI_OTHERS_REFUSED(X) GMAC_MPI_REFUSED_4(X)

#define GMAC_MPI_CALLS(X) GMAC_MPI_CALLS_3(X) GMAC_MPI_CALLS_4(X) GMAC_MPI_REFUSED(X)

struct Calls {
#define GMAC_MPI_CALL(name) decltype(&::MPI_##name) name;
  GMAC_MPI_CALLS(GMAC_MPI_CALL)
#undef GMAC_MPI_CALL
};

// The function's name in C.
template <auto call>
inline constexpr const char* kName = nullptr;
#define GMAC_MPI_CALL(name) \
  template <>               \
  inline constexpr const char* kName<&Calls::name> = "MPI_" #name;
GMAC_MPI_CALLS(GMAC_MPI_CALL)
#undef GMAC_MPI_CALL

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

// Looks all of it up.
void openCalls(Find next, Find variable);

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_CALLS_H_
