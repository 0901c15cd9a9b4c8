// SPDX-License-Identifier: Apache-2.0
//
// Large messages between hosts, overlapped: while the wire carries one fragment, the next is packed
// and the last is unpacked. A ticket takes the message's place on the application's communicator
// and tag; the fragments follow on a communicator of this library's, which is made where *all*
// processes have it (mpi/job_marks.h), and the receiver says there that it has posted their
// receives.
//
// The sender posts all fragments in the call that sends. Afterwards it waits for the receiver, as
// MPI would, but not for ever: a receiver may be in a call that this library does not see the
// inside of (MPI_Barrier, say, for this very sender), where MPI's own progress would take the
// message. When the wire would have carried the message meanwhile, the sender's call is over, and
// MPI sends from private memory what is left, in its later calls. So that this is rare, a process
// sends fragments only to receivers that were seen in a call that waits when its messages came
// (Attention).
//
// Thread-safe but for open() and close(), and but for one object.
#ifndef GMAC_MPI_ABI_FRAGMENTS_H_
#define GMAC_MPI_ABI_FRAGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mpi/abi/calls.h"
#include "mpi/abi/elements.h"
#include "mpi/tickets.h"

namespace gmac::mpi::GMAC_MPI_ABI {

namespace fragments {

// Before MPI_Init and after it, after tickets::open(). Makes the communicator if all processes have
// this library, and some are on other hosts.
void prepare();
void open(int size);
// Before MPI_Finalize. Collective: messages under way are received before it returns.
void close();

// The receiver of a ticket does not want its fragments: releases the sender.
void discard(const tickets::Ticket& ticket) noexcept;

// A large message of that rank came on the wire while this process waited for it.
void noteAttention(int rank);
// Whether that rank, or any, may send fragments to this one, because it was told so. A load or two.
bool mayCome(int rank);
bool mayComeFromAny();

}  // namespace fragments

// A message that this process sends in fragments.
class FragmentedSend {
 public:
  // Begins to pack it. NULL: it does not go this way. `elements` stay until post() returns.
  static std::shared_ptr<FragmentedSend> begin(const Elements& elements, int rank);
  ~FragmentedSend();
  FragmentedSend(const FragmentedSend&) = delete;
  FragmentedSend& operator=(const FragmentedSend&) = delete;

  const tickets::Bytes& ticket() const;
  // MPI has the ticket: sends what follows. Waits for packs, and for nobody else. Once; later calls
  // do nothing.
  void post();
  // MPI has not sent the ticket, if post() was not called.
  void recall();
  // Whether the sender's call is over.
  bool settled();
  // Why the message has failed; empty: it has not.
  const std::string& reason() const;

  struct State;
  explicit FragmentedSend(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

// A message that this process receives in fragments.
class FragmentedReceive {
 public:
  // Posts the receives. `packed` has room for the payload, and stays until all is over. `elements`:
  // what is unpacked there, in step, if it takes parts; NULL: nothing.
  FragmentedReceive(const tickets::Ticket& ticket, std::byte* packed, const Elements* elements);
  ~FragmentedReceive();
  FragmentedReceive(const FragmentedReceive&) = delete;
  FragmentedReceive& operator=(const FragmentedReceive&) = delete;

  // Whether all is there. Never waits.
  bool advance();
  // Whether the payload is unpacked then.
  bool unpacks() const;
  // Why it has failed; empty: it has not.
  const std::string& reason() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_FRAGMENTS_H_
