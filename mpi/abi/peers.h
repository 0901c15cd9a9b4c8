// SPDX-License-Identifier: Apache-2.0
//
// The processes of a communicator that may send tickets (mpi/tickets.h), and the messages that a
// probe has received to find out what they are.
//
// MPI shows a probe the length of a message only. Where that is a ticket's length, the probe
// receives the message, reads it, and holds it for the next receive that matches. It also holds all
// earlier messages of the same sender on that communicator, since a receive with MPI_ANY_TAG must
// get them first. A held message is an MPI_Message again: the process sends it to itself on a
// communicator of its own.
//
// Thread-safe. No lock is held while MPI is called. A probe does not take messages that another
// thread's receive may match (Matching); a receive that begins meanwhile waits for the few calls of
// the probe, none of which waits for another process.
//
// Open MPI (4.1.4, 5.0) reads the message that MPI_Iprobe or MPI_Probe has found after it has let
// go of its lock. Where another thread receives that message meanwhile, the status is another
// message's, or of no message (ob1, mca_pml_ob1_recv_req_start()). So an answer counts only if
// nobody took a message meanwhile (Undisturbed), or after it was given so often that not all of
// these calls can have met a receive (lookAgain()). MPI_Improbe and MPI_Mprobe take the message
// under the lock, and are right.
#ifndef GMAC_MPI_ABI_PEERS_H_
#define GMAC_MPI_ABI_PEERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "mpi/abi/calls.h"
#include "mpi/tickets.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// The bytes of a held message, which this process sends to itself. Destroy it after they were
// received.
class Reread {
 public:
  // NULL: MPI has failed.
  static std::shared_ptr<Reread> send(const tickets::Bytes& bytes, MPI_Message* message);
  Reread() = default;
  ~Reread();
  Reread(const Reread&) = delete;
  Reread& operator=(const Reread&) = delete;

 private:
  tickets::Bytes bytes_{};
  MPI_Request sent_ = MPI_REQUEST_NULL;
};

class Matching;
class Peers;
using PeersPtr = std::shared_ptr<Peers>;

// A matched message: no other receive gets it.
struct Held {
  MPI_Message message;
  int source;
  int tag;
  std::int64_t bytes;              // the length to show: a ticket's payload
  std::shared_ptr<Reread> reread;  // NULL: still MPI's own message
  PeersPtr peers;
  std::uint64_t number = 0;  // counts messages in MPI's order

  void show(MPI_Status* status) const;
};

class Peers {
 public:
  // The peers in a communicator; NULL where no process in it may send a ticket.
  static PeersPtr of(MPI_Comm communicator);
  // The same; NULL also where `source` (or MPI_ANY_SOURCE) may not.
  static PeersPtr of(MPI_Comm communicator, int source);

  // The same as of() for a communicator that this thread has asked about not long ago; valid until
  // its next call of this class. NULL: ask of().
  static const PeersPtr* recent(MPI_Comm communicator);
  // The same for what comes from `source`.
  static const PeersPtr* recent(MPI_Comm communicator, int source);

  Peers(MPI_Comm communicator, std::vector<int> ranks)
      : communicator_(communicator), ranks_(std::move(ranks)) {}

  // The rank in MPI_COMM_WORLD of a rank that may send tickets; -1: it may not.
  int rankInWorld(int rank) const {
    return rank >= 0 && static_cast<std::size_t>(rank) < ranks_.size()
               ? ranks_[static_cast<std::size_t>(rank)]
               : -1;
  }
  // Whether a message from `source`, which may be MPI_ANY_SOURCE, may be a ticket.
  bool maySend(int source) const { return source == MPI_ANY_SOURCE || rankInWorld(source) >= 0; }
  // MPI_COMM_WORLD once the communicator is freed.
  MPI_Comm communicator() const { return freed_ ? MPI_COMM_WORLD : communicator_; }

  // Whether a probed message with that status may be a ticket, so that it must be read.
  bool mustRead(const MPI_Status& status) const;
  // Whether no message is held. A load.
  bool holdsNothing() const { return heldCount_ == 0; }
  // The status of the first message that MPI has for a probe of that source and tag, whatever other
  // threads receive meanwhile. False: there is none, or another thread is at it; try again.
  bool lookAgain(int source, int tag, MPI_Status* status);
  // Receives the first message of `source` with `tag`, and those before it, and holds them. False:
  // another thread has received it or is about to; try again.
  bool hold(int source, int tag);
  // The status of the first held message that matches; it stays held. False: none matches.
  bool show(int source, int tag, MPI_Status* status);
  // A message that MPI_Improbe has matched, read if it must be. Nothing: MPI has failed.
  std::optional<Held> readMatched(MPI_Message message, const MPI_Status& status);

