// SPDX-License-Identifier: Apache-2.0
//
// The requests under way whose buffers are staged, by MPI's own handles. A request is in the table
// from the call that made it until a completing call has taken it out, and only while MPI has not
// completed it: MPI uses handles again. A persistent one is in it until it is freed.
//
// Thread-safe. No lock is kept while MPI is called: a completing call takes its requests out, calls
// MPI, and puts back what was not completed.
#ifndef GMAC_MPI_ABI_REQUESTS_H_
#define GMAC_MPI_ABI_REQUESTS_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "mpi/abi/calls.h"
#include "mpi/abi/sent_ticket.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// A receive, in messages.h.
class Awaited;

// The staged buffers of a request, or a receive that may get a ticket.
class Pending {
 public:
  Pending() = default;
  virtual ~Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  // Packs what is sent, for MPI_Start(). False: failed, and nothing is sent.
  virtual bool pack() = 0;
  // MPI has completed it with that status: what was received goes to its buffer. False: failed.
  virtual bool deliver(const MPI_Status& status) = 0;
  // Makes the status that of the message; also of a request that MPI has completed with an error.
  virtual void amend(MPI_Status*) const {}
  // Whether what belongs to it besides has succeeded; asked when it is settled.
  virtual bool restSucceeded() { return true; }
  // Why something has failed; or with which error of MPI's.
  virtual const std::string& reason() const = 0;
  virtual int code() const { return MPI_SUCCESS; }
  // Whose error handler is told of a failure; and whether MPI tells it of none of its own.
  virtual MPI_Comm communicator() const { return MPI_COMM_WORLD; }
  virtual bool mpiTellsNobody() const { return false; }
  // Whether its buffer is the application's again as soon as MPI has completed it. Else it is to be
  // asked again, and MPI's completing calls not called meanwhile.
  virtual bool settled() { return true; }
  // This, where it is a receive of point to point.
  virtual Awaited* awaited() { return nullptr; }

  bool persistent = false;
  // MPI has begun and not completed it. Of a persistent one, between MPI_Start() and completion.
  std::atomic<bool> active{true};
  // What a completing call has delivered while the request remains: it is not done twice.
  std::atomic<bool> delivered{false};
  int result = MPI_SUCCESS;
  // A receive that cannot be cancelled: its message was matched before.
  bool matched = false;
  // Of a persistent receive that got a message which was matched before: the request that is under
  // way in its place.
  bool hasInstead = false;
  // Held while progress() delivers it. Who has taken it out of the table locks it once.
  std::mutex delivering;
  MPI_Request instead = MPI_REQUEST_NULL;
};
using PendingPtr = std::shared_ptr<Pending>;

namespace requests {

namespace internal {
extern std::atomic<std::size_t> underWay;
extern std::atomic<std::size_t> unsettled;
}  // namespace internal

// As long as this lives, requests are asked whether they are settled.
class MayBeUnsettled {
 public:
  MayBeUnsettled() { internal::unsettled.fetch_add(1, std::memory_order_acq_rel); }
  ~MayBeUnsettled() { internal::unsettled.fetch_sub(1, std::memory_order_acq_rel); }
  MayBeUnsettled(const MayBeUnsettled&) = delete;
  MayBeUnsettled& operator=(const MayBeUnsettled&) = delete;
};
// Whether any may not be. Two loads.
inline bool anyUnsettled() {
  return tickets::anyTransfers() || internal::unsettled.load(std::memory_order_acquire) != 0;
}

// Whether there are any. A load.
inline bool any() { return internal::underWay.load(std::memory_order_acquire) != 0; }

void add(MPI_Request request, PendingPtr pending);
// NULL for a request that is not in the table. take(): it is not any more.
PendingPtr find(MPI_Request request);
PendingPtr take(MPI_Request request);

// A request that MPI has completed with that status: what was received goes to its buffer, and the
// status becomes that of the message. The completing call's result, of which nobody is told.
int complete(Pending& pending, MPI_Status* status, const char* call);

// MPI_Request_free() of an active request: the payload is needed until MPI has completed it, which
// only we know now. Later calls of keepOrphans() look after it.
void orphan(MPI_Request request, PendingPtr pending);

// Delivers the receives in the table that MPI has completed; they remain. To be called while this
// process waits for others: that they wait for what it has not yet read. Lets MPI go on, too.
void progress();
// Waits until the message is settled: for no longer than it takes to leave a copy of it, or its
// receiver to read it.
void settle(SentTicket& ticket);
// The same for those of the requests that are in the table.
void settle(int count, const MPI_Request* list);
// Whether each is.
bool settled(int count, const MPI_Request* list);
// `all`: waits for them.
void keepOrphans(bool all);

}  // namespace requests
}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_REQUESTS_H_
