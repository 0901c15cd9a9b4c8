// SPDX-License-Identifier: Apache-2.0
//
// Blocking messages. A side of a call that is shared goes through private memory; what is not goes
// to MPI as it is.
#include <optional>
#include <string_view>
#include <utility>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/reception.h"
#include "mpi/abi/requests.h"
#include "mpi/abi/short_message.h"
#include "mpi/abi/side.h"
#include "mpi/spinning.h"

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

// The application's result of a receive that MPI has ended with `code`.
int finish(Reception& in, int code, MPI_Status* status, const char* call) {
  if (code == MPI_SUCCESS) {
    code = in.arrived(*status)        ? MPI_SUCCESS
           : in.code() != MPI_SUCCESS ? in.code()
                                      : errorCode(call, in.reason());
    in.amend(status);
    if (code == MPI_SUCCESS) {
      return code;
    }
  } else if (!in.mpiToldNobody()) {
    return code;
  } else {
    in.amend(status);
  }
  (void)real().Comm_call_errhandler(in.communicator(), code);
  return code;
}

// The same of a receive to plain memory that MPI was given, of which most are no tickets.
int finishPlain(void* buffer, MPI_Count count, MPI_Datatype datatype, int source,
                MPI_Comm communicator, int code, MPI_Status* status, const char* call) {
  if (code != MPI_SUCCESS || !hasTicketsLength(*status)) {
    return code;
  }
  Reception in(false, buffer, count, datatype, communicator, Peers::of(communicator, source),
               Reception::Ends::kInTheCall);
  return finish(in, code, status, call);
}

// The same of a receive of a short message, in whose buffer's place MPI was given `staged`.
// `place`: NULL: a shared object, of those that lived `then`. `peers` may be NULL.
int finishShort(void* buffer, const gmacDevicePlace* place, const ObjectsThen& then,
                MPI_Count count, MPI_Datatype datatype, StagingMemory staged, const PeersPtr& peers,
                MPI_Comm communicator, int code, MPI_Status* status, const char* call) {
  if (code != MPI_SUCCESS) {
    return code;
  }
  const int sender = peers != nullptr ? peers->rankInWorld(status->MPI_SOURCE) : -1;
  if ((sender < 0 || !hasTicketsLength(*status)) &&
      unpackShort(buffer, place, then, staged, shortLength(*status), sender)) {
    return code;
  }
  PlainReceive receive;
  receive.buffer = buffer;
  receive.count = count;
  receive.datatype = datatype;
  receive.peers = peers;
  receive.staged = std::move(staged);
  receive.isOfObject = place == nullptr;
  receive.then = then;
  Reception in(receive, communicator, Reception::Ends::kInTheCall);
  return finish(in, code, status, call);
}

// Receives the message that a probe holds. One that MPI has not received remains held.
template <auto call, typename Count>
int receiveHeld(Reception& in, Count count, Matching& matching, MPI_Status* status) {
  Held& held = *matching.held();
  in.receives(held);
  const int code = receiveHeld(in.address(), count, in.datatype(), held, status);
  if (notReceived(code)) {
    matching.putBack();
  }
  return finish(in, code, status, kName<call>);
}

// A message is sent by `call(address, count, datatype)`: a ticket, or its payload.
template <typename Count, typename Call>
int sendSide(Side& out, SentTicket& ticket, Count count, const Call& call) {
  if (!ticket.inUse()) {
    return call(out.address(), count, out.datatype());
  }
  const int code = call(ticket.bytes(), Count{tickets::kBytes}, MPI_BYTE);
  ticket.recallIfUnsent(code);
  return code;
}

// The call's result, after MPI has ended with `code` what was to send the ticket: when the buffer
// is the application's again.
int endSend(SentTicket& ticket, int code, MPI_Comm communicator, const char* call) {
  if (code != MPI_SUCCESS) {
    ticket.recallIfUnsent(code);
  }
  ticket.follow();
  requests::settle(ticket);
  const std::string failure = ticket.failure();
  return code != MPI_SUCCESS || failure.empty() ? code : refuse(communicator, call, failure);
}

