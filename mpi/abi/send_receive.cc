// SPDX-License-Identifier: Apache-2.0
//
// MPI_Isendrecv and MPI_Isendrecv_replace. The application's request is that of a receive, and has
// a send beside it, which ends first: so status, errors and cancellation are MPI's own.
//
// Plain memory that gets and becomes no ticket goes to MPI's own functions. (MPICH 4.0's leave the
// status empty, and free derived types that are in use.)
#include <memory>
#include <string>
#include <utility>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/memory.h"
#include "mpi/abi/messages.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// By the width of the count.
int makeSend(const void* buffer, int count, MPI_Datatype datatype, int destination, int tag,
             MPI_Comm communicator, MPI_Request* request) {
  return real().Send_init(buffer, count, datatype, destination, tag, communicator, request);
}
int postReceive(void* buffer, int count, MPI_Datatype datatype, int source, int tag,
                MPI_Comm communicator, MPI_Request* request) {
  return real().Irecv(buffer, count, datatype, source, tag, communicator, request);
}
#if MPI_VERSION >= 4
int makeSend(const void* buffer, MPI_Count count, MPI_Datatype datatype, int destination, int tag,
             MPI_Comm communicator, MPI_Request* request) {
  return real().Send_init_c(buffer, count, datatype, destination, tag, communicator, request);
}
int postReceive(void* buffer, MPI_Count count, MPI_Datatype datatype, int source, int tag,
                MPI_Comm communicator, MPI_Request* request) {
  return real().Irecv_c(buffer, count, datatype, source, tag, communicator, request);
}
#endif

// A message that is sent: by a persistent request, which MPI makes, and so checks, before anything
// begins.
class Outgoing {
 public:
  Outgoing() = default;
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  // `copies`: the buffer is received to meanwhile. What the call returns.
  template <typename Count>
  int prepare(const char* call, bool copies, const void* buffer, Count count, MPI_Datatype datatype,
              int destination, int tag, MPI_Comm communicator) {
    if (destination == MPI_PROC_NULL) {
      // (MPICH 4.0 does not get over persistent ones.)
      const int code =
          startSend(buffer, count, datatype, destination, tag, communicator, &request_);
      return code != MPI_SUCCESS ? code : real().Wait(&request_, MPI_STATUS_IGNORE);
    }
    ticket_ = SentTicket(communicator, destination);
    const void* sent = buffer;
    MPI_Datatype type = datatype;
    if (needsStaging(buffer, count, datatype) || (copies && !spanOf(count, datatype).empty())) {
      const Ready ready = payload_.pack(buffer, count, datatype, &ticket_);
      if (ready == Ready::kFailed) {
        return refuse(communicator, call, payload_.reason());
      }
      if (ready == Ready::kYes && !ticket_.inUse()) {
        sent = payload_.address();
        type = payload_.datatype();
      }
    } else if (tickets::inUse()) {
      (void)ticket_.offer(buffer, count, datatype, tickets::Sender::kLeaves);
    }
    const int code = ticket_.inUse()
                         ? makeSend(ticket_.bytes(), Count{tickets::kBytes}, MPI_BYTE, destination,
                                    tag, communicator, &request_)
                         : makeSend(sent, count, type, destination, tag, communicator, &request_);
    if (code != MPI_SUCCESS) {
      ticket_.recall();
    }
    return code;
  }
  // Nothing is sent.
  void abandon() {
    if (request_ != MPI_REQUEST_NULL) (void)real().Request_free(&request_);
    ticket_.recall();
  }
  // False: MPI does not, and the message has failed.
  bool start() {
    code_ = request_ != MPI_REQUEST_NULL ? real().Start(&request_) : MPI_SUCCESS;
    if (code_ != MPI_SUCCESS) {
      abandon();
    }
    return code_ == MPI_SUCCESS;
  }
  // Whether the buffer is the application's again.
  bool over() {
    if (request_ != MPI_REQUEST_NULL) {
      int done = 0;
      code_ = real().Test(&request_, &done, MPI_STATUS_IGNORE);
      if (code_ == MPI_SUCCESS && done == 0) {
        return false;
      }
      (void)real().Request_free(&request_);
    }
    return ticket_.settled();
  }
  // After that.
  bool succeeded() {
    if (code_ == MPI_SUCCESS) reason_ = ticket_.failure();
    return code_ == MPI_SUCCESS && reason_.empty();
  }
  int code() const { return code_; }
  const std::string& reason() const { return reason_; }

 private:
  SentTicket ticket_;
  Staged payload_;  // of a buffer that MPI does not read
  MPI_Request request_ = MPI_REQUEST_NULL;
  int code_ = MPI_SUCCESS;
  std::string reason_;
};

// A receive with a send beside it.
class SentAndAwaited : public Awaited {
 public:
  using Awaited::Awaited;

  bool settled() override {
    const bool sent = out.over();
    return Awaited::settled() && sent;
  }
  bool restSucceeded() override { return out.succeeded(); }
  const std::string& reason() const override {
    return out.reason().empty() ? Awaited::reason() : out.reason();
  }
  int code() const override {
    return Awaited::code() != MPI_SUCCESS ? Awaited::code() : out.code();
  }

  Outgoing out;

 private:
  const requests::MayBeUnsettled unsettled_;
};

