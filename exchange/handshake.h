// SPDX-License-Identifier: Apache-2.0
//
// How the processes of a job on one host find each other.
//
// Each process listens on an abstract Unix socket whose name is made of the user, the job and the
// rank. Each connects to each other one, sends its memory file, and takes the file that the other
// sends; the one with the lower rank also sends an end of a connection that stays, the channel.
// Every pair thus has two offers (Offer), one in the file of each; a process takes the
// other's offer only when it has made its own, and the two reach each other when both are taken. An
// offer changes only once, so both come to the same answer, even when one withdraws because the
// other is late.
#ifndef GMAC_EXCHANGE_HANDSHAKE_H_
#define GMAC_EXCHANGE_HANDSHAKE_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "exchange/job.h"
#include "exchange/shared_file.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/status.h"

namespace gmac::exchange {

// Another process, as the kernel and itself say.
struct Met {
  SharedFile file;
  Nonce nonce;
  pid_t process;        // as seen from here; 0: it is in a namespace that is not seen
  std::uint64_t start;  // startOfProcess(); 0: unknown
  // Where its process has `nonce`, an address there.
  std::uint64_t nonceAddress;
  // A connected socket that only the two processes have, for descriptors. Never blocks.
  Descriptor channel;
};

// This process's socket. Not thread-safe.
class Listener {
 public:
  // adsmErrorSystem: among others, a process has the name already.
  static Result<Listener> open(const Job& job);
  int get() const { return socket_.get(); }

 private:
  Descriptor socket_;
};

// Meets all other ranks; for each, what was met, or nothing. Closes the socket. `own` is what the
// others get; it is `nonce`'s, which stays where it is. See Exchange::meet().
class Handshake {
 public:
  Handshake(const Job& job, Listener listener, const SharedFile& own, const Nonce& nonce);
  Handshake(const Job&, Listener, const SharedFile&, Nonce&&) = delete;
  ~Handshake();
  // Done when all other ranks are absent or decided, or at the limit.
  void run(std::chrono::milliseconds limit);
  // Once, after run(): `rank`, if it is reached.
  std::optional<Met> take(int rank);

 private:
  struct Rank;
  struct Guest;
  struct Hello;
  void connect(int rank);
  void accept();
  void hear(Guest& guest);
  void receive(Guest& guest, const Hello& hello, Descriptor file, Descriptor channel);
  void takeOffer(int rank);
  // Whether this rank's part is over.
  bool decided(int rank) const;
  // This process's offer, if it is not taken yet.
  void withdraw(int rank);
  // The rank is not reached, or absent.
  void giveUp(int rank);
  void wait(std::chrono::milliseconds most);

  const Job job_;
  Listener listener_;
  const SharedFile& own_;
  const Nonce& nonce_;
  const std::uint64_t start_;  // startOfProcess() of this one; 0: unknown
  bool again_ = false;         // something that the kernel has refused may be possible soon
  std::vector<Rank> ranks_;
  std::vector<Guest> guests_;
};

}  // namespace gmac::exchange

#endif  // GMAC_EXCHANGE_HANDSHAKE_H_
