// SPDX-License-Identifier: Apache-2.0
//
// The table of requests by MPI's own handles: those whose buffers are staged, and receives into
// plain memory that may get tickets. Of such receives, and of short messages of shared objects
// (short_message.h), it keeps so little that an entry takes some nanoseconds: these are its plain
// entries. A request is in it from the call that made it until a
// completing call takes it out. A persistent request stays until it is freed.
//
// Thread-safe. No lock is held while MPI is called. MPI uses handles again, and another thread's
// progress() may be at a request; so a completing call takes its requests out, calls MPI, and puts
// back those that were not completed. Plain entries may stay in the table meanwhile: beginPlain().
// Where one thread at a time calls MPI, no lock is taken.
#ifndef GMAC_MPI_ABI_REQUESTS_H_
#define GMAC_MPI_ABI_REQUESTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "mpi/abi/calls.h"
#include "mpi/abi/plain_receive.h"
#include "mpi/abi/sent_ticket.h"
#include "mpi/handle_table.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// A receive, in messages.h.
class Awaited;

class Pending;
using PendingPtr = std::shared_ptr<Pending>;

namespace requests {

struct Entry;

// The active receives whose tickets come from one process, or from any, that were not delivered: in
// the order of the calls that have begun them.
struct Receives {
  int sender = 0;  // as Pending::ticketSender()
  Entry* first = nullptr;
  Entry* last = nullptr;
  Entry* at = nullptr;  // where progress() goes on; NULL: at the first
  Receives* next = nullptr;
};

// A request in the table; its links are the table's.
struct Entry : HandleNode<Entry> {
  PendingPtr pending;  // which this is part of; NULL: a PlainEntry
  bool inTable = false;
  Receives* receives = nullptr;  // NULL: in no list
  Entry* before = nullptr;
  Entry* after = nullptr;
};

inline MPI_Request handleOf(const Entry& entry) {
  MPI_Request request;
  std::memcpy(&request, &entry.key, sizeof request);
  return request;
}

// The table's own, used again and again.
struct PlainEntry : Entry {
  PlainReceive receive;
  StagingMemory sent;  // of a short message that is sent; empty: it is received

  bool isSend() const { return sent.data() != nullptr; }
};

}  // namespace requests

// A request with staged buffers, or a receive that has got a ticket, or more to it than a plain
// one.
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
  // MPI has completed the request with that status: whether deliver() does not wait for other
  // processes. Thread-safe.
  virtual bool mayDeliver(const MPI_Status&) { return true; }
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
  requests::Entry entry;
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

namespace requests {

namespace internal {
extern std::atomic<std::size_t> underWay;
extern std::atomic<std::size_t> plain;
extern std::atomic<std::size_t> staged;
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
// Whether it has none but plain entries. Two loads.
inline bool onlyPlain() {
  return internal::underWay.load(std::memory_order_relaxed) ==
         internal::plain.load(std::memory_order_relaxed);
}
// Whether any of these is a receive to a shared object. A load.
inline bool anyStaged() { return internal::staged.load(std::memory_order_relaxed) != 0; }

// Needs no memory.
void add(MPI_Request request, PendingPtr pending) noexcept;
// MPI has begun a persistent request, if it is in the table.
void activate(MPI_Request request);
// Both return NULL for a request that is not in the table; take() also removes it. Of a plain
// entry, find() returns NULL, and take() what it has made of it.
PendingPtr find(MPI_Request request);
PendingPtr take(MPI_Request request);

// Room for a plain entry, to be had before MPI is called: then it is added, or released.
PlainEntry* reservePlain();
void addPlain(PlainEntry& entry, MPI_Request request) noexcept;
void release(PlainEntry& entry) noexcept;

// A call that completes requests may leave plain entries in the table meanwhile, if there is
// nothing else in it. From beginPlain(), which says whether that is so, to endPlain() nothing else
// is made of those in the call's list: progress() passes over them. The list is the call's own copy
// of the handles, and `last` of what was there before, as MPI may use a handle again as soon as it
// has completed a request.
struct Completing {
  const MPI_Request* list = nullptr;
  std::size_t count = 0;
  std::uint64_t last = 0;  // by beginPlain()
  // The table's.
  Completing* before = nullptr;
  Completing* after = nullptr;
};
bool beginPlain(Completing& call) noexcept;
void endPlain(Completing& call) noexcept;
// In between: removes the plain entries of the list, which have got no tickets.
void dropPlain(int count, const MPI_Request* list, std::uint64_t last) noexcept;
// For several at once, each as take() and add(): NULL where a request is not in the table, and what
// putBack() skips. What is taken is the caller's, who may end it: end().
void take(int count, const MPI_Request* list, Entry** taken,
          std::uint64_t last = UINT64_MAX) noexcept;
void putBack(std::size_t count, Entry* const* entries) noexcept;
void end(Entry& entry) noexcept;
// The taken entry's request; a plain entry becomes one. Throws bad_alloc.
Pending& pendingOf(Entry*& entry);
// MPI has completed the request of a plain entry that was taken: whether there is nothing more to
// do than to end it. What a short message has brought is in its place then. (A request that the
// application keeps is pendingOf()'s.)
bool isDone(PlainEntry& entry, const MPI_Status& status);

// What was there as a plain entry, whose private memory it takes. Calls no MPI. (In messages.cc.)
PendingPtr pendingFor(PlainEntry& entry);

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
