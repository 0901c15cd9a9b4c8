// SPDX-License-Identifier: Apache-2.0
//
// The requests under way whose buffers are staged, by MPI's own handles. A request is in the table
// from the call that made it until a completing call has taken it out, and only while MPI has not
// completed it: MPI uses handles again. A persistent one is in it until it is freed.
//
// Thread-safe. No lock is kept while MPI is called: a completing call takes its requests out, calls
// MPI, and puts back what was not completed.
#ifndef GMAC_MPI_ABI_REQUESTS_H_
#define GMAC_MPI_ABI_REQUESTS_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "mpi/abi/calls.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// The staged buffers of a request.
class Pending {
 public:
  Pending() = default;
  virtual ~Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  // Packs what is sent, for MPI_Start(). False: failed, and nothing is sent.
  virtual bool pack() = 0;
  // MPI has completed it with that status: what was received goes to its buffer. False: failed.
  virtual bool deliver(const MPI_Status& status) = 0;
  // Why something has failed.
  virtual const std::string& reason() const = 0;

  bool persistent = false;
  // MPI has begun and not completed it. Of a persistent one, between MPI_Start() and completion.
  bool active = true;
};
using PendingPtr = std::shared_ptr<Pending>;

namespace requests {

namespace internal {
extern std::atomic<std::size_t> underWay;
}  // namespace internal

// Whether there are any. A load.
inline bool any() { return internal::underWay.load(std::memory_order_acquire) != 0; }

void add(MPI_Request request, PendingPtr pending);
// NULL for a request that is not in the table. take(): it is not any more.
PendingPtr find(MPI_Request request);
PendingPtr take(MPI_Request request);

// A request that MPI has completed with that status: what was received goes to its buffer. The
// completing call's result.
int complete(const PendingPtr& pending, const MPI_Status& status, const char* call);

// MPI_Request_free() of an active request: the payload is needed until MPI has completed it, which
// only we know now. Later calls of keepOrphans() look after it.
void orphan(MPI_Request request, PendingPtr pending);
// `all`: waits for them.
void keepOrphans(bool all);

}  // namespace requests
}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_REQUESTS_H_
