// SPDX-License-Identifier: Apache-2.0
//
// Calls that complete requests.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/requests.h"
#include "mpi/spinning.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// As many values as a call has requests, not initialised. Most calls have few.
template <typename Value>
class Several {
 public:
  explicit Several(int count) : count_(static_cast<std::size_t>(std::max(count, 0))) {
    if (count_ > kFew) {
      many_ = std::make_unique_for_overwrite<Value[]>(count_);
      values_ = many_.get();
    }
  }
  Several(const Several&) = delete;
  Several& operator=(const Several&) = delete;
  Value* data() { return values_; }
  const Value* data() const { return values_; }
  std::size_t size() const { return count_; }
  Value& operator[](int i) { return values_[i]; }
  const Value& operator[](int i) const { return values_[i]; }

 private:
  static constexpr std::size_t kFew = 64;
  std::size_t count_;
  Value few_[kFew];
  std::unique_ptr<Value[]> many_;
  Value* values_ = few_;
};

// The handles of a call's requests before MPI has completed any, while plain entries stay in the
// table.
class Before {
 public:
  Before(int count, const MPI_Request* list) : list_(list), handles_(count) {
    tickets::sweep();
    std::copy_n(list, handles_.size(), handles_.data());
    call_.list = handles_.data();
    call_.count = handles_.size();
    mayStay_ = (count <= kMostLookedThrough || !concurrentCalls()) && requests::beginPlain(call_);
  }
  ~Before() {
    if (mayStay_) requests::endPlain(call_);
  }
  Before(const Before&) = delete;
  Before& operator=(const Before&) = delete;
  // False: other requests are in the table.
  explicit operator bool() const { return mayStay_; }
  // Calls MPI. Where its error handler throws, what it has completed is forgotten.
  template <typename Call>
  int complete(const Call& call) const {
    try {
      return call();
    } catch (...) {
      for (int i = 0; i < static_cast<int>(handles_.size()); ++i) {
        if (handles_[i] != list_[i]) drop(i, 1);
      }
      throw;
    }
  }
  const MPI_Request* handles() const { return handles_.data(); }
  std::uint64_t last() const { return call_.last; }
  // Those were completed, and nothing is left to do.
  void drop(int first, int count) const {
    requests::dropPlain(count, handles_.data() + first, call_.last);
  }

 private:
  // Other threads' progress() looks through the lists of such calls, for each receive.
  static constexpr int kMostLookedThrough = 256;

  const MPI_Request* list_;
  Several<MPI_Request> handles_;
  requests::Completing call_;
  bool mayStay_ = false;
};

