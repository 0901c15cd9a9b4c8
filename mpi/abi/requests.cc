// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/requests.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mpi/abi/errors.h"
#include "mpi/abi/handle.h"
#include "mpi/abi/types.h"

namespace gmac::mpi::GMAC_MPI_ABI::requests {

constinit std::atomic<std::size_t> internal::underWay{0};
constinit std::atomic<std::size_t> internal::unsettled{0};

namespace {

using internal::underWay;

struct Orphan {
  MPI_Request request;
  PendingPtr pending;
};

// The active receives whose tickets come from one process, or from any, that were not delivered.
struct Receives {
  std::map<std::uint64_t, std::uint64_t> keys;  // by their numbers
  std::uint64_t next = 0;                       // the number at which progress() goes on
};

struct Table {
  std::mutex lock;
  std::unordered_map<std::uint64_t, PendingPtr> entries;
  PendingPtr more;  // those for which there was no memory, by Pending::next
  std::size_t moreCount = 0;
  std::map<int, Receives> receives;  // by Pending::ticketSender()
  std::uint64_t begun = 0;
  std::deque<Orphan> orphans;
  std::atomic<bool> anyOrphans{false};
};
Table& table() {
  static auto* const table = new Table;  // also for exit handlers
  return *table;
}

// Both under the lock.
void list(Table& all, std::uint64_t key, Pending& pending) {
  if (const int sender = pending.ticketSender();
      sender != Pending::kNobody && pending.active && !pending.delivered) {
    if (pending.number == 0) pending.number = ++all.begun;
    all.receives[sender].keys[pending.number] = key;
  }
}
void unlist(Table& all, const Pending& pending) {
  if (pending.number == 0) return;
  const auto found = all.receives.find(pending.ticketSender());
  if (found != all.receives.end() && found->second.keys.erase(pending.number) != 0 &&
      found->second.keys.empty()) {
    all.receives.erase(found);
  }
}

}  // namespace

void add(MPI_Request request, PendingPtr pending) noexcept {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  const std::uint64_t key = keyOf(request);
  try {
    Pending& added = *(all.entries[key] = pending);
    try {
      list(all, key, added);
    } catch (const std::bad_alloc&) {
      // progress() does not look at it: its sender leaves a copy
    }
  } catch (const std::bad_alloc&) {
    Pending& added = *pending;
    added.key = key;
    added.next = std::exchange(all.more, std::move(pending));
    ++all.moreCount;
  }
  underWay.store(all.entries.size() + all.moreCount, std::memory_order_release);
}

namespace {

// Under the lock: the link to one for which there was no memory; NULL: there is none.
PendingPtr* findMore(Table& all, std::uint64_t key) {
  PendingPtr* link = &all.more;
  while (*link != nullptr && (*link)->key != key) link = &(*link)->next;
  return *link != nullptr ? link : nullptr;
}

}  // namespace

PendingPtr find(MPI_Request request) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  const std::uint64_t key = keyOf(request);
  if (const auto found = all.entries.find(key); found != all.entries.end()) {
    return found->second;
  }
  PendingPtr* const link = findMore(all, key);
  return link != nullptr ? *link : nullptr;
}

void activate(MPI_Request request) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  const std::uint64_t key = keyOf(request);
  if (const auto found = all.entries.find(key); found != all.entries.end()) {
    Pending& pending = *found->second;
    unlist(all, pending);
    pending.number = 0;
    pending.active = true;
    pending.delivered = false;
    list(all, key, pending);
  } else if (PendingPtr* const link = findMore(all, key)) {
    (*link)->active = true;
    (*link)->delivered = false;
  }
}

