// SPDX-License-Identifier: Apache-2.0
//
// The processes of a communicator that may send tickets (mpi/tickets.h), and its messages that a
// probe has taken out of MPI to see what they are.
//
// Such a probe sees a message of a ticket's length and no more. So it takes the message, reads it,
// and holds it for the receive that follows; and with it all that the same process has sent
// earlier on that communicator, which a receive with MPI_ANY_TAG is to get first. A held message is
// an MPI_Message again: one that was read goes through this process's own communicator.
//
// Thread-safe. No lock is kept while MPI is called. A probe that takes messages leaves those alone
// that another thread's receive may be about to match (Matching), and a receive that begins
// meanwhile waits for the probe's few calls, none of which waits for another process.
#ifndef GMAC_MPI_ABI_PEERS_H_
#define GMAC_MPI_ABI_PEERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "mpi/abi/calls.h"
#include "mpi/tickets.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// The bytes of a held message that was read, sent by this process to itself. Destroyed after they
// were received.
class Reread {
 public:
  // NULL: MPI does not do it.
  static std::shared_ptr<Reread> send(const tickets::Bytes& bytes, MPI_Message* message);
  Reread() = default;
  ~Reread();
  Reread(const Reread&) = delete;
  Reread& operator=(const Reread&) = delete;

 private:
  tickets::Bytes bytes_{};
  MPI_Request sent_ = MPI_REQUEST_NULL;
};

class Peers;
using PeersPtr = std::shared_ptr<Peers>;

// A message that is matched: no other receive gets it.
struct Held {
  MPI_Message message;
  int source;
  int tag;
  std::int64_t bytes;              // as its receiver is to see it
  std::shared_ptr<Reread> reread;  // NULL: as MPI has it
  PeersPtr peers;
  std::uint64_t number = 0;  // in the order of MPI

  void show(MPI_Status* status) const;
};

class Peers {
 public:
  // Of a communicator; NULL where nobody in it may send a ticket.
  static PeersPtr of(MPI_Comm communicator);
  // The same for the messages of `source` alone, which may be MPI_ANY_SOURCE.
  static PeersPtr of(MPI_Comm communicator, int source);

  Peers(MPI_Comm communicator, std::vector<int> ranks)
      : communicator_(communicator), ranks_(std::move(ranks)) {}

  // The rank in MPI_COMM_WORLD of one that may send tickets; -1: it may not.
  int rankInWorld(int rank) const {
    return rank >= 0 && static_cast<std::size_t>(rank) < ranks_.size()
               ? ranks_[static_cast<std::size_t>(rank)]
               : -1;
  }
  // Whether a message from `source`, which may be MPI_ANY_SOURCE, may be a ticket.
  bool maySend(int source) const { return source == MPI_ANY_SOURCE || rankInWorld(source) >= 0; }
  // MPI_COMM_WORLD when it is no more.
  MPI_Comm communicator() const { return freed_ ? MPI_COMM_WORLD : communicator_; }

  // Whether a message that MPI shows with that status has to be read to know what it is.
  bool mustRead(const MPI_Status& status) const;
  // Takes the first message of `source` with `tag` out of MPI, and those before it, and holds them.
  // False: not now; another thread has it, or is about to.
  bool hold(int source, int tag);
  // The first held message that matches, which stays.
  bool show(int source, int tag, MPI_Status* status);
  // A message that MPI_Improbe has matched, read if it must be. Nothing: MPI does not do it.
  std::optional<Held> readMatched(MPI_Message message, const MPI_Status& status);

  // Receives all that is held and throws it away: nobody will ask for it.
  static void dropHeld(MPI_Comm communicator);
  static void close();

 private:
  friend class Matching;
  struct Pattern {
    int source;
    int tag;
    bool matches(int from, int with) const {
      return (source == MPI_ANY_SOURCE || source == from) && (tag == MPI_ANY_TAG || tag == with);
    }
  };
  static int forget(MPI_Comm, int, void*, void*);
  static PeersPtr make(MPI_Comm communicator);
  std::deque<Held>::iterator findHeld(const Pattern& pattern);
  bool takeOne(int source, int* tag);
  bool isAwaited(int source, int tag);

  const MPI_Comm communicator_;
  const std::vector<int> ranks_;
  std::weak_ptr<Peers> self_;
  std::atomic<bool> freed_{false};

  std::mutex lock_;  // of what follows
  std::deque<Held> held_;
  std::atomic<std::size_t> heldCount_{0};
  std::uint64_t heldEver_ = 0;
  std::list<Pattern> awaited_;
  std::atomic<bool> taking_{false};
};

// A receive, from before it is given to MPI until MPI has posted it (a blocking one: until it is
// over). It gets a held message, or MPI matches it.
class Matching {
 public:
  // `peers` may be NULL. Waits while another thread's probe takes messages.
  Matching(const PeersPtr& peers, int source, int tag);
  ~Matching();
  Matching(const Matching&) = delete;
  Matching& operator=(const Matching&) = delete;

  std::optional<Held>& held() { return held_; }
  // The held message was not received.
  void putBack();

 private:
  const PeersPtr& peers_;
  bool listed_ = false;
  std::list<Peers::Pattern>::iterator pattern_;
  std::optional<Held> held_;
};

// Messages that MPI_Mprobe has given to the application and that are not as MPI has them.
namespace matched {
void add(const Held& held);
// Nothing: the message is MPI's own. Else it is forgotten.
std::optional<Held> take(MPI_Message message);
// Receives all of them and throws them away.
void dropAll();
}  // namespace matched

// MPI_Mrecv and MPI_Imrecv of a held message, by the width of the count. `message` is
// MPI_MESSAGE_NULL after that.
int receiveHeld(void* buffer, int count, MPI_Datatype datatype, Held& held, MPI_Status* status);
int receiveHeld(void* buffer, int count, MPI_Datatype datatype, Held& held, MPI_Request* request);
// Whether an MPI_Mrecv or MPI_Imrecv that has returned `code` has left its message unreceived: an
// argument was wrong. (The handle does not tell: MPICH 4.0 leaves it after a truncation.)
bool notReceived(int code);
// MPI_Isend, where a call that sends and receives gets a held message.
int startSend(const void* buffer, int count, MPI_Datatype datatype, int destination, int tag,
              MPI_Comm communicator, MPI_Request* request);
#if MPI_VERSION >= 4
int receiveHeld(void* buffer, MPI_Count count, MPI_Datatype datatype, Held& held,
                MPI_Status* status);
int receiveHeld(void* buffer, MPI_Count count, MPI_Datatype datatype, Held& held,
                MPI_Request* request);
int startSend(const void* buffer, MPI_Count count, MPI_Datatype datatype, int destination, int tag,
              MPI_Comm communicator, MPI_Request* request);
#endif

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_PEERS_H_