// A send whose receive is from nobody. MPI may have one handle for all those, so the request is one
// of ours.
class SentAlone : public Pending {
 public:
  bool pack() override { return true; }
  bool settled() override {
    if (!out.over()) return false;
    if (!std::exchange(ended_, true)) (void)real().Grequest_complete(request);
    return true;
  }
  bool deliver(const MPI_Status&) override { return out.succeeded(); }
  void amend(MPI_Status* status) const override {
    (void)real().Status_set_elements_x(status, MPI_BYTE, 0);
    (void)real().Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_PROC_NULL;
    status->MPI_TAG = MPI_ANY_TAG;
  }
  const std::string& reason() const override { return out.reason(); }
  int code() const override { return out.code(); }

  Outgoing out;
  MPI_Request request = MPI_REQUEST_NULL;

 private:
  bool ended_ = false;
  const requests::MayBeUnsettled unsettled_;
};

// Where a message comes from, and goes to.
template <typename Count>
struct Target {
  void* buffer;
  Count count;
  MPI_Datatype type;
  int source;
  int tag;
  MPI_Comm communicator;
};

template <typename Count>
int beginAlone(const std::shared_ptr<SentAlone>& message, const Target<Count>& to,
               MPI_Request* request) {
  // MPI checks the arguments.
  int code = postReceive(to.buffer, to.count, to.type, to.source, to.tag, to.communicator, request);
  if (code == MPI_SUCCESS) code = real().Wait(request, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS) code = makeOwnRequest(request);
  if (code != MPI_SUCCESS) {
    message->out.abandon();
    return code;
  }
  message->request = *request;
  enter(Begins::kAtOnce, message, *request);
  (void)message->out.start();
  return code;
}

template <typename Count>
int beginBoth(const std::shared_ptr<SentAndAwaited>& message, const PeersPtr& peers,
              const Target<Count>& to, MPI_Request* request) {
  Matching matching(peers, to.source, to.tag);
  int code = MPI_SUCCESS;
  if (matching.held().has_value()) {
    code = receiveHeldLater(message, to.count, *matching.held(), request);
    if (notReceived(code)) matching.putBack();
  } else {
    code = postReceive(message->in.address(), to.count, message->in.datatype(), to.source, to.tag,
                       to.communicator, request);
    if (code == MPI_SUCCESS) enter(Begins::kAtOnce, message, *request);
  }
  if (code != MPI_SUCCESS) {
    message->out.abandon();
  } else if (!message->out.start() && !message->matched) {
    // The call that completes the request fails.
    (void)real().Cancel(request);
  }
  return code;
}

// `prepare(Outgoing&)`: the send.
template <auto call, typename Count, typename Prepare>
int beginEither(const Target<Count>& to, MPI_Request* request, const Prepare& prepare) {
  requests::keepOrphans(false);
  if (to.source == MPI_PROC_NULL) {
    const auto message = std::make_shared<SentAlone>();
    const int code = prepare(message->out);
    return code != MPI_SUCCESS ? code : beginAlone(message, to, request);
  }
  const PeersPtr peers = Peers::of(to.communicator, to.source);
  const auto message = std::make_shared<SentAndAwaited>(
      isReceivedStaged(to.buffer, to.count, to.type), to.buffer, to.count, to.type, to.source,
      to.tag, to.communicator, peers);
  if (message->in.failed()) {
    return refuse(to.communicator, kName<call>, message->reason());
  }
  const int code = prepare(message->out);
  return code != MPI_SUCCESS ? code : beginBoth(message, peers, to, request);
}

template <Layer layer, auto call, typename Count>
int sendReceive(const void* sent, Count sentCount, MPI_Datatype sentType, int destination,
                int sentTag, void* received, Count receivedCount, MPI_Datatype receivedType,
                int source, int receivedTag, MPI_Comm communicator, MPI_Request* request) {
  if (!tickets::inUse() && !needsStaging(sent, sentCount, sentType) &&
      !needsStaging(received, receivedCount, receivedType)) {
    return (next<layer>().*call)(sent, sentCount, sentType, destination, sentTag, received,
                                 receivedCount, receivedType, source, receivedTag, communicator,
                                 request);
  }
  const Target<Count> to = {received, receivedCount, receivedType,
                            source,   receivedTag,   communicator};
  return beginEither<call>(to, request, [&](Outgoing& out) {
    return out.prepare(kName<call>, false, sent, sentCount, sentType, destination, sentTag,
                       communicator);
  });
}

template <Layer layer, auto call, typename Count>
int sendReceiveReplace(void* buffer, Count count, MPI_Datatype datatype, int destination,
                       int sentTag, int source, int receivedTag, MPI_Comm communicator,
                       MPI_Request* request) {
  if (!tickets::inUse() && !needsStaging(buffer, count, datatype)) {
    return (next<layer>().*call)(buffer, count, datatype, destination, sentTag, source, receivedTag,
                                 communicator, request);
  }
  const Target<Count> to = {buffer, count, datatype, source, receivedTag, communicator};
  return beginEither<call>(to, request, [&](Outgoing& out) {
    return out.prepare(kName<call>, true, buffer, count, datatype, destination, sentTag,
                       communicator);
  });
}

}  // namespace

std::span<const Hook> sendReceiveHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOKS(Isendrecv, sendReceive),
      GMAC_MPI_HOOKS(Isendrecv_replace, sendReceiveReplace),
  };
  // An MPI of version 3 need not have them.
  return real().Isendrecv != nullptr ? std::span<const Hook>(hooks) : std::span<const Hook>();
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
