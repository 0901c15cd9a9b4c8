// SPDX-License-Identifier: Apache-2.0
//
// Calls that complete requests.
#include <sched.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "mpi/abi/hooks.h"
#include "mpi/abi/requests.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// The requests of one call that are ours, out of the table while MPI is called. `list` is the
// call's own: where another request is under way in place of one, it stands there meanwhile.
class Taken {
 public:
  Taken(int count, MPI_Request* list)
      : list_(list),
        requests_(list, list + std::max(count, 0)),
        pending_(requests_.size()),
        results_(requests_.size()) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      pending_[i] = requests::take(requests_[i]);
      any_ = any_ || pending_[i] != nullptr;
      if (pending_[i] != nullptr && pending_[i]->hasInstead) {
        list_[i] = pending_[i]->instead;
      }
    }
  }
  // What MPI has not completed goes back.
  ~Taken() {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (pending_[i] != nullptr) {
        if (pending_[i]->hasInstead) list_[i] = requests_[i];
        requests::add(requests_[i], std::move(pending_[i]));
      }
    }
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  bool any() const { return any_; }
  // MPI has completed number `i` with success. The result for that one.
  int complete(int i, MPI_Status* status, const char* call) {
    const int result = show(i, status, call);
    end(i);
    return result;
  }
  // The same, and the request remains.
  int show(int i, MPI_Status* status, const char* call) {
    const PendingPtr& pending = pending_[static_cast<std::size_t>(i)];
    const int result =
        pending != nullptr ? requests::complete(*pending, status, call) : MPI_SUCCESS;
    if (code_ == MPI_SUCCESS && result != MPI_SUCCESS) {
      code_ = result;
      communicator_ = pending->communicator();
    }
    return result;
  }
  // MPI has completed it with an error.
  void fail(int i, int code, MPI_Status* status) {
    if (const PendingPtr& pending = pending_[static_cast<std::size_t>(i)]) {
      pending->amend(status);
      if (pending->mpiTellsNobody()) {
        (void)real().Comm_call_errhandler(pending->communicator(), code);
      }
    }
    end(i);
  }
  // The first failure of complete(), and whose error handler is to be told.
  int code() const { return code_; }
  MPI_Comm communicator() const { return communicator_; }
  // Room for as many results: when MPI has completed requests, nothing may fail.
  std::vector<int>& results() { return results_; }

 private:
  // A persistent request outlives its completion.
  void end(int i) {
    PendingPtr& pending = pending_[static_cast<std::size_t>(i)];
    if (pending == nullptr) {
      return;
    }
    pending->active = false;
    if (!pending->persistent) {
      pending.reset();
    } else if (std::exchange(pending->hasInstead, false)) {
      list_[i] = requests_[static_cast<std::size_t>(i)];
    }
  }

  MPI_Request* list_;
  std::vector<MPI_Request> requests_;
  std::vector<PendingPtr> pending_;
  std::vector<int> results_;
  bool any_ = false;
  int code_ = MPI_SUCCESS;
  MPI_Comm communicator_ = MPI_COMM_WORLD;
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

// Requests of a list that are not settled stand in it as MPI_REQUEST_NULL as long as this lives:
// MPI completes the others.
class Unsettled {
 public:
  Unsettled(int count, MPI_Request* list) : list_(list) {
    for (int i = 0; i < count && requests::anyUnsettled(); ++i) {
      const PendingPtr pending = requests::find(list[i]);
      if (pending != nullptr && !pending->settled()) {
        hidden_.emplace_back(i, list[i]);
        list[i] = MPI_REQUEST_NULL;
      }
    }
    if (any()) requests::progress();
  }
  ~Unsettled() {
    for (const auto& [i, request] : hidden_) list_[i] = request;
  }
  Unsettled(const Unsettled&) = delete;
  Unsettled& operator=(const Unsettled&) = delete;
  bool any() const { return !hidden_.empty(); }

 private:
  MPI_Request* list_;
  std::vector<std::pair<int, MPI_Request>> hidden_;
};

// What a call returns that completes one request.
int either(int code, const Taken& taken) {
  if (code == MPI_SUCCESS && taken.code() != MPI_SUCCESS) {
    code = taken.code();
    (void)real().Comm_call_errhandler(taken.communicator(), code);
  }
  return code;
}

