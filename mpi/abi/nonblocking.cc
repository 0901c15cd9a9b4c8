// SPDX-License-Identifier: Apache-2.0
//
// Nonblocking and persistent messages: the payload is in private memory until the request is
// completed, or freed.
#include <utility>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/requests.h"
#include "mpi/abi/side.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// A message that is sent or received.
class Message : public Pending {
 public:
  Message(Side side, bool receives) : side(std::move(side)), receives(receives) {}

  bool pack() override { return receives || side.pack(); }
  bool deliver(const MPI_Status& status) override {
    int cancelled = 0;
    return !receives ||
           (real().Test_cancelled(&status, &cancelled) == MPI_SUCCESS && cancelled != 0) ||
           side.unpack(status);
  }
  const std::string& reason() const override { return side.reason(); }

  Side side;
  const bool receives;
};

// When MPI begins.
enum class Begins { kAtOnce, kByStart };

// Calls MPI by `call`, which makes the request.
template <auto name, typename Call>
int begin(Begins begins, const std::shared_ptr<Message>& message, MPI_Comm communicator,
          MPI_Request* request, const Call& call) {
  if (message->side.failed()) {
    return refuse(communicator, kName<name>, message->reason());
  }
  requests::keepOrphans(false);
  const int code = call(message->side.address(), message->side.datatype());
  if (code != MPI_SUCCESS) {
    return code;
  }
  message->persistent = begins == Begins::kByStart;
  message->active = !message->persistent;
  // One handle may stand for all sends that were complete at once.
  int done = 0;
  if (message->persistent || message->receives ||
      real().Request_get_status(*request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0) {
    requests::add(*request, message);
  }
  return code;
}

// Isend, Issend, Irsend, Ibsend, and Send_init and its like.
template <Layer layer, auto call, Begins begins, typename Count>
int send(const void* buffer, Count count, MPI_Datatype datatype, int destination, int tag,
         MPI_Comm communicator, MPI_Request* request) {
  const auto function = next<layer>().*call;
  if (!needsStaging(buffer, count, datatype)) {
    return function(buffer, count, datatype, destination, tag, communicator, request);
  }
  const bool packs = begins == Begins::kAtOnce;
  return begin<call>(begins, std::make_shared<Message>(Side(buffer, count, datatype, packs), false),
                     communicator, request, [&](void* staged, MPI_Datatype wire) {
                       return function(staged, count, wire, destination, tag, communicator,
                                       request);
                     });
}

// Irecv, Recv_init. (All receives from nobody may have one handle, too.)
template <Layer layer, auto call, Begins begins, typename Count>
int receive(void* buffer, Count count, MPI_Datatype datatype, int source, int tag,
            MPI_Comm communicator, MPI_Request* request) {
  const auto function = next<layer>().*call;
  if (source == MPI_PROC_NULL || !needsStaging(buffer, count, datatype)) {
    return function(buffer, count, datatype, source, tag, communicator, request);
  }
  return begin<call>(begins, std::make_shared<Message>(Side(buffer, count, datatype, false), true),
                     communicator, request, [&](void* staged, MPI_Datatype wire) {
                       return function(staged, count, wire, source, tag, communicator, request);
                     });
}

template <Layer layer, auto call, typename Count>
int matchedReceive(void* buffer, Count count, MPI_Datatype datatype, MPI_Message* message,
                   MPI_Request* request) {
  const auto function = next<layer>().*call;
  if (*message == MPI_MESSAGE_NO_PROC || !needsStaging(buffer, count, datatype)) {
    return function(buffer, count, datatype, message, request);
  }
  return begin<call>(Begins::kAtOnce,
                     std::make_shared<Message>(Side(buffer, count, datatype, false), true),
                     MPI_COMM_SELF, request, [&](void* staged, MPI_Datatype wire) {
                       return function(staged, count, wire, message, request);
                     });
}

// MPI_Start and MPI_Startall pack what is sent. Nothing is started when one of them fails.
int packAll(int count, const MPI_Request* list, const char* call) {
  for (int i = 0; i < count; ++i) {
    const PendingPtr pending = requests::find(list[i]);
    if (pending != nullptr && !pending->pack()) {
      return refuse(MPI_COMM_WORLD, call, pending->reason());
    }
  }
  return MPI_SUCCESS;
}

void activateAll(int count, const MPI_Request* list) {
  for (int i = 0; i < count; ++i) {
    if (const PendingPtr pending = requests::find(list[i])) {
      pending->active = true;
    }
  }
}

template <Layer layer>
int start(MPI_Request* request) {
  const auto function = next<layer>().Start;
  if (!requests::any()) return function(request);
  int code = packAll(1, request, "MPI_Start");
  if (code != MPI_SUCCESS) return code;
  code = function(request);
  if (code == MPI_SUCCESS) activateAll(1, request);
  return code;
}

template <Layer layer>
int startAll(int count, MPI_Request* list) {
  const auto function = next<layer>().Startall;
  if (!requests::any()) return function(count, list);
  int code = packAll(count, list, "MPI_Startall");
  if (code != MPI_SUCCESS) return code;
  code = function(count, list);
  // After an error nobody knows which were started; of others nothing is received.
  activateAll(count, list);
  return code;
}

}  // namespace

std::span<const Hook> nonblockingHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOKS(Isend, send, Begins::kAtOnce),
      GMAC_MPI_HOOKS(Issend, send, Begins::kAtOnce),
      GMAC_MPI_HOOKS(Irsend, send, Begins::kAtOnce),
      GMAC_MPI_HOOKS(Ibsend, send, Begins::kAtOnce),
      GMAC_MPI_HOOKS(Irecv, receive, Begins::kAtOnce),
      GMAC_MPI_HOOKS(Imrecv, matchedReceive),
      GMAC_MPI_HOOKS(Send_init, send, Begins::kByStart),
      GMAC_MPI_HOOKS(Ssend_init, send, Begins::kByStart),
      GMAC_MPI_HOOKS(Rsend_init, send, Begins::kByStart),
      GMAC_MPI_HOOKS(Bsend_init, send, Begins::kByStart),
      GMAC_MPI_HOOKS(Recv_init, receive, Begins::kByStart),
      GMAC_MPI_HOOK(Start, start),
      GMAC_MPI_HOOK(Startall, startAll),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
