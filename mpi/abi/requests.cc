// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/requests.h"

#include <sched.h>

#include <cstdint>
#include <cstring>
#include <mutex>
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

struct Table {
  std::mutex lock;
  std::unordered_map<std::uint64_t, PendingPtr> entries;
  std::vector<Orphan> orphans;
  std::atomic<bool> anyOrphans{false};
};
Table& table() {
  static auto* const table = new Table;  // also for exit handlers
  return *table;
}

}  // namespace

void add(MPI_Request request, PendingPtr pending) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  all.entries[keyOf(request)] = std::move(pending);
  underWay.store(all.entries.size(), std::memory_order_release);
}

PendingPtr find(MPI_Request request) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  const auto found = all.entries.find(keyOf(request));
  return found != all.entries.end() ? found->second : nullptr;
}

PendingPtr take(MPI_Request request) {
  Table& all = table();
  PendingPtr pending;
  {
    const std::lock_guard guard(all.lock);
    const auto found = all.entries.find(keyOf(request));
    if (found == all.entries.end()) {
      return nullptr;
    }
    pending = std::move(found->second);
    all.entries.erase(found);
    underWay.store(all.entries.size(), std::memory_order_release);
  }
  // Another thread's progress() may be at it.
  const std::lock_guard delivered(pending->delivering);
  return pending;
}

namespace {

void deliverOnce(Pending& pending, const MPI_Status& status, const char* call) {
  if (!pending.delivered.exchange(true)) {
    pending.result = pending.deliver(status)         ? MPI_SUCCESS
                     : pending.code() != MPI_SUCCESS ? pending.code()
                                                     : errorCode(call, pending.reason());
  }
}

// Delivers a receive that MPI has completed, if it is in the table still and nobody is at it.
void deliverIfDone(std::uint64_t key, const PendingPtr& pending) {
  Table& all = table();
  std::unique_lock delivering(pending->delivering, std::defer_lock);
  {
    const std::lock_guard guard(all.lock);
    const auto found = all.entries.find(key);
    // From now on nobody completes it: take() waits.
    if (found == all.entries.end() || found->second != pending || !delivering.try_lock()) {
      return;
    }
  }
  MPI_Request request;
  std::memcpy(&request, &key, sizeof request);
  int done = 0;
  MPI_Status status = {};
  if (real().Request_get_status(pending->hasInstead ? pending->instead : request, &done, &status) ==
          MPI_SUCCESS &&
      done != 0) {
    deliverOnce(*pending, status, "MPI_Wait");
  }
}

}  // namespace

void progress() {
  Table& all = table();
  std::vector<std::pair<std::uint64_t, PendingPtr>> receives;
  // Without tickets nobody waits for what is delivered. (MPICH 4.0 calls an error handler when it
  // is asked about a receive that was too short.)
  if (tickets::inUse()) {
    const std::lock_guard guard(all.lock);
    for (const auto& [key, pending] : all.entries) {
      if (pending->active && !pending->delivered && pending->awaited() != nullptr) {
        receives.emplace_back(key, pending);
      }
    }
  }
  for (const auto& [key, pending] : receives) {
    deliverIfDone(key, pending);
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

void orphan(MPI_Request request, PendingPtr pending) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  all.orphans.push_back({request, std::move(pending)});
  all.anyOrphans = true;
}

void keepOrphans(bool wait) {
  Table& all = table();
  if (!all.anyOrphans) {
    return;
  }
  std::vector<Orphan> orphans;
  {
    const std::lock_guard guard(all.lock);
    orphans.swap(all.orphans);
    all.anyOrphans = false;
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