// `done` requests of a call have ended, number i of them being indices[i] (NULL: i). The call's
// result.
int completeSeveral(Taken& taken, int code, int done, const int* indices, MPI_Status* statuses,
                    const char* call) {
  std::vector<int>& results = taken.results();
  for (int i = 0; i < done; ++i) {
    const int index = indices != nullptr ? indices[i] : i;
    const int error = code == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;
    int& result = results[static_cast<std::size_t>(i)];
    result = error;
    if (error == MPI_SUCCESS) {
      result = taken.complete(index, &statuses[i], call);
    } else if (error != MPI_ERR_PENDING) {
      taken.fail(index, error, &statuses[i]);
    }
  }
  if (taken.code() == MPI_SUCCESS) {
    return code;
  }
  for (int i = 0; i < done; ++i) {
    statuses[i].MPI_ERROR = results[static_cast<std::size_t>(i)];
  }
  if (code == MPI_SUCCESS) {
    (void)real().Comm_call_errhandler(taken.communicator(), MPI_ERR_IN_STATUS);
  }
  return MPI_ERR_IN_STATUS;
}

// Of errors that are in no status nobody knows which request is meant.
bool meansStatuses(int code) { return code == MPI_SUCCESS || code == MPI_ERR_IN_STATUS; }

template <Layer layer>
int wait(MPI_Request* request, MPI_Status* status) {
  const auto function = next<layer>().Wait;
  if (!requests::any()) return function(request, status);
  requests::settle(1, request);
  Taken taken(1, request);
  if (!taken.any()) return function(request, status);
  Statuses statuses(1, status);
  const int code = function(request, statuses.get());
  if (code == MPI_SUCCESS) {
    (void)taken.complete(0, statuses.get(), "MPI_Wait");
  } else {
    taken.fail(0, code, statuses.get());
  }
  return either(code, taken);
}

template <Layer layer>
int test(MPI_Request* request, int* flag, MPI_Status* status) {
  const auto function = next<layer>().Test;
  if (!requests::any()) return function(request, flag, status);
  if (!requests::settled(1, request)) {
    requests::progress();
    *flag = 0;
    return MPI_SUCCESS;
  }
  Taken taken(1, request);
  if (!taken.any()) return function(request, flag, status);
  Statuses statuses(1, status);
  const int code = function(request, flag, statuses.get());
  if (code != MPI_SUCCESS) {
    taken.fail(0, code, statuses.get());
  } else if (*flag != 0) {
    (void)taken.complete(0, statuses.get(), "MPI_Test");
  }
  return either(code, taken);
}

template <Layer layer>
int waitAll(int count, MPI_Request* list, MPI_Status* status) {
  const auto function = next<layer>().Waitall;
  if (!requests::any()) return function(count, list, status);
  requests::settle(count, list);
  Taken taken(count, list);
  if (!taken.any()) return function(count, list, status);
  Statuses statuses(count, status);
  const int code = function(count, list, statuses.get());
  return meansStatuses(code)
             ? completeSeveral(taken, code, count, nullptr, statuses.get(), "MPI_Waitall")
             : code;
}

template <Layer layer>
int testAll(int count, MPI_Request* list, int* flag, MPI_Status* status) {
  const auto function = next<layer>().Testall;
  if (!requests::any()) return function(count, list, flag, status);
  if (!requests::settled(count, list)) {
    requests::progress();
    *flag = 0;
    return MPI_SUCCESS;
  }
  Taken taken(count, list);
  if (!taken.any()) return function(count, list, flag, status);
  Statuses statuses(count, status);
  const int code = function(count, list, flag, statuses.get());
  return code == MPI_ERR_IN_STATUS || (code == MPI_SUCCESS && *flag != 0)
             ? completeSeveral(taken, code, count, nullptr, statuses.get(), "MPI_Testall")
             : code;
}

