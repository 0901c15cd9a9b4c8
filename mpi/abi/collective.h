// SPDX-License-Identifier: Apache-2.0
//
// Collectives in all their forms: blocking, nonblocking, persistent; with counts of both widths.
#ifndef GMAC_MPI_ABI_COLLECTIVE_H_
#define GMAC_MPI_ABI_COLLECTIVE_H_

#include <tuple>

#include "mpi/abi/errors.h"
#include "mpi/abi/memory.h"
#include "mpi/abi/requests.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// The last arguments of a collective.
struct Form {
  int root = 0;  // where there is one
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Request* request = nullptr;  // NULL: blocking
  bool persistent = false;
};

// From [int root,] MPI_Comm [[, MPI_Info], MPI_Request*].
template <bool rooted, typename... Rest>
Form formOf(Rest... rest) {
  const std::tuple arguments(rest...);
  constexpr std::size_t kCommunicator = rooted ? 1 : 0;
  constexpr std::size_t kMore = sizeof...(Rest) - kCommunicator - 1;
  Form form;
  form.communicator = std::get<kCommunicator>(arguments);
  if constexpr (rooted) {
    form.root = std::get<0>(arguments);
  }
  if constexpr (kMore > 0) {
    form.request = std::get<kCommunicator + kMore>(arguments);
  }
  form.persistent = kMore == 2;
  return form;
}

// Whether a buffer of a collective may need staging. False for MPI_COMM_NULL: MPI refuses that
// call.
inline bool mayStage(MPI_Comm communicator) {
  return mayNeedStaging() && communicator != MPI_COMM_NULL;
}

// beginCollective() comes before the call of MPI, endCollective() after it has succeeded. Both
// return the application's result.
int beginCollective(const char* call, const PendingPtr& buffers, const Form& form);
int endCollective(const char* call, const PendingPtr& buffers, const Form& form);

// beginCollective(), the call, and endCollective().
template <typename Call>
int performCollective(const char* name, const PendingPtr& buffers, const Form& form,
                      const Call& call) {
  int code = beginCollective(name, buffers, form);
  if (code != MPI_SUCCESS) {
    return code;
  }
  code = call();
  return code != MPI_SUCCESS ? code : endCollective(name, buffers, form);
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_COLLECTIVE_H_
