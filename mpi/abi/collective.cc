// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/collective.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

int deliver(const char* call, const PendingPtr& buffers, MPI_Comm communicator) {
  return buffers->deliver({}) ? MPI_SUCCESS : refuse(communicator, call, buffers->reason());
}

}  // namespace

int beginCollective(const char* call, const PendingPtr& buffers, const Form& form) {
  requests::keepOrphans(false);
  // (MPICH 4.0 copies a process's own block when it makes a persistent request.)
  return buffers->pack() ? MPI_SUCCESS : refuse(form.communicator, call, buffers->reason());
}

int endCollective(const char* call, const PendingPtr& buffers, const Form& form) {
  if (form.request == nullptr) {
    return deliver(call, buffers, form.communicator);
  }
  buffers->persistent = form.persistent;
  buffers->active = !form.persistent;
  // One handle may stand for all that were complete at once.
  int done = 0;
  if (!form.persistent &&
      real().Request_get_status(*form.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
      done != 0) {
    return deliver(call, buffers, form.communicator);
  }
  requests::add(*form.request, buffers);
  return MPI_SUCCESS;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