template <Layer layer>
int testAny(int count, MPI_Request* list, int* index, int* flag, MPI_Status* status) {
  const auto function = next<layer>().Testany;
  if (!requests::any()) return function(count, list, index, flag, status);
  const Unsettled unsettled(count, list);
  Taken taken(count, list);
  if (!unsettled.any() && !taken.any()) return function(count, list, index, flag, status);
  Statuses statuses(1, status);
  const int error = statuses.get()->MPI_ERROR;
  const int code = function(count, list, index, flag, statuses.get());
  if (code == MPI_SUCCESS && *index == MPI_UNDEFINED && unsettled.any()) {
    *flag = 0;
    statuses.get()->MPI_ERROR = error;  // of a list of nothing MPICH has said that it went well
  }
  if (code == MPI_SUCCESS && *flag != 0 && *index != MPI_UNDEFINED) {
    (void)taken.complete(*index, statuses.get(), "MPI_Testany");
  } else if (code != MPI_SUCCESS && *index >= 0 && *index < count) {
    taken.fail(*index, code, statuses.get());
  }
  return either(code, taken);
}

template <Layer layer>
int waitAny(int count, MPI_Request* list, int* index, MPI_Status* status) {
  const auto function = next<layer>().Waitany;
  if (!requests::any()) return function(count, list, index, status);
  if (!requests::settled(count, list)) {
    int flag = 0;
    while (true) {
      const int code = testAny<layer>(count, list, index, &flag, status);
      if (code != MPI_SUCCESS || flag != 0) return code;
      ::sched_yield();
    }
  }
  Taken taken(count, list);
  if (!taken.any()) return function(count, list, index, status);
  Statuses statuses(1, status);
  const int code = function(count, list, index, statuses.get());
  if (*index != MPI_UNDEFINED && code == MPI_SUCCESS) {
    (void)taken.complete(*index, statuses.get(), "MPI_Waitany");
  } else if (*index != MPI_UNDEFINED && *index >= 0 && *index < count) {
    taken.fail(*index, code, statuses.get());
  }
  return either(code, taken);
}

// MPI_Waitsome, MPI_Testsome.
template <Layer layer, auto call>
int some(int count, MPI_Request* list, int* done, int* indices, MPI_Status* status) {
  const auto function = next<layer>().*call;
  if (!requests::any()) return function(count, list, done, indices, status);
  if constexpr (call == &Calls::Waitsome) {
    if (!requests::settled(count, list)) {
      while (true) {
        const int code = some<layer, &Calls::Testsome>(count, list, done, indices, status);
        if (code != MPI_SUCCESS || *done != 0) return code;
        ::sched_yield();
      }
    }
  }
  const Unsettled unsettled(count, list);
  Taken taken(count, list);
  if (!unsettled.any() && !taken.any()) return function(count, list, done, indices, status);
  Statuses statuses(count, status);
  const int code = function(count, list, done, indices, statuses.get());
  if (code == MPI_SUCCESS && *done == MPI_UNDEFINED && unsettled.any()) *done = 0;
  return meansStatuses(code) && *done != MPI_UNDEFINED
             ? completeSeveral(taken, code, *done, indices, statuses.get(), kName<call>)
             : code;
}

// What the flag says is complete has its bytes in the buffer; the request stays.
template <Layer layer>
int getStatus(MPI_Request request, int* flag, MPI_Status* status) {
  const auto function = next<layer>().Request_get_status;
  if (!requests::any()) return function(request, flag, status);
  if (!requests::settled(1, &request)) {
    requests::progress();
    *flag = 0;
    return MPI_SUCCESS;
  }
  Taken taken(1, &request);
  if (!taken.any()) return function(request, flag, status);
  Statuses statuses(1, status);
  const int code = function(request, flag, statuses.get());
  if (code == MPI_SUCCESS && *flag != 0) {
    (void)taken.show(0, statuses.get(), "MPI_Request_get_status");
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
  const bool instead = pending->hasInstead;
  requests::orphan(instead ? pending->instead : *request, std::move(pending));
  if (instead) {
    return next<layer>().Request_free(request);
  }
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

// A receive whose message was matched before goes on.
template <Layer layer>
int cancel(MPI_Request* request) {
  const PendingPtr pending = requests::any() ? requests::find(*request) : nullptr;
  return pending != nullptr && pending->matched ? MPI_SUCCESS : next<layer>().Cancel(request);
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
      GMAC_MPI_HOOK(Cancel, cancel),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
