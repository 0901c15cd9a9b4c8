// SPDX-License-Identifier: Apache-2.0
//
// The table of pending requests whose buffers are staged, by MPI's own handles. A request is in it
// from the call that made it until a completing call takes it out, which happens before MPI
// completes it, because MPI reuses handles. A persistent request stays until it is freed.
//
// Thread-safe. No lock is held while MPI is called: a completing call takes its requests out, calls
// MPI, and puts back those that were not completed.
#ifndef GMAC_MPI_ABI_REQUESTS_H_
#define GMAC_MPI_ABI_REQUESTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "mpi/abi/calls.h"
#include "mpi/abi/sent_ticket.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// A receive, in messages.h.
class Awaited;

// A request with staged buffers, or a receive that may get a ticket.
class Pending {
 public:
  Pending() = default;
  virtual ~Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  // Packs the send buffer, for MPI_Start(). False: failed, and nothing is sent.
  virtual bool pack() = 0;
  // MPI has completed the request with that status: unpacks what was received. False: failed.
  virtual bool deliver(const MPI_Status& status) = 0;
  // Corrects the status: it becomes that of the message. Also for requests that MPI has completed
  // with an error.
  virtual void amend(MPI_Status*) const {}
  // Whether the other operations of this request have succeeded. Valid once it is settled.
  virtual bool restSucceeded() { return true; }
  // Why the request has failed: this library's reason, or MPI's error code.
  virtual const std::string& reason() const = 0;
  virtual int code() const { return MPI_SUCCESS; }
  // The communicator whose error handler is called, and whether MPI does not call it for its own
  // errors.
  virtual MPI_Comm communicator() const { return MPI_COMM_WORLD; }
  virtual bool mpiTellsNobody() const { return false; }
  // Whether the application may reuse the buffer as soon as MPI has completed the request. While
  // this is false, MPI's completing calls must not be called; ask again.
  virtual bool settled() { return true; }
  // Who may wait for this process to receive a ticket by this request: a rank in MPI_COMM_WORLD,
  // anybody, or nobody (any other negative number).
  static constexpr int kNobody = -1;
  static constexpr int kAnybody = -2;
  virtual int ticketSender() const { return kNobody; }
  // This object, if it is a point-to-point receive.
  virtual Awaited* awaited() { return nullptr; }

  bool persistent = false;
  // MPI has begun and not completed it. Of a persistent one, between MPI_Start() and completion.
  std::atomic<bool> active{true};
  // Set once the payload is delivered while the request stays in the table, so that it is delivered
  // once.
  std::atomic<bool> delivered{false};
  int result = MPI_SUCCESS;
  // The table's: in the order of the calls that have begun them. 0: not begun yet.
  std::uint64_t number = 0;
  // The table's, for want of memory: its key, and the next one of the same; itself, if it has to
  // live as long as the process.
  std::uint64_t key = 0;
  std::shared_ptr<Pending> next;
  // A receive that cannot be cancelled: its message was matched before.
  bool matched = false;
  // For a persistent receive that got a message which was matched before: the request that is
  // active in its place.
  bool hasInstead = false;
  // Held while progress() delivers the request. A thread that takes the request out of the table
  // locks it once, to wait for that.
  std::mutex delivering;
  MPI_Request instead = MPI_REQUEST_NULL;
};
using PendingPtr = std::shared_ptr<Pending>;

namespace requests {

namespace internal {
extern std::atomic<std::size_t> underWay;
extern std::atomic<std::size_t> unsettled;
}  // namespace internal

// While such an object lives, completing calls ask requests whether they are settled.
class MayBeUnsettled {
 public:
  MayBeUnsettled() { internal::unsettled.fetch_add(1, std::memory_order_acq_rel); }
  ~MayBeUnsettled() { internal::unsettled.fetch_sub(1, std::memory_order_acq_rel); }
  MayBeUnsettled(const MayBeUnsettled&) = delete;
  MayBeUnsettled& operator=(const MayBeUnsettled&) = delete;
};
// Whether any request may be unsettled. Two loads.
inline bool anyUnsettled() {
  return tickets::anyTransfers() || internal::unsettled.load(std::memory_order_acquire) != 0;
}

// Whether the table has any requests. A load.
inline bool any() { return internal::underWay.load(std::memory_order_acquire) != 0; }

// Needs no memory where there is none.
void add(MPI_Request request, PendingPtr pending) noexcept;
// MPI has begun a persistent request, if it is in the table.
void activate(MPI_Request request);
// Both return NULL for a request that is not in the table; take() also removes it.
PendingPtr find(MPI_Request request);
PendingPtr take(MPI_Request request);

// MPI has completed the request with that status: unpacks what was received and corrects the
// status. Returns the completing call's result, and calls no error handler.
int complete(Pending& pending, MPI_Status* status, const char* call);

// MPI_Request_free() of an active request. The payload is kept until MPI has completed the request;
// later calls of keepOrphans() test for that, since the application no longer can.
void orphan(MPI_Request request, PendingPtr pending) noexcept;

// Delivers receives that MPI has completed and whose senders may wait for this process to read;
// they stay in the table. Call it again and again while this process waits for others. Also drives
// MPI's progress. Looks at a few receives in each call, and at none as long as nobody waits.
void progress();
// Waits until the message is settled: at most until its receiver has read it or a copy has been
// left.
void settle(SentTicket& ticket);
// The same for each request of the list that is in the table.
void settle(int count, const MPI_Request* list);
// Whether each of those is settled.
bool settled(int count, const MPI_Request* list);
// Frees orphans that MPI has completed. `wait`: waits for the others, too.
void keepOrphans(bool wait);

}  // namespace requests
}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_REQUESTS_H_