// The requests of one call that are ours, out of the table while MPI is called. `list` is the
// call's own: where another request is under way in place of one, it stands there meanwhile.
class Taken {
 public:
  Taken(int count, MPI_Request* list) : Taken(count, list, list, UINT64_MAX) {}
  // The same after MPI was called: `count` of those from number `first` on.
  Taken(const Before& before, int first, int count, MPI_Request* list)
      : Taken(count, list, before.handles() + first, before.last()) {}
  // Requests that MPI has not completed go back. (Where its error handler has thrown, only the list
  // tells what it has completed.)
  ~Taken() {
    for (int i = 0; any_ && i < static_cast<int>(entries_.size()); ++i) {
      if (list_[i] == MPI_REQUEST_NULL) end(i);
      if (Pending* const pending = pendingAt(i); pending != nullptr && pending->hasInstead) {
        list_[i] = handleOf(*entries_[i]);
      }
    }
    if (any_) requests::putBack(entries_.size(), entries_.data());
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  bool any() const { return any_; }
  // MPI has completed number `i` with success. The result for that one.
  int complete(int i, MPI_Status* status, const char* call) {
    requests::PlainEntry* const plain = plainAt(i);
    const int result =
        plain != nullptr && requests::isDone(*plain, *status) ? MPI_SUCCESS : show(i, status, call);
    end(i);
    return result;
  }
  // The same, and the request remains.
  int show(int i, MPI_Status* status, const char* call) {
    requests::Entry*& entry = entries_[i];
    if (entry == nullptr) {
      return MPI_SUCCESS;
    }
    if (const requests::PlainEntry* const plain = plainAt(i);
        plain != nullptr && !plain->receive.isStaged() && !hasTicketsLength(*status)) {
      return MPI_SUCCESS;
    }
    MPI_Comm communicator = MPI_COMM_WORLD;
    int result = MPI_SUCCESS;
    try {
      Pending& pending = requests::pendingOf(entry);
      result = requests::complete(pending, status, call);
      communicator = pending.communicator();
    } catch (const std::bad_alloc&) {
      result = noMemory(call);
    }
    if (code_ == MPI_SUCCESS && result != MPI_SUCCESS) {
      code_ = result;
      communicator_ = communicator;
    }
    return result;
  }
  // MPI has completed it with an error.
  void fail(int i, int code, MPI_Status* status) {
    if (const Pending* const pending = pendingAt(i)) {
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
  Several<int>& results() { return results_; }

 private:
  Taken(int count, MPI_Request* list, const MPI_Request* handles, std::uint64_t last)
      : list_(list), entries_(count), results_(count) {
    tickets::sweep();
    requests::take(static_cast<int>(entries_.size()), handles, entries_.data(), last);
    for (int i = 0; i < static_cast<int>(entries_.size()); ++i) {
      any_ = any_ || entries_[i] != nullptr;
      if (const Pending* const pending = pendingAt(i); pending != nullptr && pending->hasInstead) {
        list_[i] = pending->instead;
      }
    }
  }
  // NULL: it is not ours, or not a plain one.
  requests::PlainEntry* plainAt(int i) const {
    requests::Entry* const entry = entries_[i];
    return entry != nullptr && entry->pending == nullptr ? static_cast<requests::PlainEntry*>(entry)
                                                         : nullptr;
  }
  // NULL: it is not ours, or a plain one.
  Pending* pendingAt(int i) const {
    return entries_[i] != nullptr ? entries_[i]->pending.get() : nullptr;
  }
  // A persistent request outlives its completion.
  void end(int i) {
    requests::Entry*& entry = entries_[i];
    if (entry == nullptr) {
      return;
    }
    Pending* const pending = entry->pending.get();
    if (pending == nullptr || !pending->persistent) {
      requests::end(*std::exchange(entry, nullptr));
      return;
    }
    pending->active = false;
    if (std::exchange(pending->hasInstead, false)) {
      list_[i] = handleOf(*entry);
    }
  }

  MPI_Request* list_;
  Several<requests::Entry*> entries_;
  Several<int> results_;
  bool any_ = false;
  int code_ = MPI_SUCCESS;
  MPI_Comm communicator_ = MPI_COMM_WORLD;
};

// Statuses for MPI, also for those who do not ask.
class Statuses {
 public:
  Statuses(int count, MPI_Status* asked) : own_(ignores(asked) ? std::max(count, 1) : 0) {
    std::fill_n(own_.data(), own_.size(), MPI_Status{});
    asked_ = ignores(asked) ? own_.data() : asked;
  }
  MPI_Status* get() { return asked_; }

 private:
  static bool ignores(const MPI_Status* asked) {
    return asked == MPI_STATUSES_IGNORE || asked == MPI_STATUS_IGNORE;
  }
  Several<MPI_Status> own_;
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

// The result of a call that completes one request.
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
  Several<int>& results = taken.results();
  for (int i = 0; i < done; ++i) {
    const int index = indices != nullptr ? indices[i] : i;
    const int error = code == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;
    int& result = results[i];
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
    statuses[i].MPI_ERROR = results[i];
  }
  if (code == MPI_SUCCESS) {
    (void)real().Comm_call_errhandler(taken.communicator(), MPI_ERR_IN_STATUS);
  }
  return MPI_ERR_IN_STATUS;
}

// Of errors that are in no status nobody knows which request is meant.
bool meansStatuses(int code) { return code == MPI_SUCCESS || code == MPI_ERR_IN_STATUS; }

// Whether nothing is left to do for plain entries of these statuses but to drop them.
bool nothingCame(const MPI_Status* statuses, int count) {
  return !requests::anyStaged() && std::none_of(statuses, statuses + count, &hasTicketsLength);
}

// MPI has ended number `i` of a list with that code; nothing but plain entries was in the table.
// The call's result.
int endPlain(const Before& before, int i, int code, MPI_Request* list, MPI_Status* status,
             const char* call) {
  if (code == MPI_SUCCESS && nothingCame(status, 1)) {
    before.drop(i, 1);
    return code;
  }
  Taken taken(before, i, 1, list + i);
  if (code == MPI_SUCCESS) {
    (void)taken.complete(0, status, call);
  } else {
    taken.fail(0, code, status);
  }
  return either(code, taken);
}

// The same if `ended` and the index is one of the list; else nothing is.
int endAnyPlain(const Before& before, int count, MPI_Request* list, int index, bool ended, int code,
                MPI_Status* status, const char* call) {
  return ended && index != MPI_UNDEFINED && index >= 0 && index < count
             ? endPlain(before, index, code, list, status, call)
             : code;
}

// The same of several, as in completeSeveral(), of a list of `count`.
int endSeveralPlain(const Before& before, int count, MPI_Request* list, int code, int done,
                    const int* indices, MPI_Status* statuses, const char* call) {
  if (code == MPI_SUCCESS && nothingCame(statuses, done)) {
    if (indices == nullptr) {
      before.drop(0, done);
    } else {
      std::for_each_n(indices, done, [&](int index) { before.drop(index, 1); });
    }
    return code;
  }
  Taken taken(before, 0, count, list);
  return completeSeveral(taken, code, done, indices, statuses, call);
}

template <Layer layer>
int wait(MPI_Request* request, MPI_Status* status) {
  const auto function = next<layer>().Wait;
  if (!requests::any()) return function(request, status);
  if (const Before before(1, request); before) {
    Statuses statuses(1, status);
    const int code = before.complete([&] { return function(request, statuses.get()); });
    return endPlain(before, 0, code, request, statuses.get(), "MPI_Wait");
  }
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
  if (const Before before(1, request); before) {
    Statuses statuses(1, status);
    const int code = before.complete([&] { return function(request, flag, statuses.get()); });
    return code == MPI_SUCCESS && *flag == 0
               ? code
               : endPlain(before, 0, code, request, statuses.get(), "MPI_Test");
  }
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
  if (const Before before(count, list); before) {
    Statuses statuses(count, status);
    const int code = before.complete([&] { return function(count, list, statuses.get()); });
    return meansStatuses(code) ? endSeveralPlain(before, count, list, code, count, nullptr,
                                                 statuses.get(), "MPI_Waitall")
                               : code;
  }
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
  if (const Before before(count, list); before) {
    Statuses statuses(count, status);
    const int code = before.complete([&] { return function(count, list, flag, statuses.get()); });
    return code == MPI_ERR_IN_STATUS || (code == MPI_SUCCESS && *flag != 0)
               ? endSeveralPlain(before, count, list, code, count, nullptr, statuses.get(),
                                 "MPI_Testall")
               : code;
  }
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
  if (const Before before(count, list); before) {
    Statuses statuses(1, status);
    const int code =
        before.complete([&] { return function(count, list, index, flag, statuses.get()); });
    return endAnyPlain(before, count, list, *index, code != MPI_SUCCESS || *flag != 0, code,
                       statuses.get(), "MPI_Testany");
  }
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
  if (const Before before(count, list); before) {
    Statuses statuses(1, status);
    const int code = before.complete([&] { return function(count, list, index, statuses.get()); });
    return endAnyPlain(before, count, list, *index, true, code, statuses.get(), "MPI_Waitany");
  }
  if (!requests::settled(count, list)) {
    int flag = 0;
    for (Spinning spinning;; spinning.turn()) {
      const int code = testAny<layer>(count, list, index, &flag, status);
      if (code != MPI_SUCCESS || flag != 0) return code;
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
  if (const Before before(count, list); before) {
    Statuses statuses(count, status);
    const int code =
        before.complete([&] { return function(count, list, done, indices, statuses.get()); });
    return meansStatuses(code) && *done != MPI_UNDEFINED
               ? endSeveralPlain(before, count, list, code, *done, indices, statuses.get(),
                                 kName<call>)
               : code;
  }
  if constexpr (call == &Calls::Waitsome) {
    if (!requests::settled(count, list)) {
      for (Spinning spinning;; spinning.turn()) {
        const int code = some<layer, &Calls::Testsome>(count, list, done, indices, status);
        if (code != MPI_SUCCESS || *done != 0) return code;
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

// The message that the flag calls complete has its bytes in the buffer; the request stays.
template <Layer layer>
int getStatus(MPI_Request request, int* flag, MPI_Status* status) {
  const auto function = next<layer>().Request_get_status;
  if (!requests::any()) return function(request, flag, status);
  if (requests::onlyPlain()) {
    Statuses statuses(1, status);
    const int code = function(request, flag, statuses.get());
    if (code != MPI_SUCCESS || *flag == 0 || nothingCame(statuses.get(), 1)) return code;
    Taken taken(1, &request);
    (void)taken.show(0, statuses.get(), "MPI_Request_get_status");
    return either(code, taken);
  }
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