// By the width of the count.
template <Layer layer>
int beginReceive(void* buffer, int count, MPI_Datatype datatype, int source, int tag,
                 MPI_Comm communicator, MPI_Request* request) {
  return next<layer>().Irecv(buffer, count, datatype, source, tag, communicator, request);
}
#if MPI_VERSION >= 4
template <Layer layer>
int beginReceive(void* buffer, MPI_Count count, MPI_Datatype datatype, int source, int tag,
                 MPI_Comm communicator, MPI_Request* request) {
  return next<layer>().Irecv_c(buffer, count, datatype, source, tag, communicator, request);
}
#endif

// A ticket whose message needs its sender afterwards, as a request that MPI makes, and so checks,
// before anything begins.
class TicketRequest {
 public:
  explicit TicketRequest(SentTicket& ticket) : ticket_(ticket) {}
  // (MPI reads the ticket until then.)
  ~TicketRequest() {
    if (isStarted_) (void)real().Wait(&request_, MPI_STATUS_IGNORE);
    if (request_ != MPI_REQUEST_NULL) (void)real().Request_free(&request_);
  }
  TicketRequest(const TicketRequest&) = delete;
  TicketRequest& operator=(const TicketRequest&) = delete;

  int make(int destination, int tag, MPI_Comm communicator) {
    return real().Send_init(ticket_.bytes(), tickets::kBytes, MPI_BYTE, destination, tag,
                            communicator, &request_);
  }
  // What follows the ticket begins.
  int start() {
    const int code = real().Start(&request_);
    isStarted_ = code == MPI_SUCCESS;
    if (isStarted_) ticket_.follow();
    return code;
  }

 private:
  SentTicket& ticket_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool isStarted_ = false;
};