PendingPtr take(MPI_Request request) {
  Table& all = table();
  PendingPtr pending;
  {
    const std::lock_guard guard(all.lock);
    const std::uint64_t key = keyOf(request);
    if (const auto found = all.entries.find(key); found != all.entries.end()) {
      pending = std::move(found->second);
      all.entries.erase(found);
      unlist(all, *pending);
    } else if (PendingPtr* const link = findMore(all, key)) {
      pending = *link;
      *link = std::exchange(pending->next, nullptr);
      --all.moreCount;
    } else {
      return nullptr;
    }
    underWay.store(all.entries.size() + all.moreCount, std::memory_order_release);
  }
  // Another thread's progress() may be at it.
  const std::lock_guard delivered(pending->delivering);
  return pending;
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
// Whether it did.
bool deliverIfDone(std::uint64_t key, const PendingPtr& pending) {
  Table& all = table();
  std::unique_lock delivering(pending->delivering, std::defer_lock);
  {
    const std::lock_guard guard(all.lock);
    const auto found = all.entries.find(key);
    // From now on nobody completes it: take() waits.
    if (found == all.entries.end() || found->second != pending || !delivering.try_lock()) {
      return false;
    }
  }
  MPI_Request request;
  std::memcpy(&request, &key, sizeof request);
  int done = 0;
  MPI_Status status = {};
  if (real().Request_get_status(pending->hasInstead ? pending->instead : request, &done, &status) !=
          MPI_SUCCESS ||
      done == 0) {
    return false;
  }
  deliverOnce(*pending, status, "MPI_Wait");
  const std::lock_guard guard(all.lock);
  unlist(all, *pending);
  return true;
}

// How many receives from one process a call looks at. It goes on where the last one has found
// something, or ended: what is received in the order of its receives is found at once.
constexpr std::size_t kLookedAt = 16;

void deliverFrom(int sender) {
  Table& all = table();
  struct Candidate {
    std::uint64_t number;
    std::uint64_t key;
    PendingPtr pending;
  };
  std::vector<Candidate> candidates;
  {
    const std::lock_guard guard(all.lock);
    const auto found = all.receives.find(sender);
    if (found == all.receives.end()) {
      return;
    }
    const auto& keys = found->second.keys;
    auto at = keys.lower_bound(found->second.next);
    for (std::size_t i = std::min(kLookedAt, keys.size()); i > 0; --i, ++at) {
      if (at == keys.end()) at = keys.begin();
      candidates.push_back({at->first, at->second, all.entries.at(at->second)});
    }
  }
  std::uint64_t next = candidates.back().number + 1;
  for (const Candidate& one : candidates) {
    if (deliverIfDone(one.key, one.pending)) next = one.number + 1;
  }
  const std::lock_guard guard(all.lock);
  if (const auto found = all.receives.find(sender); found != all.receives.end()) {
    found->second.next = next;
  }
}

}  // namespace

void progress() {
  Table& all = table();
  // (MPICH 4.0 calls an error handler when it is asked about a receive that was too short.)
  if (tickets::anyWaits()) {
    std::vector<int> senders;
    {
      const std::lock_guard guard(all.lock);
      for (const auto& [sender, receives] : all.receives) {
        if (sender == Pending::kAnybody || tickets::waits(sender)) senders.push_back(sender);
      }
    }
    for (const int sender : senders) {
      deliverFrom(sender);
    }
  }
  int found = 0;
  (void)real().Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ownCommunicator(), &found, MPI_STATUS_IGNORE);
}

namespace {

// Until `settled()` is true.
template <typename Settled>
void wait(const Settled& settled) {
  constexpr int kSpins = 16;
  for (int round = 0; !settled(); ++round) {
    progress();
    if (round >= kSpins) {
      ::sched_yield();
    }
  }
}

}  // namespace

void settle(SentTicket& ticket) {
  wait([&] { return ticket.settled(); });
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
  const std::lock_guard guard(all.lock);
  try {
    all.orphans.push_back({request, pending});
    all.anyOrphans = true;
  } catch (const std::bad_alloc&) {
    Pending& kept = *pending;
    kept.next = std::move(pending);  // nobody asks for it any more, and MPI may use its payload
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
    const std::lock_guard guard(all.lock);
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
