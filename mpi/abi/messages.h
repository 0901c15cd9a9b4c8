// SPDX-License-Identifier: Apache-2.0
//
// The requests of nonblocking and persistent messages.
#ifndef GMAC_MPI_ABI_MESSAGES_H_
#define GMAC_MPI_ABI_MESSAGES_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "mpi/abi/errors.h"
#include "mpi/abi/reception.h"
#include "mpi/abi/requests.h"
#include "mpi/abi/side.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// A message that is received.
class Awaited : public Pending {
 public:
  Awaited(bool staged, void* buffer, MPI_Count count, MPI_Datatype datatype, int source, int tag,
          MPI_Comm communicator, PeersPtr peers)
      : in(staged, buffer, count, datatype, communicator, peers, Reception::Ends::kLater),
        count_(count),
        source_(source),
        tag_(tag),
        peers_(std::move(peers)) {
    if (in.mayGetFragments()) mayBeUnsettled_.emplace();
  }
  explicit Awaited(PlainReceive& receive)
      : in(receive, receive.peers != nullptr ? receive.peers->communicator() : MPI_COMM_WORLD,
           Reception::Ends::kLater),
        count_(receive.count),
        source_(receive.source),
        tag_(MPI_ANY_TAG),
        peers_(receive.peers) {}

  bool pack() override { return true; }
  bool deliver(const MPI_Status& status) override {
    int cancelled = 0;
    return (real().Test_cancelled(&status, &cancelled) == MPI_SUCCESS && cancelled != 0) ||
           in.arrived(status);
  }
  void amend(MPI_Status* status) const override { in.amend(status); }
  const std::string& reason() const override { return in.reason(); }
  int code() const override { return in.code(); }
  // (The request's own communicator may have been freed.)
  MPI_Comm communicator() const override {
    return in.knowsCommunicator() ? in.communicator() : MPI_COMM_WORLD;
  }
  bool mpiTellsNobody() const override { return in.mpiToldNobody(); }
  Awaited* awaited() override { return this; }
  bool mayDeliver(const MPI_Status& status) override { return in.isHere(status); }
  // Where fragments may follow, MPI is asked before it ends the request.
  bool settled() override {
    if (!mayBeUnsettled_.has_value() || !active || delivered) {
      return true;
    }
    int done = 0;
    MPI_Status status = {};
    const MPI_Request request = hasInstead ? instead : requests::handleOf(entry);
    if (real().Request_get_status(request, &done, &status) != MPI_SUCCESS) {
      return true;
    }
    if (done == 0) in.attend();
    return done != 0 && in.isHere(status);
  }
  int ticketSender() const override {
    return peers_ == nullptr           ? kNobody
           : source_ == MPI_ANY_SOURCE ? kAnybody
                                       : peers_->rankInWorld(source_);
  }

  // Called when a persistent receive is started. If it gets a held message, another request is
  // active in its place.
  std::unique_ptr<Matching> match() {
    in.restart();
    matched = false;
    return std::make_unique<Matching>(peers_, source_, tag_);
  }
  int startHeld(Matching& matching) {
    Held& held = *matching.held();
    in.receives(held);
#if MPI_VERSION >= 4
    const MPI_Count count = count_;
#else
    const int count = static_cast<int>(count_);
#endif
    const int code = receiveHeld(in.address(), count, in.datatype(), held, &instead);
    hasInstead = matched = code == MPI_SUCCESS;
    if (notReceived(code)) {
      matching.putBack();
    }
    return code;
  }

  Reception in;

 private:
  const MPI_Count count_;
  const int source_;
  const int tag_;
  const PeersPtr peers_;
  std::optional<requests::MayBeUnsettled> mayBeUnsettled_;
};

// A message that is sent.
class Sent : public Pending {
 public:
  // Sends staged memory. `packs`: packs it now.
  Sent(const void* buffer, MPI_Count count, MPI_Datatype datatype, bool packs, SentTicket sent)
      : ticket(std::move(sent)), side(true, buffer, count, datatype, packs, &ticket) {}

  // Sends plain memory; the caller offers it to the receiver afterwards.
  Sent(SentTicket sent, MPI_Comm communicator)
      : ticket(std::move(sent)),
        side(false, nullptr, 0, MPI_BYTE, false),
        communicator_(communicator) {}

  bool pack() override {
    if (side.elements() != nullptr) (void)ticket.reserve(*side.elements());
    return side.pack();
  }
  bool deliver(const MPI_Status& status) override {
    int cancelled = 0;
    if (real().Test_cancelled(&status, &cancelled) == MPI_SUCCESS && cancelled != 0) {
      ticket.recall();
    }
    failure_ = ticket.failure();
    return failure_.empty();
  }
  const std::string& reason() const override { return failure_.empty() ? side.reason() : failure_; }
  MPI_Comm communicator() const override { return communicator_; }
  // If MPI completed the send of the ticket at once, the application has a request of ours, which
  // is completed here.
  bool settled() override {
    if (!ticket.settled()) return false;
    if (std::exchange(isOurs, false)) {
      (void)real().Grequest_complete(ours);
      unended_.reset();
    }
    return true;
  }
  // It stands in the table under a request of ours. (Its transfer may be over before anybody asks
  // whether it is settled: a kernel call, or another message, has seen to it.)
  void standsFor(MPI_Request request) {
    ours = request;
    isOurs = true;
    unended_.emplace();
  }

  SentTicket ticket;
  Side side;
  bool isOurs = false;
  MPI_Request ours = MPI_REQUEST_NULL;

 private:
  std::string failure_;
  MPI_Comm communicator_ = MPI_COMM_WORLD;
  std::optional<requests::MayBeUnsettled> unended_;
};

// A short message that is sent, once more is to be known of its request than where its copy is.
class SentShort : public Pending {
 public:
  explicit SentShort(StagingMemory sent) : sent_(std::move(sent)) {}
  bool pack() override { return true; }
  bool deliver(const MPI_Status&) override { return true; }
  const std::string& reason() const override { return reason_; }

 private:
  const StagingMemory sent_;
  const std::string reason_;  // it does not fail
};

// When MPI begins the operation: at the call, or at MPI_Start().
enum class Begins { kAtOnce, kByStart };

// Puts a request that MPI has made into the table.
template <typename Message>
void enter(Begins begins, std::shared_ptr<Message> message, MPI_Request request) {
  if (begins == Begins::kByStart) {
    message->persistent = true;
    message->active = false;
  }
  requests::add(request, std::move(message));
}

// Makes a generalized request, which MPI_Grequest_complete() completes. Its status is set by the
// completing call. It cannot be cancelled.
int makeOwnRequest(MPI_Request* request);

// Starts a receive of a held message. `count` is of either width.
template <typename Count>
int receiveHeldLater(const std::shared_ptr<Awaited>& message, Count count, Held& held,
                     MPI_Request* request) {
  message->in.receives(held);
  message->matched = true;
  const int code = receiveHeld(message->in.address(), count, message->in.datatype(), held, request);
  if (code == MPI_SUCCESS) {
    enter(Begins::kAtOnce, message, *request);
  } else if (message->mpiTellsNobody()) {
    (void)real().Comm_call_errhandler(message->communicator(), code);
  }
  return code;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_MESSAGES_H_