// MPI's receive of a call that advances meanwhile what it sends: whoever sends what is received
// here may need that first.
template <Layer layer>
int waitSending(SentTicket& ticket, MPI_Request* receiving, MPI_Status* status) {
  int done = ticket.isStaged() ? 0 : 1;
  for (Spinning spinning(ticket.transferBytes());
       done == 0 &&
       real().Request_get_status(*receiving, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0;
       spinning.turn()) {
    (void)ticket.settled();
    requests::progress();
  }
  return next<layer>().Wait(receiving, status);
}

// A call that sends in fragments, or through pinned memory, and receives. Its receiver may need
// them before it, or another, sends what is received here; so nothing is awaited before they are
// under way, and MPI is given a receive alone.
template <Layer layer, auto call, typename Count>
int exchangeSending(SentTicket& ticket, int destination, int sentTag, Reception& in, Count count,
                    int source, int tag, MPI_Comm communicator, Matching& matching,
                    MPI_Status* status) {
  const bool isHeld = matching.held().has_value();
  TicketRequest sending(ticket);
  MPI_Request receiving = MPI_REQUEST_NULL;
  int code = sending.make(destination, sentTag, communicator);
  if (code == MPI_SUCCESS && !isHeld) {
    code = beginReceive<layer>(in.address(), count, in.datatype(), source, tag, communicator,
                               &receiving);
  }
  if (code == MPI_SUCCESS) {
    code = sending.start();
  }
  if (code != MPI_SUCCESS) {
    ticket.recall();
    if (isHeld) matching.putBack();
    if (receiving != MPI_REQUEST_NULL) {
      (void)real().Cancel(&receiving);
      (void)real().Wait(&receiving, MPI_STATUS_IGNORE);
    }
    return code;
  }
  code = isHeld ? receiveHeld<call>(in, count, matching, status)
                : finish(in, waitSending<layer>(ticket, &receiving, status), status, kName<call>);
  const int sentCode = endSend(ticket, MPI_SUCCESS, communicator, kName<call>);
  return code != MPI_SUCCESS ? code : sentCode;
}

template <auto call>
SentTicket ticketFor(MPI_Comm communicator, int destination) {
  constexpr std::string_view kCall = kName<call>;
  constexpr bool kMayBe = kCall.starts_with("MPI_Send") || kCall.starts_with("MPI_Rsend");
  return kMayBe ? SentTicket(communicator, destination) : SentTicket();
}

// Send, Ssend, Rsend, Bsend. MPI_Bsend has copied the payload when it returns.
template <Layer layer, auto call, typename Count>
int send(const void* buffer, Count count, MPI_Datatype datatype, int destination, int tag,
         MPI_Comm communicator) {
  const auto function = next<layer>().*call;
  gmacDevicePlace place;
  const Where where = whereIs(buffer, count, datatype, &place);
  if (where == Where::kPlain) {
    if (!SentTicket::mayBeOffered(count, datatype)) {
      return function(buffer, count, datatype, destination, tag, communicator);
    }
    SentTicket ticket = ticketFor<call>(communicator, destination);
    if (!ticket.offer(buffer, count, datatype, tickets::Sender::kWaits)) {
      return function(buffer, count, datatype, destination, tag, communicator);
    }
    const int code = ticket.sendBy([&] {
      return function(ticket.bytes(), Count{tickets::kBytes}, MPI_BYTE, destination, tag,
                      communicator);
    });
    return endSend(ticket, code, communicator, kName<call>);
  }
  if (StagingMemory packed; packShort(where, place, buffer, count, datatype, &packed)) {
    return function(packed.data(), count, datatype, destination, tag, communicator);
  }
  tickets::sweep();
  tickets::tellDevice();
  SentTicket ticket = SentTicket::mayBeReserved(count, datatype)
                          ? ticketFor<call>(communicator, destination)
                          : SentTicket();
  ticket.mayBeLent(tickets::Sender::kWaits);
  ticket.mayBeFragmented();
  Side out(true, buffer, count, datatype, true, &ticket);
  if (out.failed()) {
    return refuse(communicator, kName<call>, out.reason());
  }
  const int code =
      sendSide(out, ticket, count, [&](const void* sent, Count elements, MPI_Datatype wire) {
        return ticket.sendBy(
            [&] { return function(sent, elements, wire, destination, tag, communicator); });
      });
  return ticket.isTransfer() ? endSend(ticket, code, communicator, kName<call>) : code;
}

template <Layer layer, auto call, typename Count>
int receive(void* buffer, Count count, MPI_Datatype datatype, int source, int tag,
            MPI_Comm communicator, MPI_Status* status) {
  const auto function = next<layer>().*call;
  gmacDevicePlace place;
  const Where where = whereIs(buffer, count, datatype, &place);
  const bool isPlain = where == Where::kPlain;
  if (!tickets::inUse() && isPlain) {
    return function(buffer, count, datatype, source, tag, communicator, status);
  }
  if (const std::size_t room = shortRoom(where, count, datatype); room > 0) {
    const PeersPtr* const recent = Peers::recent(communicator, source);
    if (recent != nullptr &&
        (*recent == nullptr || (!concurrentCalls() && (*recent)->holdsNothing()))) {
      if (StagingMemory staged(room); staged.data() != nullptr) {
        const PeersPtr peers = *recent;
        const ObjectsThen then;
        const Received received(status);
        const int code =
            function(staged.data(), count, datatype, source, tag, communicator, received.get());
        return finishShort(buffer, where == Where::kOnDevice ? &place : nullptr, then, count,
                           datatype, std::move(staged), peers, communicator, code, received.get(),
                           kName<call>);
      }
    }
  }
  tickets::sweep();
  if (const PeersPtr* const recent = Peers::recent(communicator); recent != nullptr && isPlain) {
    if (*recent == nullptr || !(*recent)->maySend(source)) {
      return function(buffer, count, datatype, source, tag, communicator, status);
    }
    if (!splitsTicket(buffer, count, datatype) && !concurrentCalls() && (*recent)->holdsNothing()) {
      const Received received(status);
      const int code = function(buffer, count, datatype, source, tag, communicator, received.get());
      return finishPlain(buffer, count, datatype, source, communicator, code, received.get(),
                         kName<call>);
    }
  }
  const PeersPtr peers = Peers::of(communicator, source);
  if (isPlain && peers == nullptr) {
    return function(buffer, count, datatype, source, tag, communicator, status);
  }
  const bool staged = !isPlain || splitsTicket(buffer, count, datatype);
  std::optional<Reception> in;
  const auto prepare = [&] {
    in.emplace(staged, buffer, count, datatype, communicator, peers, Reception::Ends::kInTheCall);
    return !in->failed();
  };
  if (staged && !prepare()) {
    return refuse(communicator, kName<call>, in->reason());
  }
  const Received received(status);
  Matching matching(peers, source, tag);
  if (matching.held().has_value()) {
    if (!staged) (void)prepare();
    return receiveHeld<call>(*in, count, matching, received.get());
  }
  if (!staged) {
    const int code = function(buffer, count, datatype, source, tag, communicator, received.get());
    return finishPlain(buffer, count, datatype, source, communicator, code, received.get(),
                       kName<call>);
  }
  const int code =
      function(in->address(), count, in->datatype(), source, tag, communicator, received.get());
  return finish(*in, code, received.get(), kName<call>);
}

// The message knows its communicator; an error of ours goes to this process's handler.
template <Layer layer, auto call, typename Count>
int matchedReceive(void* buffer, Count count, MPI_Datatype datatype, MPI_Message* message,
                   MPI_Status* status) {
  const auto function = next<layer>().*call;
  const std::optional<Held> held = matched::take(*message);
  const bool staged = held.has_value() ? isReceivedStaged(buffer, count, datatype)
                                       : needsStaging(buffer, count, datatype);
  if (!held.has_value() && !staged) {
    return function(buffer, count, datatype, message, status);
  }
  Reception in(staged, buffer, count, datatype, MPI_COMM_SELF, nullptr,
               Reception::Ends::kInTheCall);
  if (held.has_value()) {
    in.receives(*held);
  }
  if (in.failed()) {
    if (held.has_value()) matched::add(*held);
    return refuse(in.communicator(), kName<call>, in.reason());
  }
  const Received received(status);
  const int code = function(in.address(), count, in.datatype(), message, received.get());
  if (held.has_value() && notReceived(code)) {
    matched::add(*held);
  }
  return finish(in, code, received.get(), kName<call>);
}

template <Layer layer, auto call, typename Count>
int sendReceive(const void* sent, Count sentCount, MPI_Datatype sentType, int destination,
                int sentTag, void* received, Count receivedCount, MPI_Datatype receivedType,
                int source, int receivedTag, MPI_Comm communicator, MPI_Status* status) {
  const auto function = next<layer>().*call;
  const auto forward = [&] {
    return function(sent, sentCount, sentType, destination, sentTag, received, receivedCount,
                    receivedType, source, receivedTag, communicator, status);
  };
  gmacDevicePlace fromPlace;
  gmacDevicePlace toPlace;
  const Where from = whereIs(sent, sentCount, sentType, &fromPlace);
  const Where to = whereIs(received, receivedCount, receivedType, &toPlace);
  const bool sendsStaged = from != Where::kPlain;
  const bool receivesStaged =
      to != Where::kPlain || splitsTicket(received, receivedCount, receivedType);
  if (!sendsStaged && !receivesStaged && !tickets::inUse()) {
    return forward();
  }
  // Both sides are of plain memory, or short.
  const std::size_t room = shortRoom(to, receivedCount, receivedType);
  if (const PeersPtr* const recent = Peers::recent(communicator, source);
      recent != nullptr && (!receivesStaged || room > 0) &&
      (*recent == nullptr || (!concurrentCalls() && (*recent)->holdsNothing()))) {
    const PeersPtr peers = *recent;
    StagingMemory packed;
    StagingMemory staged = room > 0 ? StagingMemory(room) : StagingMemory();
    if ((room == 0 || staged.data() != nullptr) &&
        (sendsStaged ? packShort(from, fromPlace, sent, sentCount, sentType, &packed)
                     : !SentTicket::mayBeOffered(sentCount, sentType))) {
      const ObjectsThen then;
      const Received result(status);
      const int code =
          function(sendsStaged ? packed.data() : sent, sentCount, sentType, destination, sentTag,
                   room > 0 ? staged.data() : received, receivedCount, receivedType, source,
                   receivedTag, communicator, result.get());
      if (room > 0) {
        return finishShort(received, to == Where::kOnDevice ? &toPlace : nullptr, then,
                           receivedCount, receivedType, std::move(staged), peers, communicator,
                           code, result.get(), kName<call>);
      }
      return peers == nullptr ? code
                              : finishPlain(received, receivedCount, receivedType, source,
                                            communicator, code, result.get(), kName<call>);
    }
  }
  const PeersPtr peers = Peers::of(communicator, source);
  Reception in(receivesStaged, received, receivedCount, receivedType, communicator, peers,
               Reception::Ends::kInTheCall);
  if (sendsStaged) tickets::tellDevice();
  const bool mayBeTicket =
      (sendsStaged || tickets::inUse()) && SentTicket::mayBeReserved(sentCount, sentType);
  SentTicket ticket = mayBeTicket ? SentTicket(communicator, destination) : SentTicket();
  ticket.mayBeLent(tickets::Sender::kExchanges);
  ticket.mayBeFragmented();
  if (!in.failed() && !sendsStaged) {
    (void)ticket.offer(sent, sentCount, sentType, tickets::Sender::kLeaves);
  }
  if (!sendsStaged && !ticket.inUse() && in.isMpis()) {
    return forward();
  }
  Side out(sendsStaged, sent, sentCount, sentType, true, &ticket);
  if (out.failed() || in.failed()) {
    ticket.recall();
    return refuse(communicator, kName<call>, out.failed() ? out.reason() : in.reason());
  }
  const Received result(status);
  Matching matching(peers, source, receivedTag);
  if (ticket.isInFragments() || ticket.isStaged()) {
    return exchangeSending<layer, call>(ticket, destination, sentTag, in, receivedCount, source,
                                        receivedTag, communicator, matching, result.get());
  }
  if (matching.held().has_value()) {
    MPI_Request request = MPI_REQUEST_NULL;
    int code =
        sendSide(out, ticket, sentCount, [&](const void* bytes, Count elements, MPI_Datatype wire) {
          return startSend(bytes, elements, wire, destination, sentTag, communicator, &request);
        });
    if (code != MPI_SUCCESS) {
      matching.putBack();
      return code;
    }
    code = receiveHeld<call>(in, receivedCount, matching, result.get());
    const int sentCode =
        endSend(ticket, real().Wait(&request, MPI_STATUS_IGNORE), communicator, kName<call>);
    return code != MPI_SUCCESS ? code : sentCode;
  }
  const int code =
      sendSide(out, ticket, sentCount, [&](const void* bytes, Count elements, MPI_Datatype wire) {
        return function(bytes, elements, wire, destination, sentTag, in.address(), receivedCount,
                        in.datatype(), source, receivedTag, communicator, result.get());
      });
  const int ended = finish(in, code, result.get(), kName<call>);
  const int sentCode = endSend(ticket, MPI_SUCCESS, communicator, kName<call>);
  return ended != MPI_SUCCESS ? ended : sentCode;
}

// MPI has one count for both: what is sent takes the wire, unless it goes in fragments.
template <Layer layer, auto call, typename Count>
int sendReceiveReplace(void* buffer, Count count, MPI_Datatype datatype, int destination,
                       int sentTag, int source, int receivedTag, MPI_Comm communicator,
                       MPI_Status* status) {
  const auto function = next<layer>().*call;
  const auto forward = [&] {
    return function(buffer, count, datatype, destination, sentTag, source, receivedTag,
                    communicator, status);
  };
  const bool staged = isReceivedStaged(buffer, count, datatype);
  if (!staged && !tickets::inUse()) {
    return forward();
  }
  const PeersPtr peers = Peers::of(communicator, source);
  Reception in(staged, buffer, count, datatype, communicator, peers, Reception::Ends::kInTheCall);
  if (in.isMpis()) {
    return forward();
  }
  SentTicket fragments = tickets::anyTakesFragments() && SentTicket::mayBeReserved(count, datatype)
                             ? SentTicket(communicator, destination)
                             : SentTicket();
  fragments.mayBeFragmented();
  const bool inFragments = !in.failed() && in.sendsInFragments(&fragments);
  SentTicket wire;
  if (in.failed() || (!inFragments && !in.pack(&wire))) {
    return refuse(communicator, kName<call>, in.reason());
  }
  const Received result(status);
  Matching matching(peers, source, receivedTag);
  if (inFragments) {
    return exchangeSending<layer, call>(fragments, destination, sentTag, in, count, source,
                                        receivedTag, communicator, matching, result.get());
  }
  if (matching.held().has_value()) {
    Staged out;
    if (count < 0) {
      matching.putBack();
      return forward();
    }
    if (out.pack(buffer, count, datatype, nullptr) != Ready::kYes) {
      matching.putBack();
      return out.reason().empty() ? forward() : refuse(communicator, kName<call>, out.reason());
    }
    MPI_Request request = MPI_REQUEST_NULL;
    int code = startSend(out.address(), count, out.datatype(), destination, sentTag, communicator,
                         &request);
    if (code != MPI_SUCCESS) {
      matching.putBack();
      return code;
    }
    code = receiveHeld<call>(in, count, matching, result.get());
    const int sentCode = real().Wait(&request, MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS ? code : sentCode;
  }
  const int code = function(in.address(), count, in.datatype(), destination, sentTag, source,
                            receivedTag, communicator, result.get());
  return finish(in, code, result.get(), kName<call>);
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