  // Receives and discards all held messages of a communicator that ends.
  static void dropHeld(MPI_Comm communicator);
  static void close();

 private:
  friend class Matching;
  friend class Posting;
  friend class Undisturbed;
  class Taking;
  // How many threads are at something, and how many have ever been.
  class Activity {
   public:
    void begin() { value_.fetch_add(kOne + 1); }
    void end() { value_.fetch_sub(1); }
    bool any() const { return value_ % kOne != 0; }
    // Changes when any begins, and when any ends.
    std::uint64_t value() const { return value_; }

   private:
    static constexpr std::uint64_t kOne = std::uint64_t{1} << 20;  // more than there are threads
    std::atomic<std::uint64_t> value_{0};
  };
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
  bool lookAt(int source, int tag, const std::vector<Pattern>& begun, MPI_Status* status);
  bool takeOne(int source, const std::vector<Pattern>& begun, int* tag);

  const MPI_Comm communicator_;
  const std::vector<int> ranks_;
  std::weak_ptr<Peers> self_;
  std::atomic<bool> freed_{false};

  std::mutex lock_;  // of what follows
  std::deque<Held> held_;
  std::atomic<std::size_t> heldCount_{0};
  std::uint64_t heldEver_ = 0;
  Matching* awaited_ = nullptr;  // those that leave the matching to MPI, linked
  std::atomic<bool> taking_{false};
  Activity taken_;    // of what may take messages, but for the next
  Activity posting_;  // not under the lock
};

// From before a call of MPI_Iprobe until its status was looked at.
class Undisturbed {
 public:
  explicit Undisturbed(const Peers& peers)
      : peers_(peers), taken_(peers.taken_.value()), posting_(peers.posting_.value()) {
    holds_ = !peers.taken_.any() && !peers.posting_.any();
  }
  // Whether no other thread took a message meanwhile.
  explicit operator bool() const {
    return !concurrentCalls() ||
           (holds_ && peers_.taken_.value() == taken_ && peers_.posting_.value() == posting_);
  }

 private:
  const Peers& peers_;
  const std::uint64_t taken_;
  const std::uint64_t posting_;
  bool holds_;
};

// The same as Matching for a nonblocking receive when nothing is held, and no lock is needed: from
// before MPI's call until MPI has posted it, no probe takes messages.
class Posting {
 public:
  // `peers` may be NULL.
  explicit Posting(const PeersPtr& peers);
  ~Posting() {
    if (peers_ != nullptr) peers_->posting_.end();
  }
  Posting(const Posting&) = delete;
  Posting& operator=(const Posting&) = delete;
  // False: a message is held, or a probe is at it.
  explicit operator bool() const { return mayPost_; }

 private:
  PeersPtr peers_;  // NULL: one thread at a time calls MPI
  bool mayPost_;
};

// A receive, from before MPI's call until MPI has posted it (a blocking one: until it returns). It
// takes a held message that matches, else leaves the matching to MPI.
class Matching {
 public:
  // `peers` may be NULL. Waits while another thread's probe receives messages.
  Matching(const PeersPtr& peers, int source, int tag);
  ~Matching();
  Matching(const Matching&) = delete;
  Matching& operator=(const Matching&) = delete;

  std::optional<Held>& held() { return held_; }
  // Holds the message again: it was not received.
  void putBack();

 private:
  friend class Peers;
  const PeersPtr& peers_;
  const Peers::Pattern pattern_;
  std::optional<Held> held_;
  // Under the lock of the peers.
  bool listed_ = false;
  Matching* before_ = nullptr;
  Matching* after_ = nullptr;
};

// The held messages that MPI_Mprobe has given to the application.
namespace matched {
void add(const Held& held);
// Removes the entry of a message. Nothing: the message is MPI's own.
std::optional<Held> take(MPI_Message message);
// Receives and discards all of them.
void dropAll();
}  // namespace matched

// MPI_Mrecv and MPI_Imrecv of a held message, for each width of the count. They set `held.message`
// to MPI_MESSAGE_NULL.
int receiveHeld(void* buffer, int count, MPI_Datatype datatype, Held& held, MPI_Status* status);
int receiveHeld(void* buffer, int count, MPI_Datatype datatype, Held& held, MPI_Request* request);
// Whether an MPI_Mrecv or MPI_Imrecv that returned `code` did not receive its message, because an
// argument was wrong. (The handle does not tell: MPICH 4.0 leaves it as it is after a truncation.)
bool notReceived(int code);
// MPI_Isend, for a call that sends and receives where the receive gets a held message.
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
