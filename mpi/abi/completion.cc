// SPDX-License-Identifier: Apache-2.0
//
// Calls that complete requests.
#include <algorithm>
#include <vector>

#include "mpi/abi/hooks.h"
#include "mpi/abi/requests.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// The requests of one call that are ours, out of the table while MPI is called.
class Taken {
 public:
  Taken(int count, const MPI_Request* requests)
      : requests_(requests, requests + std::max(count, 0)), pending_(requests_.size()) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      pending_[i] = requests::take(requests_[i]);
      any_ = any_ || pending_[i] != nullptr;
    }
  }
  // What MPI has not completed goes back.
  ~Taken() {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (pending_[i] != nullptr) {
        requests::add(requests_[i], std::move(pending_[i]));
      }
    }
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  bool any() const { return any_; }
  // MPI has completed number `i` with success.
  void complete(int i, const MPI_Status& status, const char* call) {
    if (const PendingPtr& pending = pending_[static_cast<std::size_t>(i)]) {
      const int code = requests::complete(pending, status, call);
      code_ = code_ == MPI_SUCCESS ? code : code_;
    }
    forget(i);
  }
  // MPI has completed it with an error.
  void fail(int i) {
    if (const PendingPtr& pending = pending_[static_cast<std::size_t>(i)]) {
      pending->active = false;
    }
    forget(i);
  }
  // The first failure of complete().
  int code() const { return code_; }

 private:
  // A persistent request outlives its completion.
  void forget(int i) {
    PendingPtr& pending = pending_[static_cast<std::size_t>(i)];
    if (pending != nullptr && !pending->persistent) {
      pending.reset();
    }
  }

  std::vector<MPI_Request> requests_;
  std::vector<PendingPtr> pending_;
  bool any_ = false;
  int code_ = MPI_SUCCESS;
};

// Statuses for MPI, also for those who do not ask.
class Statuses {
 public:
  Statuses(int count, MPI_Status* asked) : asked_(asked) {
    if (asked == MPI_STATUSES_IGNORE || asked == MPI_STATUS_IGNORE) {
      own_.resize(static_cast<std::size_t>(std::max(count, 1)));
      asked_ = own_.data();
    }
  }
  MPI_Status* get() { return asked_; }

 private:
  std::vector<MPI_Status> own_;
  MPI_Status* asked_;
};

// `done` requests of a call have ended, number i of them being indices[i] (NULL: i).
void completeSeveral(Taken& taken, int code, int done, const int* indices, MPI_Status* statuses,
                     const char* call) {
  for (int i = 0; i < done; ++i) {
    const int index = indices != nullptr ? indices[i] : i;
    const int error = code == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;
    if (error == MPI_SUCCESS) {
      taken.complete(index, statuses[i], call);
    } else if (error != MPI_ERR_PENDING) {
      taken.fail(index);
    }
  }
}

int either(int code, const Taken& taken) { return code != MPI_SUCCESS ? code : taken.code(); }

// Of errors that are in no status nobody knows which request is meant.
bool meansStatuses(int code) { return code == MPI_SUCCESS || code == MPI_ERR_IN_STATUS; }

template <Layer layer>
int wait(MPI_Request* request, MPI_Status* status) {
  const auto function = next<layer>().Wait;
  if (!requests::any()) return function(request, status);
  Taken taken(1, request);
  if (!taken.any()) return function(request, status);
  Statuses statuses(1, status);
  const int code = function(request, statuses.get());
  if (code == MPI_SUCCESS) {
    taken.complete(0, *statuses.get(), "MPI_Wait");
  } else {
    taken.fail(0);
  }
  return either(code, taken);
}

template <Layer layer>
int test(MPI_Request* request, int* flag, MPI_Status* status) {
  const auto function = next<layer>().Test;
  if (!requests::any()) return function(request, flag, status);
  Taken taken(1, request);
  if (!taken.any()) return function(request, flag, status);
  Statuses statuses(1, status);
  const int code = function(request, flag, statuses.get());
  if (code != MPI_SUCCESS) {
    taken.fail(0);
  } else if (*flag != 0) {
    taken.complete(0, *statuses.get(), "MPI_Test");
  }
  return either(code, taken);
}

template <Layer layer>
int waitAll(int count, MPI_Request* list, MPI_Status* status) {
  const auto function = next<layer>().Waitall;
  if (!requests::any()) return function(count, list, status);
  Taken taken(count, list);
  if (!taken.any()) return function(count, list, status);
  Statuses statuses(count, status);
  const int code = function(count, list, statuses.get());
  if (meansStatuses(code)) {
    completeSeveral(taken, code, count, nullptr, statuses.get(), "MPI_Waitall");
  }
  return either(code, taken);
}

