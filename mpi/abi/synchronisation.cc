// SPDX-License-Identifier: Apache-2.0
//
// Synchronisations of windows. They complete one-sided operations whose buffers here are staged;
// and where a window has a public copy, they bring that and the application's together.
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/one_sided.h"
#include "mpi/abi/separate_window.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// The effect of a call on the two copies of a window.
struct Effect {
  bool publishes = false;    // before it: what this process has written
  bool nothingNew = false;   // it has written nothing, says the application
  bool collects = false;     // after it: what others have written
  bool collectsOwn = false;  // the same, if this process has been among them
};

// Which operations a call completes: none; those with one target, or all.
struct Completes {
  bool any = false;
  std::optional<int> target;
};
constexpr Completes kNone;
constexpr Completes kAll = {true, std::nullopt};

// A synchronisation, done by `call`. It completes the operations that had begun before. `done()`:
// whether the call, which has succeeded, was one.
template <typename Call, typename Done>
int synchronise(const char* name, MPI_Win window, const SeparateWindowPtr& copies, Effect effect,
                Completes completes, const Call& call, const Done& done) {
  if (copies == nullptr && !(completes.any && operations::any())) {
    return call();
  }
  std::string reason;
  bool failed = copies != nullptr && effect.publishes && !copies->publish(&reason);
  std::vector<OperationPtr> begun;
  if (completes.any) {
    begun = operations::of(window, completes.target);
  }
  // Whatever has failed here: other processes wait for this one.
  const int code = call();
  if (code != MPI_SUCCESS || !done()) {
    return code;
  }
  for (const OperationPtr& operation : begun) {
    if (!operation->finish() && !failed) {
      reason = operation->reason();
      failed = true;
    }
    operations::remove(operation);
  }
  if (copies != nullptr) {
    copies->lastPublished = begun.empty() && (effect.publishes || effect.nothingNew);
    std::string other;
    const bool own = (effect.collects || effect.collectsOwn) && copies->takeOwnTarget();
    if ((effect.collects || own) && !copies->collect(&other) && !failed) {
      reason = other;
      failed = true;
    }
  }
  return failed ? refuseAtWindow(window, name, reason) : MPI_SUCCESS;
}
template <typename Call>
int synchronise(const char* name, MPI_Win window, const SeparateWindowPtr& copies, Effect effect,
                Completes completes, const Call& call) {
  return synchronise(name, window, copies, effect, completes, call, [] { return true; });
}

// Of a call that publishes. The assertion is about what was written since the last synchronisation,
// of whatever kind.
Effect publishing(const SeparateWindowPtr& copies, int assertion) {
  const bool nothingNew =
      copies != nullptr && (assertion & MPI_MODE_NOSTORE) != 0 && copies->lastPublished;
  return {.publishes = !nothingNew, .nothingNew = nothingNew};
}

// Publishes before the call: as soon as another process has returned from it, that may fetch.
template <Layer layer>
int fence(int assertion, MPI_Win window) {
  const SeparateWindowPtr copies = separate_windows::find(window);
  Effect effect = publishing(copies, assertion);
  effect.collects =
      copies != nullptr && !copies->noPuts.exchange((assertion & MPI_MODE_NOPUT) != 0);
  return synchronise("MPI_Win_fence", window, copies, effect, kAll,
                     [&] { return next<layer>().Win_fence(assertion, window); });
}

template <Layer layer>
int post(MPI_Group group, int assertion, MPI_Win window) {
  const SeparateWindowPtr copies = separate_windows::find(window);
  if (copies != nullptr) {
    copies->noPuts = (assertion & MPI_MODE_NOPUT) != 0;
  }
  return synchronise("MPI_Win_post", window, copies, publishing(copies, assertion), kNone,
                     [&] { return next<layer>().Win_post(group, assertion, window); });
}

Effect atEndOfExposure(const SeparateWindowPtr& copies) {
  return {.collects = copies != nullptr && !copies->noPuts};
}
template <Layer layer>
int wait(MPI_Win window) {
  const SeparateWindowPtr copies = separate_windows::find(window);
  return synchronise("MPI_Win_wait", window, copies, atEndOfExposure(copies), kNone,
                     [&] { return next<layer>().Win_wait(window); });
}
template <Layer layer>
int test(MPI_Win window, int* flag) {
  const SeparateWindowPtr copies = separate_windows::find(window);
  return synchronise(
      "MPI_Win_test", window, copies, atEndOfExposure(copies), kNone,
      [&] { return next<layer>().Win_test(window, flag); }, [&] { return *flag != 0; });
}

template <Layer layer>
int start(MPI_Group group, int assertion, MPI_Win window) {
  return synchronise("MPI_Win_start", window, separate_windows::find(window), {}, kNone,
                     [&] { return next<layer>().Win_start(group, assertion, window); });
}
template <Layer layer>
int complete(MPI_Win window) {
  return synchronise("MPI_Win_complete", window, separate_windows::find(window), {}, kAll,
                     [&] { return next<layer>().Win_complete(window); });
}

