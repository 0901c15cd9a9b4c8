// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/requests.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "mpi/abi/errors.h"
#include "mpi/abi/fragments.h"
#include "mpi/abi/handle.h"
#include "mpi/abi/short_message.h"
#include "mpi/abi/types.h"
#include "mpi/spinning.h"

namespace gmac::mpi::GMAC_MPI_ABI::requests {

constinit std::atomic<std::size_t> internal::underWay{0};
constinit std::atomic<std::size_t> internal::plain{0};
constinit std::atomic<std::size_t> internal::staged{0};
constinit std::atomic<std::size_t> internal::unsettled{0};

namespace {

using internal::plain;
using internal::staged;
using internal::underWay;

struct Orphan {
  MPI_Request request;
  PendingPtr pending;
};

struct Table {
  std::mutex lock;  // guards what follows
  HandleTable<Entry> entries;
  std::vector<PlainEntry*> free;  // has room for all that there are
  std::vector<std::unique_ptr<PlainEntry[]>> plain;
  std::vector<std::unique_ptr<Receives>> bySender;  // number ticketSender() - kAnybody
  Receives* receives = nullptr;                     // all of those
  Completing* completing = nullptr;                 // calls since beginPlain()
  std::deque<Orphan> orphans;
  std::atomic<bool> anyOrphans{false};
};
Table& table() {
  static auto* const table = new Table;  // also for exit handlers
  return *table;
}

// Holds the table. Where one thread at a time calls MPI, nobody else can want it.
class Guard {
 public:
  explicit Guard(Table& all) : table_(concurrentCalls() ? &all : nullptr) {
    if (table_ != nullptr) table_->lock.lock();
  }
  ~Guard() {
    if (table_ != nullptr) table_->lock.unlock();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Table* table_;
};

// The following are under the lock.

void addTo(std::atomic<std::size_t>& number, std::size_t more) {
  number.store(number.load(std::memory_order_relaxed) + more, std::memory_order_release);
}

// Needs memory when it is asked about that sender for the first time.
Receives* receivesFrom(Table& all, int sender) {
  const auto number = static_cast<std::size_t>(sender - Pending::kAnybody);
  if (number >= all.bySender.size()) all.bySender.resize(number + 1);
  std::unique_ptr<Receives>& from = all.bySender[number];
  if (from == nullptr) {
    from = std::make_unique<Receives>();
    from->sender = sender;
    from->next = std::exchange(all.receives, from.get());
  }
  return from.get();
}

void list(Entry& entry, Receives& receives) {
  entry.receives = &receives;
  entry.after = nullptr;
  entry.before = std::exchange(receives.last, &entry);
  (entry.before != nullptr ? entry.before->after : receives.first) = &entry;
}

void list(Table& all, Pending& pending) {
  const int sender = pending.ticketSender();
  if ((sender != Pending::kAnybody && sender < 0) || !pending.active || pending.delivered) {
    return;
  }
  try {
    list(pending.entry, *receivesFrom(all, sender));
  } catch (const std::bad_alloc&) {
    // progress() does not look at it: its sender leaves a copy
  }
}

void list(Table& all, PlainEntry& entry) {
  const PlainReceive& receive = entry.receive;
  if (entry.isSend() || receive.peers == nullptr) {
    return;
  }
  const int sender = receive.source == MPI_ANY_SOURCE ? Pending::kAnybody
                                                      : receive.peers->rankInWorld(receive.source);
  try {
    list(entry, *receivesFrom(all, sender));
  } catch (const std::bad_alloc&) {
    // as above
  }
}

void unlist(Entry& entry) {
  Receives* const receives = std::exchange(entry.receives, nullptr);
  if (receives == nullptr) return;
  (entry.before != nullptr ? entry.before->after : receives->first) = entry.after;
  (entry.after != nullptr ? entry.after->before : receives->last) = entry.before;
  if (receives->at == &entry) receives->at = entry.after;
}

void countPlain(const Entry& entry, std::size_t more) {
  if (entry.pending != nullptr) return;
  addTo(plain, more);
  if (static_cast<const PlainEntry&>(entry).receive.isStaged()) addTo(staged, more);
}

void insert(Table& all, Entry& entry) {
  entry.inTable = true;
  all.entries.insert(entry);
  addTo(underWay, 1);
  countPlain(entry, 1);
}

Entry* remove(Table& all, MPI_Request request, std::uint64_t last = UINT64_MAX) {
  Entry* const entry = all.entries.remove(keyOf(request), last);
  if (entry != nullptr) {
    entry->inTable = false;
    unlist(*entry);
    addTo(underWay, std::size_t{0} - 1);
    countPlain(*entry, std::size_t{0} - 1);
  }
  return entry;
}

// The same as a request that can be delivered, not in the table.
PendingPtr madeOf(PlainEntry& entry) {
  PendingPtr pending = pendingFor(entry);
  pending->entry.key = entry.key;
  return pending;
}

// That takes its place in the table.
Pending& promote(Table& all, PlainEntry& entry) {
  const bool isStaged = entry.receive.isStaged();
  PendingPtr made = madeOf(entry);
  Entry& with = made->entry;
  with.pending = std::move(made);
  with.inTable = true;
  all.entries.replace(entry, with);
  if (Receives* const receives = entry.receives) {
    with.receives = receives;
    with.before = entry.before;
    with.after = entry.after;
    (with.before != nullptr ? with.before->after : receives->first) = &with;
    (with.after != nullptr ? with.after->before : receives->last) = &with;
    if (receives->at == &entry) receives->at = &with;
  }
  addTo(plain, std::size_t{0} - 1);
  if (isStaged) addTo(staged, std::size_t{0} - 1);
  entry.receives = nullptr;
  entry.inTable = false;
  entry.receive.type.reset();
  all.free.push_back(&entry);
  return *with.pending;
}

// Another thread's progress() may be at what is taken.
void waitForDelivery(const Entry* entry) {
  if (entry != nullptr && entry->pending != nullptr) {
    const std::lock_guard delivered(entry->pending->delivering);
  }
}

}  // namespace

void add(MPI_Request request, PendingPtr pending) noexcept {
  Table& all = table();
  const Guard guard(all);
  Entry& entry = pending->entry;
  entry.key = keyOf(request);
  entry.pending = std::move(pending);
  insert(all, entry);
  list(all, *entry.pending);
}

PlainEntry* reservePlain() {
  Table& all = table();
  const Guard guard(all);
  if (all.free.empty()) {
    constexpr std::size_t kMore = 64;
    all.free.reserve((all.plain.size() + 1) * kMore);
    all.plain.reserve(all.plain.size() + 1);
    auto more = std::make_unique<PlainEntry[]>(kMore);
    for (std::size_t i = kMore; i > 0; --i) all.free.push_back(&more[i - 1]);
    all.plain.push_back(std::move(more));
  }
  PlainEntry* const entry = all.free.back();
  all.free.pop_back();
  return entry;
}

void addPlain(PlainEntry& entry, MPI_Request request) noexcept {
  Table& all = table();
  const Guard guard(all);
  entry.key = keyOf(request);
  insert(all, entry);
  list(all, entry);
}

namespace {

// (What it knows of its communicator it keeps: most often the next one is of the same.)
void release(Table& all, PlainEntry& entry) {
  entry.receive.type.reset();
  entry.receive.staged = {};
  entry.sent = {};
  all.free.push_back(&entry);
}

}  // namespace

void release(PlainEntry& entry) noexcept {
  Table& all = table();
  const Guard guard(all);
  release(all, entry);
}

bool beginPlain(Completing& call) noexcept {
  Table& all = table();
  const Guard guard(all);
  if (!onlyPlain()) {
    return false;
  }
  call.last = all.entries.last();
  call.after = std::exchange(all.completing, &call);
  if (call.after != nullptr) call.after->before = &call;
  return true;
}

void endPlain(Completing& call) noexcept {
  Table& all = table();
  const Guard guard(all);
  (call.before != nullptr ? call.before->after : all.completing) = call.after;
  if (call.after != nullptr) call.after->before = call.before;
}

void dropPlain(int count, const MPI_Request* list, std::uint64_t last) noexcept {
  Table& all = table();
  const Guard guard(all);
  for (int i = 0; i < count; ++i) {
    if (Entry* const entry = remove(all, list[i], last)) {
      release(all, static_cast<PlainEntry&>(*entry));
    }
  }
}

PendingPtr find(MPI_Request request) {
  Table& all = table();
  const Guard guard(all);
  const Entry* const entry = all.entries.find(keyOf(request));
  return entry != nullptr ? entry->pending : nullptr;
}

void activate(MPI_Request request) {
  Table& all = table();
  const Guard guard(all);
  Entry* const entry = all.entries.find(keyOf(request));
  if (entry != nullptr && entry->pending != nullptr) {
    unlist(*entry);
    entry->pending->active = true;
    entry->pending->delivered = false;
    list(all, *entry->pending);
  }
}

PendingPtr take(MPI_Request request) {
  Table& all = table();
  Entry* entry = nullptr;
  {
    const Guard guard(all);
    entry = all.entries.find(keyOf(request));
    if (entry != nullptr && entry->pending == nullptr) {
      (void)promote(all, static_cast<PlainEntry&>(*entry));
    }
    entry = remove(all, request);
  }
  waitForDelivery(entry);
  return entry != nullptr ? std::move(entry->pending) : nullptr;
}

void take(int count, const MPI_Request* list, Entry** taken, std::uint64_t last) noexcept {
  Table& all = table();
  {
    const Guard guard(all);
    for (int i = 0; i < count; ++i) taken[i] = remove(all, list[i], last);
  }
  if (concurrentCalls()) std::for_each_n(taken, std::max(count, 0), &waitForDelivery);
}

void putBack(std::size_t count, Entry* const* entries) noexcept {
  Table& all = table();
  const Guard guard(all);
  for (Entry* const entry : std::span(entries, count)) {
    if (entry == nullptr) continue;
    insert(all, *entry);
    if (entry->pending != nullptr) {
      list(all, *entry->pending);
    } else {
      list(all, static_cast<PlainEntry&>(*entry));
    }
  }
}

void end(Entry& entry) noexcept {
  if (entry.pending != nullptr) {
    const PendingPtr ended = std::move(entry.pending);
  } else {
    release(static_cast<PlainEntry&>(entry));
  }
}

Pending& pendingOf(Entry*& entry) {
  if (entry->pending == nullptr) {
    auto& plainEntry = static_cast<PlainEntry&>(*entry);
    PendingPtr made = madeOf(plainEntry);
    entry = &made->entry;
    entry->pending = std::move(made);
    release(plainEntry);
  }
  return *entry->pending;
}

bool isDone(PlainEntry& entry, const MPI_Status& status) {
  PlainReceive& receive = entry.receive;
  if (entry.isSend() || isCancelled(status)) {
    return true;
  }
  const int sender = receive.peers != nullptr ? receive.peers->rankInWorld(status.MPI_SOURCE) : -1;
  if (sender >= 0 && hasTicketsLength(status)) {
    return false;
  }
  return !receive.isStaged() || unpackShort(receive.buffer, nullptr, receive.then, receive.staged,
                                            shortLength(status), sender);
}

namespace {

void deliverOnce(Pending& pending, const MPI_Status& status, const char* call) {
  if (pending.delivered.exchange(true)) {
    return;
  }
  try {
    pending.result = pending.deliver(status)         ? MPI_SUCCESS
                     : pending.code() != MPI_SUCCESS ? pending.code()
                                                     : errorCode(call, pending.reason());
  } catch (const std::bad_alloc&) {
    pending.result = noMemory(call);
  }
}

// Delivers a receive that MPI has completed, if it is in the table still and nobody is at it.
void deliverIfDone(const PendingPtr& pending) {
  Table& all = table();
  std::unique_lock delivering(pending->delivering, std::defer_lock);
  Entry& entry = pending->entry;
  {
    const Guard guard(all);
    // From now on nobody completes it: take() waits.
    if (!entry.inTable || !delivering.try_lock()) {
      return;
    }
  }
  const MPI_Request request = pending->hasInstead ? pending->instead : handleOf(entry);
  int done = 0;
  MPI_Status status = {};
  if (real().Request_get_status(request, &done, &status) != MPI_SUCCESS || done == 0 ||
      !pending->mayDeliver(status)) {
    return;
  }
  deliverOnce(*pending, status, "MPI_Wait");
  const Guard guard(all);
  if (entry.receives != nullptr) {
    entry.receives->at = entry.after;
    unlist(entry);
  }
}

// Whether a call is about to complete it. Few calls are at once, and only those of one that waits
// for a message have many requests.
bool isBeingCompleted(const Table& all, const Entry& entry) {
  for (const Completing* call = all.completing; call != nullptr; call = call->after) {
    const auto isThis = [&](MPI_Request request) { return keyOf(request) == entry.key; };
    if (entry.number <= call->last && std::any_of(call->list, call->list + call->count, isThis)) {
      return true;
    }
  }
  return false;
}

// How many receives from one process a call looks at: the newest, as the oldest may be open for
// long, and others in turn. It goes on where the last one has found something, or ended: what is
// received in the order of its receives is found at once.
constexpr std::size_t kLookedAt = 16;
constexpr std::size_t kNewest = 4;

void deliverFrom(Receives& receives) {
  Table& all = table();
  std::vector<PendingPtr> candidates;
  // Returns the entry that stands in its place.
  const auto look = [&](Entry* entry) {
    if (entry->pending == nullptr && !isBeingCompleted(all, *entry)) {
      entry = &promote(all, static_cast<PlainEntry&>(*entry)).entry;
    }
    if (entry->pending != nullptr) candidates.push_back(entry->pending);
    return entry;
  };
  {
    const Guard guard(all);
    candidates.reserve(kLookedAt);
    Entry* newest = receives.last;
    for (std::size_t i = 0; i < kNewest && newest != nullptr; ++i) {
      newest = look(newest)->before;
    }
    const Entry* first = nullptr;
    Entry* at = receives.at;
    for (std::size_t i = kNewest; i < kLookedAt; ++i) {
      if (at == nullptr) at = receives.first;
      if (at == nullptr || at == first) break;
      at = look(at);
      if (first == nullptr) first = at;
      at = at->after;
    }
    receives.at = at;
  }
  for (const PendingPtr& candidate : candidates) {
    deliverIfDone(candidate);
  }
}

}  // namespace

void progress() {
  Table& all = table();
  // (MPICH 4.0 calls an error handler when it is asked about a receive that was too short.)
  const bool fragmentsCome = fragments::mayComeFromAny();
  if (fragmentsCome || tickets::anyWaits()) {
    Receives* receives = nullptr;
    {
      const Guard guard(all);
      receives = all.receives;
    }
    // (None of them ever goes.)
    for (; receives != nullptr; receives = receives->next) {
      if (receives->sender == Pending::kAnybody || tickets::waits(receives->sender) ||
          (fragmentsCome && fragments::mayCome(receives->sender))) {
        deliverFrom(*receives);
      }
    }
  }
  int found = 0;
  (void)real().Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ownCommunicator(), &found, MPI_STATUS_IGNORE);
}

namespace {

// Until `settled()` is true. `bytes`: that others copy meanwhile.
template <typename Settled>
void wait(const Settled& settled, std::int64_t bytes = 0) {
  for (Spinning spinning(bytes); !settled(); spinning.turn()) {
    progress();
  }
}

}  // namespace

void settle(SentTicket& ticket) {
  wait([&] { return ticket.settled(); }, ticket.transferBytes());
}

bool settled(int count, const MPI_Request* list) {
  bool all = true;
  for (int i = 0; i < count && anyUnsettled(); ++i) {
    const PendingPtr pending = find(list[i]);
    all = (pending == nullptr || pending->settled()) && all;
  }
  return all;
}

void settle(int count, const MPI_Request* list) {
  wait([&] { return settled(count, list); });
}

int complete(Pending& pending, MPI_Status* status, const char* call) {
  // (MPI completes an inactive request at once, and has received nothing.)
  if (!pending.active) {
    return MPI_SUCCESS;
  }
  deliverOnce(pending, *status, call);
  if (pending.result == MPI_SUCCESS && !pending.restSucceeded()) {
    pending.result =
        pending.code() != MPI_SUCCESS ? pending.code() : errorCode(call, pending.reason());
  }
  pending.amend(status);
  return pending.result;
}

void orphan(MPI_Request request, PendingPtr pending) noexcept {
  Table& all = table();
  const Guard guard(all);
  try {
    all.orphans.push_back({request, pending});
    all.anyOrphans = true;
  } catch (const std::bad_alloc&) {
    Pending& kept = *pending;
    // Nobody asks for it any more, and MPI may use its payload.
    kept.entry.pending = std::move(pending);
  }
}

void keepOrphans(bool wait) {
  Table& all = table();
  if (!all.anyOrphans) {
    return;
  }
  // Without a wait, some of them in turn.
  constexpr std::size_t kAskedFor = 16;
  std::vector<Orphan> orphans;
  {
    const Guard guard(all);
    orphans.reserve(wait ? all.orphans.size() : std::min(kAskedFor, all.orphans.size()));
    while (!all.orphans.empty() && (wait || orphans.size() < kAskedFor)) {
      orphans.push_back(std::move(all.orphans.front()));
      all.orphans.pop_front();
    }
    all.anyOrphans = !all.orphans.empty();
  }
  for (Orphan& one : orphans) {
    MPI_Status status = {};
    int done = 0;
    if (!one.pending->settled()) {
      if (!wait) {
        orphan(one.request, std::move(one.pending));
        continue;
      }
      requests::wait([&] { return one.pending->settled(); });
    }
    int code = real().Test(&one.request, &done, &status);
    if (code == MPI_SUCCESS && done == 0 && wait) {
      // Maybe nobody sends what a receive waits for.
      if (one.pending->awaited() != nullptr && !one.pending->matched) {
        (void)real().Cancel(&one.request);
      }
      code = real().Wait(&one.request, &status);
      done = 1;
    }
    if (code == MPI_SUCCESS && done == 0) {
      orphan(one.request, std::move(one.pending));
    } else if (code == MPI_SUCCESS) {
      const int result = complete(*one.pending, &status, "MPI_Request_free");
      if (result != MPI_SUCCESS) {
        (void)real().Comm_call_errhandler(one.pending->communicator(), result);
      }
      if (one.pending->persistent && !one.pending->hasInstead) {
        (void)real().Request_free(&one.request);
      }
    }
  }
}

}  // namespace gmac::mpi::GMAC_MPI_ABI::requests
