// SPDX-License-Identifier: Apache-2.0
//
// Nonblocking and persistent messages: the payload is in private memory until the request is
// completed, or freed. A receive into plain memory has an entry in the table, too, where a ticket
// may come.
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/messages.h"
#include "mpi/abi/short_message.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// MPI has begun to send a message at once, or its ticket: it is in the table until it is settled,
// unless it is already.
void beginTicket(const std::shared_ptr<Sent>& message, MPI_Request* request) {
  int done = 0;
  if (real().Request_get_status(*request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) {
    if (!message->ticket.isTransfer()) {
      return;
    }
    // MPI may have one handle for all sends that were complete at once.
    MPI_Request own = MPI_REQUEST_NULL;
    if (makeOwnRequest(&own) != MPI_SUCCESS) {
      requests::settle(message->ticket);
      return;
    }
    (void)real().Wait(request, MPI_STATUS_IGNORE);
    *request = own;
    message->standsFor(own);
  }
  enter(Begins::kAtOnce, message, *request);
}

// MPI_Isend of plain memory that may be a ticket. False: it takes the wire.
template <auto call, typename Function, typename Count>
bool sendPlain(Function function, const void* buffer, Count count, MPI_Datatype datatype,
               int destination, int tag, MPI_Comm communicator, MPI_Request* request, int* code) {
  SentTicket offered(communicator, destination);
  if (!offered.offer(buffer, count, datatype, tickets::Sender::kFollows)) {
    return false;
  }
  const auto message = std::make_shared<Sent>(std::move(offered), communicator);
  SentTicket& ticket = message->ticket;
  requests::keepOrphans(false);
  *code = ticket.sendBy([&] {
    return function(ticket.bytes(), Count{tickets::kBytes}, MPI_BYTE, destination, tag,
                    communicator, request);
  });
  if (*code != MPI_SUCCESS) {
    ticket.recall();
    return true;
  }
  ticket.follow();
  beginTicket(message, request);
  return true;
}

// The handle of a send to nobody, which MPIs give each send that is over at once. (Asking MPI
// whether one is over takes a turn of all its progress where it is not.)
MPI_Request handleOfNobody() {
  static const MPI_Request handle = [] {
    MPI_Request made = MPI_REQUEST_NULL;
    (void)real().Isend(nullptr, 0, MPI_BYTE, MPI_PROC_NULL, 0, ownCommunicator(), &made);
    MPI_Request ended = made;
    if (made != MPI_REQUEST_NULL) (void)real().Wait(&ended, MPI_STATUS_IGNORE);
    return made;
  }();
  return handle;
}

// MPI is to begin what the entry says: `begin()`.
template <typename Begin>
int beginPlain(requests::PlainEntry& entry, const Begin& begin, MPI_Request* request) {
  int code = MPI_SUCCESS;
  try {
    code = begin();
  } catch (...) {  // of an error handler
    requests::release(entry);
    throw;
  }
  // (Were such a handle another one, Wait would find it among the entries; of several with one
  // handle it does not matter which.)
  if (code != MPI_SUCCESS || (entry.isSend() && *request == handleOfNobody())) {
    requests::release(entry);
  } else {
    requests::addPlain(entry, *request);
  }
  return code;
}

// Isend, Issend, Irsend, Ibsend, and Send_init and its like.
template <Layer layer, auto call, Begins begins, typename Count>
int send(const void* buffer, Count count, MPI_Datatype datatype, int destination, int tag,
         MPI_Comm communicator, MPI_Request* request) {
  const auto function = next<layer>().*call;
  constexpr std::string_view kCall = kName<call>;
  constexpr bool kMayBeTicket = begins == Begins::kAtOnce &&
                                (kCall.starts_with("MPI_Isend") || kCall.starts_with("MPI_Irsend"));
  gmacDevicePlace place;
  const Where where = whereIs(buffer, count, datatype, &place);
  if (where == Where::kPlain) {
    int code = MPI_SUCCESS;
    return kMayBeTicket && SentTicket::mayBeOffered(count, datatype) &&
                   sendPlain<call>(function, buffer, count, datatype, destination, tag,
                                   communicator, request, &code)
               ? code
               : function(buffer, count, datatype, destination, tag, communicator, request);
  }
  if constexpr (begins == Begins::kAtOnce) {
    if (StagingMemory packed; packShort(where, place, buffer, count, datatype, &packed)) {
      requests::keepOrphans(false);
      requests::PlainEntry& entry = *requests::reservePlain();
      entry.sent = std::move(packed);
      return beginPlain(
          entry,
          [&] {
            return function(entry.sent.data(), count, datatype, destination, tag, communicator,
                            request);
          },
          request);
    }
  }
  tickets::sweep();
  tickets::tellDevice();
  SentTicket offered = kMayBeTicket && SentTicket::mayBeReserved(count, datatype)
                           ? SentTicket(communicator, destination)
                           : SentTicket();
  if (kMayBeTicket) {
    offered.mayBeLent(tickets::Sender::kFollows);
    offered.mayBeFragmented();
  }
  const auto message = std::make_shared<Sent>(buffer, count, datatype, begins == Begins::kAtOnce,
                                              std::move(offered));
  if (message->side.failed()) {
    return refuse(communicator, kName<call>, message->reason());
  }
  requests::keepOrphans(false);
  SentTicket& ticket = message->ticket;
  const int code = ticket.sendBy([&] {
    return ticket.inUse() ? function(ticket.bytes(), Count{tickets::kBytes}, MPI_BYTE, destination,
                                     tag, communicator, request)
                          : function(message->side.address(), count, message->side.datatype(),
                                     destination, tag, communicator, request);
  });
  if (code != MPI_SUCCESS) {
    ticket.recall();
    return code;
  }
  if (begins == Begins::kByStart) {
    enter(begins, message, *request);
  } else {
    ticket.follow();
    if (ticket.isStaged()) {
      requests::settle(ticket);
      ticket.follow();
    }
    beginTicket(message, request);
  }
  return code;
}

// MPI is to receive it.
template <auto call, typename Function, typename Count>
int post(Begins begins, std::shared_ptr<Awaited> message, Function function, Count count,
         int source, int tag, MPI_Comm communicator, MPI_Request* request) {
  if (message->in.failed()) {
    return refuse(communicator, kName<call>, message->reason());
  }
  const int code = function(message->in.address(), count, message->in.datatype(), source, tag,
                            communicator, request);
  if (code == MPI_SUCCESS) {
    enter(begins, std::move(message), *request);
  }
  return code;
}

void describe(PlainReceive& receive, void* buffer, MPI_Count count, MPI_Datatype datatype,
              int source, const PeersPtr& peers) {
  receive.buffer = buffer;
  receive.count = count;
  receive.datatype = datatype;
  receive.source = source;
  if (receive.peers != peers) receive.peers = peers;
}

// A receive into plain memory is entered as such, which takes some nanoseconds, if it may get a
// ticket and its type is one that gmac packs. Nothing: it has not begun.
template <typename Function, typename Count>
std::optional<int> postPlain(Function function, void* buffer, Count count, MPI_Datatype datatype,
                             int source, int tag, MPI_Comm communicator, const PeersPtr& peers,
                             MPI_Request* request) {
  TicketRoom room = roomForTicket(count, datatype);
  if (!room.any) {
    return function(buffer, count, datatype, source, tag, communicator, request);
  }
  if (!room.isPlain) {
    return std::nullopt;
  }
  requests::PlainEntry& entry = *requests::reservePlain();
  describe(entry.receive, buffer, count, datatype, source, peers);
  entry.receive.type = std::move(room.type);
  return beginPlain(
      entry, [&] { return function(buffer, count, datatype, source, tag, communicator, request); },
      request);
}

// The same of a short message to a shared object. Nothing: there is no memory for it.
template <typename Function, typename Count>
std::optional<int> postShort(Function function, void* buffer, Count count, MPI_Datatype datatype,
                             std::size_t room, int source, int tag, MPI_Comm communicator,
                             const PeersPtr& peers, MPI_Request* request) {
  StagingMemory staged(room);
  if (staged.data() == nullptr) {
    return std::nullopt;
  }
  requests::PlainEntry& entry = *requests::reservePlain();
  describe(entry.receive, buffer, count, datatype, source, peers);
  entry.receive.staged = std::move(staged);
  entry.receive.then = {};
  return beginPlain(
      entry,
      [&] {
        return function(entry.receive.staged.data(), count, datatype, source, tag, communicator,
                        request);
      },
      request);
}

// Irecv, Recv_init. (All receives from nobody may have one handle, too.)
template <Layer layer, auto call, Begins begins, typename Count>
int receive(void* buffer, Count count, MPI_Datatype datatype, int source, int tag,
            MPI_Comm communicator, MPI_Request* request) {
  const auto function = next<layer>().*call;
  const auto forward = [&] {
    return function(buffer, count, datatype, source, tag, communicator, request);
  };
  const Where where = source == MPI_PROC_NULL ? Where::kPlain : whereIs(buffer, count, datatype);
  const bool isPlain = where == Where::kPlain;
  if (isPlain && !tickets::inUse()) {
    return forward();
  }
  requests::keepOrphans(false);
  const std::size_t room = where == Where::kShared ? shortRoom(where, count, datatype) : 0;
  if (begins == Begins::kAtOnce && (isPlain || room > 0)) {
    const PeersPtr* const recent = Peers::recent(communicator, source);
    if (isPlain && recent != nullptr && *recent == nullptr) {
      return forward();
    }
    if (recent != nullptr && (room > 0 || !splitsTicket(buffer, count, datatype))) {
      if (const Posting posting(*recent); posting) {
        const std::optional<int> code = room > 0
                                            ? postShort(function, buffer, count, datatype, room,
                                                        source, tag, communicator, *recent, request)
                                            : postPlain(function, buffer, count, datatype, source,
                                                        tag, communicator, *recent, request);
        if (code.has_value()) return *code;
      }
    }
  }
  const PeersPtr peers = Peers::of(communicator, source);
  if (isPlain && peers == nullptr) {
    return forward();
  }
  const bool staged = !isPlain || splitsTicket(buffer, count, datatype);
  const auto make = [&] {
    return std::make_shared<Awaited>(staged, buffer, count, datatype, source, tag, communicator,
                                     peers);
  };
  if constexpr (begins == Begins::kAtOnce) {
    Matching matching(peers, source, tag);
    if (matching.held().has_value()) {
      const auto message = make();
      Held& held = *matching.held();
      if (message->in.failed()) {
        matching.putBack();
        return refuse(communicator, kName<call>, message->reason());
      }
      const int code = receiveHeldLater(message, count, held, request);
      if (notReceived(code)) {
        matching.putBack();
      }
      return code;
    }
    if (!staged) {
      const std::optional<int> code =
          postPlain(function, buffer, count, datatype, source, tag, communicator, peers, request);
      if (code.has_value()) return *code;
    }
    return post<call>(begins, make(), function, count, source, tag, communicator, request);
  } else {
    return post<call>(begins, make(), function, count, source, tag, communicator, request);
  }
}

template <Layer layer, auto call, typename Count>
int matchedReceive(void* buffer, Count count, MPI_Datatype datatype, MPI_Message* message,
                   MPI_Request* request) {
  const auto function = next<layer>().*call;
  const std::optional<Held> held = matched::take(*message);
  const bool staged = *message != MPI_MESSAGE_NO_PROC &&
                      (held.has_value() ? isReceivedStaged(buffer, count, datatype)
                                        : needsStaging(buffer, count, datatype));
  if (!held.has_value() && !staged) {
    return function(buffer, count, datatype, message, request);
  }
  const auto pending = std::make_shared<Awaited>(staged, buffer, count, datatype, MPI_ANY_SOURCE,
                                                 MPI_ANY_TAG, MPI_COMM_SELF, nullptr);
  pending->matched = true;
  if (held.has_value()) {
    pending->in.receives(*held);
  }
  if (pending->in.failed()) {
    if (held.has_value()) matched::add(*held);
    return refuse(pending->communicator(), kName<call>, pending->reason());
  }
  requests::keepOrphans(false);
  const int code = function(pending->in.address(), count, pending->in.datatype(), message, request);
  if (code == MPI_SUCCESS) {
    enter(Begins::kAtOnce, pending, *request);
  } else if (pending->mpiTellsNobody()) {
    (void)real().Comm_call_errhandler(pending->communicator(), code);
  }
  if (held.has_value() && notReceived(code)) {
    matched::add(*held);
  }
  return code;
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
    requests::activate(list[i]);
  }
}