// Of any process: the rules ask for no more than that the call is made here.
template <Layer layer>
int lock(int type, int target, int assertion, MPI_Win window) {
  return synchronise("MPI_Win_lock", window, separate_windows::find(window), {.collects = true},
                     kNone,
                     [&] { return next<layer>().Win_lock(type, target, assertion, window); });
}
template <Layer layer>
int lockAll(int assertion, MPI_Win window) {
  return synchronise("MPI_Win_lock_all", window, separate_windows::find(window), {.collects = true},
                     kNone, [&] { return next<layer>().Win_lock_all(assertion, window); });
}
constexpr Effect kUnlocks = {.publishes = true, .collectsOwn = true};
template <Layer layer>
int unlock(int target, MPI_Win window) {
  return synchronise("MPI_Win_unlock", window, separate_windows::find(window), kUnlocks,
                     {true, target}, [&] { return next<layer>().Win_unlock(target, window); });
}
template <Layer layer>
int unlockAll(MPI_Win window) {
  return synchronise("MPI_Win_unlock_all", window, separate_windows::find(window), kUnlocks, kAll,
                     [&] { return next<layer>().Win_unlock_all(window); });
}

constexpr Effect kFlushes = {.collectsOwn = true};
template <Layer layer>
int flush(int target, MPI_Win window) {
  return synchronise("MPI_Win_flush", window, separate_windows::find(window), kFlushes,
                     {true, target}, [&] { return next<layer>().Win_flush(target, window); });
}
template <Layer layer>
int flushAll(MPI_Win window) {
  return synchronise("MPI_Win_flush_all", window, separate_windows::find(window), kFlushes, kAll,
                     [&] { return next<layer>().Win_flush_all(window); });
}
// (MPICH 4.0 returns from these two before all that is fetched is there: the private memory may go
// only after the stronger flush.)
template <Layer layer>
int flushLocal(int target, MPI_Win window) {
  return synchronise(
      "MPI_Win_flush_local", window, separate_windows::find(window), {}, {true, target}, [&] {
        const int code = next<layer>().Win_flush_local(target, window);
        return code == MPI_SUCCESS && operations::any() ? real().Win_flush(target, window) : code;
      });
}
template <Layer layer>
int flushLocalAll(MPI_Win window) {
  return synchronise(
      "MPI_Win_flush_local_all", window, separate_windows::find(window), {}, kAll, [&] {
        const int code = next<layer>().Win_flush_local_all(window);
        return code == MPI_SUCCESS && operations::any() ? real().Win_flush_all(window) : code;
      });
}

// Collects first: what was written since is newer on this side, where others have not written.
template <Layer layer>
int sync(MPI_Win window) {
  const SeparateWindowPtr copies = separate_windows::find(window);
  const int code = next<layer>().Win_sync(window);
  if (code != MPI_SUCCESS || copies == nullptr) {
    return code;
  }
  std::string reason;
  if (!copies->collect(&reason) || !copies->publish(&reason)) {
    return refuseAtWindow(window, "MPI_Win_sync", reason);
  }
  copies->lastPublished = true;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return code;
}

// More than MPI asks for. Programs that were written for its unified model store, and let others
// put or fetch after a barrier alone: so that, too, brings the copies of every window together.
template <Layer layer>
int barrier(MPI_Comm communicator) {
  const std::vector<SeparateWindowPtr> windows = separate_windows::all();
  std::string reason;
  bool failed = false;
  for (const SeparateWindowPtr& copies : windows) {
    failed = !copies->publish(&reason) || failed;
  }
  const int code = next<layer>().Barrier(communicator);
  if (code != MPI_SUCCESS) {
    return code;
  }
  for (const SeparateWindowPtr& copies : windows) {
    // The window's own calls report bytes that were lost with freed memory.
    failed = (copies->lives() && !copies->collect(&reason)) || failed;
  }
  return failed ? refuse(communicator, "MPI_Barrier", reason) : MPI_SUCCESS;
}

}  // namespace

std::span<const Hook> synchronisationHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOK(Barrier, barrier),
      GMAC_MPI_HOOK(Win_complete, complete),
      GMAC_MPI_HOOK(Win_fence, fence),
      GMAC_MPI_HOOK(Win_flush, flush),
      GMAC_MPI_HOOK(Win_flush_all, flushAll),
      GMAC_MPI_HOOK(Win_flush_local, flushLocal),
      GMAC_MPI_HOOK(Win_flush_local_all, flushLocalAll),
      GMAC_MPI_HOOK(Win_lock, lock),
      GMAC_MPI_HOOK(Win_lock_all, lockAll),
      GMAC_MPI_HOOK(Win_post, post),
      GMAC_MPI_HOOK(Win_start, start),
      GMAC_MPI_HOOK(Win_sync, sync),
      GMAC_MPI_HOOK(Win_test, test),
      GMAC_MPI_HOOK(Win_unlock, unlock),
      GMAC_MPI_HOOK(Win_unlock_all, unlockAll),
      GMAC_MPI_HOOK(Win_wait, wait),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
