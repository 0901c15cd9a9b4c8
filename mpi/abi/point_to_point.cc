// SPDX-License-Identifier: Apache-2.0
//
// Blocking messages. A side of a call that is shared goes through private memory; what is not goes
// to MPI as it is.
#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/side.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// The status that MPI fills in: what was received is needed also by those who do not ask.
class Received {
 public:
  explicit Received(MPI_Status* status) : status_(status != MPI_STATUS_IGNORE ? status : &own_) {}
  MPI_Status* get() const { return status_; }

 private:
  MPI_Status own_;
  MPI_Status* status_;
};

// Send, Ssend, Rsend, Bsend. MPI_Bsend has copied the payload when it returns.
template <Layer layer, auto call, typename Count>
int send(const void* buffer, Count count, MPI_Datatype datatype, int destination, int tag,
         MPI_Comm communicator) {
  const auto function = next<layer>().*call;
  if (!needsStaging(buffer, count, datatype)) {
    return function(buffer, count, datatype, destination, tag, communicator);
  }
  const Side out(buffer, count, datatype, true);
  if (out.failed()) {
    return refuse(communicator, kName<call>, out.reason());
  }
  return function(out.address(), count, out.datatype(), destination, tag, communicator);
}

template <Layer layer, auto call, typename Count>
int receive(void* buffer, Count count, MPI_Datatype datatype, int source, int tag,
            MPI_Comm communicator, MPI_Status* status) {
  const auto function = next<layer>().*call;
  if (!needsStaging(buffer, count, datatype)) {
    return function(buffer, count, datatype, source, tag, communicator, status);
  }
  Side in(buffer, count, datatype, false);
  if (in.failed()) {
    return refuse(communicator, kName<call>, in.reason());
  }
  const Received received(status);
  const int code =
      function(in.address(), count, in.datatype(), source, tag, communicator, received.get());
  return code != MPI_SUCCESS ? code : in.deliver(*received.get(), communicator, kName<call>);
}

// The message knows its communicator; an error of ours goes to this process's handler.
template <Layer layer, auto call, typename Count>
int matchedReceive(void* buffer, Count count, MPI_Datatype datatype, MPI_Message* message,
                   MPI_Status* status) {
  const auto function = next<layer>().*call;
  if (!needsStaging(buffer, count, datatype)) {
    return function(buffer, count, datatype, message, status);
  }
  Side in(buffer, count, datatype, false);
  if (in.failed()) {
    return refuse(MPI_COMM_SELF, kName<call>, in.reason());
  }
  const Received received(status);
  const int code = function(in.address(), count, in.datatype(), message, received.get());
  return code != MPI_SUCCESS ? code : in.deliver(*received.get(), MPI_COMM_SELF, kName<call>);
}

template <Layer layer, auto call, typename Count>
int sendReceive(const void* sent, Count sentCount, MPI_Datatype sentType, int destination,
                int sentTag, void* received, Count receivedCount, MPI_Datatype receivedType,
                int source, int receivedTag, MPI_Comm communicator, MPI_Status* status) {
  const auto function = next<layer>().*call;
  if (!needsStaging(sent, sentCount, sentType) &&
      !needsStaging(received, receivedCount, receivedType)) {
    return function(sent, sentCount, sentType, destination, sentTag, received, receivedCount,
                    receivedType, source, receivedTag, communicator, status);
  }
  const Side out(sent, sentCount, sentType, true);
  Side in(received, receivedCount, receivedType, false);
  if (out.failed() || in.failed()) {
    return refuse(communicator, kName<call>, out.failed() ? out.reason() : in.reason());
  }
  const Received result(status);
  const int code =
      function(out.address(), sentCount, out.datatype(), destination, sentTag, in.address(),
               receivedCount, in.datatype(), source, receivedTag, communicator, result.get());
  return code != MPI_SUCCESS ? code : in.deliver(*result.get(), communicator, kName<call>);
}

template <Layer layer, auto call, typename Count>
int sendReceiveReplace(void* buffer, Count count, MPI_Datatype datatype, int destination,
                       int sentTag, int source, int receivedTag, MPI_Comm communicator,
                       MPI_Status* status) {
  const auto function = next<layer>().*call;
  if (!needsStaging(buffer, count, datatype)) {
    return function(buffer, count, datatype, destination, sentTag, source, receivedTag,
                    communicator, status);
  }
  Side both(buffer, count, datatype, true);
  if (both.failed()) {
    return refuse(communicator, kName<call>, both.reason());
  }
  const Received result(status);
  const int code = function(both.address(), count, both.datatype(), destination, sentTag, source,
                            receivedTag, communicator, result.get());
  return code != MPI_SUCCESS ? code : both.deliver(*result.get(), communicator, kName<call>);
}

}  // namespace

std::span<const Hook> pointToPointHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOKS(Send, send),
      GMAC_MPI_HOOKS(Ssend, send),
      GMAC_MPI_HOOKS(Rsend, send),
      GMAC_MPI_HOOKS(Bsend, send),
      GMAC_MPI_HOOKS(Recv, receive),
      GMAC_MPI_HOOKS(Mrecv, matchedReceive),
      GMAC_MPI_HOOKS(Sendrecv, sendReceive),
      GMAC_MPI_HOOKS(Sendrecv_replace, sendReceiveReplace),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