// Starts the receives that get held messages. The others, for MPI, are in `rest`; no probe takes
// their messages as long as `matchings` live.
int startHeld(int count, const MPI_Request* list, std::vector<MPI_Request>& rest,
              std::vector<std::unique_ptr<Matching>>& matchings) {
  for (int i = 0; i < count; ++i) {
    const PendingPtr pending = requests::find(list[i]);
    Awaited* const awaited = pending != nullptr ? pending->awaited() : nullptr;
    if (awaited == nullptr) {
      rest.push_back(list[i]);
      continue;
    }
    auto matching = awaited->match();
    if (!matching->held().has_value()) {
      matchings.push_back(std::move(matching));
      rest.push_back(list[i]);
    } else if (const int code = awaited->startHeld(*matching); code != MPI_SUCCESS) {
      return code;
    }
  }
  return MPI_SUCCESS;
}

template <Layer layer>
int startAll(int count, MPI_Request* list) {
  const auto function = next<layer>().Startall;
  if (!requests::any()) return function(count, list);
  int code = packAll(count, list, "MPI_Startall");
  if (code != MPI_SUCCESS) return code;
  std::vector<MPI_Request> rest;
  std::vector<std::unique_ptr<Matching>> matchings;
  if (count > 0) code = startHeld(count, list, rest, matchings);
  if (code != MPI_SUCCESS) return code;
  code = static_cast<int>(rest.size()) == count || count < 0
             ? function(count, list)
             : function(static_cast<int>(rest.size()), rest.data());
  // After an error nobody knows which were started; of others nothing is received.
  activateAll(count, list);
  return code;
}

template <Layer layer>
int start(MPI_Request* request) {
  const auto function = next<layer>().Start;
  if (!requests::any()) return function(request);
  int code = packAll(1, request, "MPI_Start");
  if (code != MPI_SUCCESS) return code;
  std::vector<MPI_Request> rest;
  std::vector<std::unique_ptr<Matching>> matchings;
  code = startHeld(1, request, rest, matchings);
  if (code == MPI_SUCCESS && !rest.empty()) code = function(request);
  if (code == MPI_SUCCESS) activateAll(1, request);
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
