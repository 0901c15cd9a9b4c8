// SPDX-License-Identifier: Apache-2.0
//
// Probes, which show a ticket as the message that it stands for.
#include <sched.h>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/peers.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// But for the error, which calls on one message leave as it is.
void copy(const MPI_Status& from, MPI_Status* to) {
  if (to != MPI_STATUS_IGNORE) {
    const int error = to->MPI_ERROR;
    *to = from;
    to->MPI_ERROR = error;
  }
}

// MPI has found a message with that status. True: it is as MPI says, or it is held now; else it has
// to be looked for again.
bool known(const PeersPtr& peers, const MPI_Status& found, MPI_Status* status, bool* again) {
  if (!peers->mustRead(found)) {
    copy(found, status);
    return true;
  }
  *again = !peers->hold(found.MPI_SOURCE, found.MPI_TAG);
  return !*again && peers->show(found.MPI_SOURCE, found.MPI_TAG, status);
}

template <Layer layer>
int probe(int source, int tag, MPI_Comm communicator, MPI_Status* status) {
  const auto function = next<layer>().Probe;
  const PeersPtr peers = Peers::of(communicator, source);
  if (peers == nullptr) return function(source, tag, communicator, status);
  while (!peers->show(source, tag, status)) {
    MPI_Status found = {};
    {
      // Another thread's probe may take the message before MPI shows it to this one.
      Matching matching(peers, source, tag);
      if (matching.held().has_value()) {
        matching.putBack();
        continue;
      }
      const int code = function(source, tag, communicator, &found);
      if (code != MPI_SUCCESS) return code;
    }
    if (concurrentCalls() && !peers->lookAgain(source, tag, &found)) {
      ::sched_yield();
      continue;
    }
    bool again = false;
    if (known(peers, found, status, &again)) return MPI_SUCCESS;
    if (again) ::sched_yield();
  }
  return MPI_SUCCESS;
}

template <Layer layer>
int iprobe(int source, int tag, MPI_Comm communicator, int* flag, MPI_Status* status) {
  const auto function = next<layer>().Iprobe;
  const PeersPtr peers = Peers::of(communicator, source);
  if (peers == nullptr) return function(source, tag, communicator, flag, status);
  while (true) {
    if (peers->show(source, tag, status)) {
      *flag = 1;
      return MPI_SUCCESS;
    }
    MPI_Status found = {};
    const Undisturbed undisturbed(*peers);
    const int code = function(source, tag, communicator, flag, &found);
    if (code != MPI_SUCCESS || *flag == 0) return code;
    bool again = !undisturbed && !peers->lookAgain(source, tag, &found);
    if (!again && known(peers, found, status, &again)) return MPI_SUCCESS;
    if (again) {
      // Another thread is about to receive it, or to see what it is.
      *flag = 0;
      return MPI_SUCCESS;
    }
  }
}

// MPI has matched a message with that status.
int give(const PeersPtr& peers, const MPI_Status& found, MPI_Comm communicator, const char* call,
         MPI_Message* message, MPI_Status* status) {
  if (!peers->mustRead(found)) {
    copy(found, status);
    return MPI_SUCCESS;
  }
  const auto held = peers->readMatched(*message, found);
  if (!held.has_value()) {
    return refuse(communicator, call, "MPI does not receive the message that it has matched");
  }
  *message = held->message;
  held->show(status);
  matched::add(*held);
  return MPI_SUCCESS;
}

// The first held message, given to the application.
void give(const Held& held, MPI_Message* message, MPI_Status* status) {
  *message = held.message;
  held.show(status);
  if (held.reread != nullptr) {
    matched::add(held);
  }
}

template <Layer layer>
int matchedProbe(int source, int tag, MPI_Comm communicator, MPI_Message* message,
                 MPI_Status* status) {
  const auto function = next<layer>().Mprobe;
  const PeersPtr peers = Peers::of(communicator, source);
  if (peers == nullptr) return function(source, tag, communicator, message, status);
  MPI_Status found = {};
  Matching matching(peers, source, tag);
  if (matching.held().has_value()) {
    give(*matching.held(), message, status);
    return MPI_SUCCESS;
  }
  const int code = function(source, tag, communicator, message, &found);
  return code != MPI_SUCCESS ? code
                             : give(peers, found, communicator, "MPI_Mprobe", message, status);
}

template <Layer layer>
int matchedIprobe(int source, int tag, MPI_Comm communicator, int* flag, MPI_Message* message,
                  MPI_Status* status) {
  const auto function = next<layer>().Improbe;
  const PeersPtr peers = Peers::of(communicator, source);
  if (peers == nullptr) return function(source, tag, communicator, flag, message, status);
  MPI_Status found = {};
  Matching matching(peers, source, tag);
  if (matching.held().has_value()) {
    *flag = 1;
    give(*matching.held(), message, status);
    return MPI_SUCCESS;
  }
  const int code = function(source, tag, communicator, flag, message, &found);
  return code != MPI_SUCCESS || *flag == 0
             ? code
             : give(peers, found, communicator, "MPI_Improbe", message, status);
}

// The held messages of a freed communicator have no receiver any more.
template <Layer layer, auto call>
int freeCommunicator(MPI_Comm* communicator) {
  if (tickets::inUse()) Peers::dropHeld(*communicator);
  return (next<layer>().*call)(communicator);
}

}  // namespace

std::span<const Hook> probeHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOK(Probe, probe),
      GMAC_MPI_HOOK(Iprobe, iprobe),
      GMAC_MPI_HOOK(Mprobe, matchedProbe),
      GMAC_MPI_HOOK(Improbe, matchedIprobe),
      GMAC_MPI_HOOK(Comm_free, freeCommunicator, &Calls::Comm_free),
      GMAC_MPI_HOOK(Comm_disconnect, freeCommunicator, &Calls::Comm_disconnect),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