template <Layer layer>
int testAll(int count, MPI_Request* list, int* flag, MPI_Status* status) {
  const auto function = next<layer>().Testall;
  if (!requests::any()) return function(count, list, flag, status);
  Taken taken(count, list);
  if (!taken.any()) return function(count, list, flag, status);
  Statuses statuses(count, status);
  const int code = function(count, list, flag, statuses.get());
  if (code == MPI_ERR_IN_STATUS || (code == MPI_SUCCESS && *flag != 0)) {
    completeSeveral(taken, code, count, nullptr, statuses.get(), "MPI_Testall");
  }
  return either(code, taken);
}

template <Layer layer>
int waitAny(int count, MPI_Request* list, int* index, MPI_Status* status) {
  const auto function = next<layer>().Waitany;
  if (!requests::any()) return function(count, list, index, status);
  Taken taken(count, list);
  if (!taken.any()) return function(count, list, index, status);
  Statuses statuses(1, status);
  const int code = function(count, list, index, statuses.get());
  if (*index != MPI_UNDEFINED && code == MPI_SUCCESS) {
    taken.complete(*index, *statuses.get(), "MPI_Waitany");
  } else if (*index != MPI_UNDEFINED && *index >= 0 && *index < count) {
    taken.fail(*index);
  }
  return either(code, taken);
}

template <Layer layer>
int testAny(int count, MPI_Request* list, int* index, int* flag, MPI_Status* status) {
  const auto function = next<layer>().Testany;
  if (!requests::any()) return function(count, list, index, flag, status);
  Taken taken(count, list);
  if (!taken.any()) return function(count, list, index, flag, status);
  Statuses statuses(1, status);
  const int code = function(count, list, index, flag, statuses.get());
  if (code == MPI_SUCCESS && *flag != 0 && *index != MPI_UNDEFINED) {
    taken.complete(*index, *statuses.get(), "MPI_Testany");
  } else if (code != MPI_SUCCESS && *index >= 0 && *index < count) {
    taken.fail(*index);
  }
  return either(code, taken);
}

// MPI_Waitsome, MPI_Testsome.
template <Layer layer, auto call>
int some(int count, MPI_Request* list, int* done, int* indices, MPI_Status* status) {
  const auto function = next<layer>().*call;
  if (!requests::any()) return function(count, list, done, indices, status);
  Taken taken(count, list);
  if (!taken.any()) return function(count, list, done, indices, status);
  Statuses statuses(count, status);
  const int code = function(count, list, done, indices, statuses.get());
  if (meansStatuses(code) && *done != MPI_UNDEFINED) {
    completeSeveral(taken, code, *done, indices, statuses.get(), kName<call>);
  }
  return either(code, taken);
}

// What the flag says is complete has its bytes in the buffer; the request stays.
template <Layer layer>
int getStatus(MPI_Request request, int* flag, MPI_Status* status) {
  const auto function = next<layer>().Request_get_status;
  if (!requests::any()) return function(request, flag, status);
  Taken taken(1, &request);
  if (!taken.any()) return function(request, flag, status);
  Statuses statuses(1, status);
  const int code = function(request, flag, statuses.get());
  if (code == MPI_SUCCESS && *flag != 0) {
    taken.complete(0, *statuses.get(), "MPI_Request_get_status");
  }
  return either(code, taken);
}

// MPI forgets an active request when it has completed it.
template <Layer layer>
int freeRequest(MPI_Request* request) {
  PendingPtr pending = requests::any() ? requests::take(*request) : nullptr;
  if (pending == nullptr || !pending->active) {
    return next<layer>().Request_free(request);
  }
  requests::orphan(*request, std::move(pending));
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

}  // namespace

std::span<const Hook> completionHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOK(Wait, wait),
      GMAC_MPI_HOOK(Test, test),
      GMAC_MPI_HOOK(Waitall, waitAll),
      GMAC_MPI_HOOK(Testall, testAll),
      GMAC_MPI_HOOK(Waitany, waitAny),
      GMAC_MPI_HOOK(Testany, testAny),
      GMAC_MPI_HOOK(Waitsome, some, &Calls::Waitsome),
      GMAC_MPI_HOOK(Testsome, some, &Calls::Testsome),
      GMAC_MPI_HOOK(Request_get_status, getStatus),
      GMAC_MPI_HOOK(Request_free, freeRequest),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
