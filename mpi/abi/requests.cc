// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/requests.h"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mpi/abi/errors.h"

namespace gmac::mpi::GMAC_MPI_ABI::requests {

constinit std::atomic<std::size_t> internal::underWay{0};

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

std::uint64_t keyOf(MPI_Request request) {
  static_assert(sizeof request <= sizeof(std::uint64_t));
  std::uint64_t key = 0;
  std::memcpy(&key, &request, sizeof request);
  return key;
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
  const std::lock_guard guard(all.lock);
  const auto found = all.entries.find(keyOf(request));
  if (found == all.entries.end()) {
    return nullptr;
  }
  PendingPtr pending = std::move(found->second);
  all.entries.erase(found);
  underWay.store(all.entries.size(), std::memory_order_release);
  return pending;
}

int complete(Pending& pending, MPI_Status* status, const char* call) {
  // (MPI completes an inactive request at once, and has received nothing.)
  if (!pending.active) {
    return MPI_SUCCESS;
  }
  if (!std::exchange(pending.delivered, true)) {
    pending.result = pending.deliver(*status)        ? MPI_SUCCESS
                     : pending.code() != MPI_SUCCESS ? pending.code()
                                                     : errorCode(call, pending.reason());
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
