// SPDX-License-Identifier: Apache-2.0
//
// Nonblocking messages: the payload is in private memory until the request is completed.
#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/requests.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

using Ready = Staged::Ready;

// Isend, Issend, Irsend, Ibsend.
template <Layer layer, auto call, typename Count>
int send(const void* buffer, Count count, MPI_Datatype datatype, int destination, int tag,
         MPI_Comm communicator, MPI_Request* request) {
  const auto function = next<layer>().*call;
  if (!touches(buffer, count, datatype)) {
    return function(buffer, count, datatype, destination, tag, communicator, request);
  }
  requests::keepOrphans(false);
  const auto pending = std::make_shared<Pending>();
  const Ready ready = pending->staged.pack(buffer, count, datatype);
  if (ready == Ready::kLetMpiRefuse) {
    return function(buffer, count, datatype, destination, tag, communicator, request);
  }
  if (ready == Ready::kFailed) {
    return refuse(communicator, kName<call>, pending->staged.reason());
  }
  const int code = function(pending->staged.address(), count, pending->staged.datatype(),
                            destination, tag, communicator, request);
  // One handle may stand for all sends that were complete at once.
  int done = 0;
  if (code == MPI_SUCCESS &&
      (real().Request_get_status(*request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0)) {
    requests::add(*request, pending);
  }
  return code;
}

template <Layer layer, auto call, typename Count>
int receive(void* buffer, Count count, MPI_Datatype datatype, int source, int tag,
            MPI_Comm communicator, MPI_Request* request) {
  const auto function = next<layer>().*call;
  // (All receives from nobody may have one handle, too.)
  if (source == MPI_PROC_NULL || !touches(buffer, count, datatype)) {
    return function(buffer, count, datatype, source, tag, communicator, request);
  }
  requests::keepOrphans(false);
  const auto pending = std::make_shared<Pending>();
  pending->receives = true;
  const Ready ready = pending->staged.prepare(buffer, count, datatype);
  if (ready == Ready::kLetMpiRefuse) {
    return function(buffer, count, datatype, source, tag, communicator, request);
  }
  if (ready == Ready::kFailed) {
    return refuse(communicator, kName<call>, pending->staged.reason());
  }
  const int code = function(pending->staged.address(), count, pending->staged.datatype(), source,
                            tag, communicator, request);
  if (code == MPI_SUCCESS) {
    requests::add(*request, pending);
  }
  return code;
}

template <Layer layer, auto call, typename Count>
int matchedReceive(void* buffer, Count count, MPI_Datatype datatype, MPI_Message* message,
                   MPI_Request* request) {
  const auto function = next<layer>().*call;
  if (*message == MPI_MESSAGE_NO_PROC || !touches(buffer, count, datatype)) {
    return function(buffer, count, datatype, message, request);
  }
  const auto pending = std::make_shared<Pending>();
  pending->receives = true;
  const Ready ready = pending->staged.prepare(buffer, count, datatype);
  if (ready == Ready::kLetMpiRefuse) {
    return function(buffer, count, datatype, message, request);
  }
  if (ready == Ready::kFailed) {
    return refuse(MPI_COMM_SELF, kName<call>, pending->staged.reason());
  }
  const int code =
      function(pending->staged.address(), count, pending->staged.datatype(), message, request);
  if (code == MPI_SUCCESS) {
    requests::add(*request, pending);
  }
  return code;
}

}  // namespace

std::span<const Hook> nonblockingHooks() {
  static const Hook hooks[] = {
    GMAC_MPI_HOOK(Isend, send, &Calls::Isend, int),
    GMAC_MPI_HOOK(Issend, send, &Calls::Issend, int),
    GMAC_MPI_HOOK(Irsend, send, &Calls::Irsend, int),
    GMAC_MPI_HOOK(Ibsend, send, &Calls::Ibsend, int),
    GMAC_MPI_HOOK(Irecv, receive, &Calls::Irecv, int),
    GMAC_MPI_HOOK(Imrecv, matchedReceive, &Calls::Imrecv, int),
#if MPI_VERSION >= 4
    GMAC_MPI_HOOK(Isend_c, send, &Calls::Isend_c, MPI_Count),
    GMAC_MPI_HOOK(Issend_c, send, &Calls::Issend_c, MPI_Count),
    GMAC_MPI_HOOK(Irsend_c, send, &Calls::Irsend_c, MPI_Count),
    GMAC_MPI_HOOK(Ibsend_c, send, &Calls::Ibsend_c, MPI_Count),
    GMAC_MPI_HOOK(Irecv_c, receive, &Calls::Irecv_c, MPI_Count),
    GMAC_MPI_HOOK(Imrecv_c, matchedReceive, &Calls::Imrecv_c, MPI_Count),
#endif
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
