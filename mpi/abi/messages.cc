// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/messages.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

int statusOfSend(void*, MPI_Status* status) {
  (void)real().Status_set_elements_x(status, MPI_BYTE, 0);
  (void)real().Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
int freeNothing(void*) { return MPI_SUCCESS; }
int cancelNothing(void*, int) { return MPI_SUCCESS; }

}  // namespace

PendingPtr requests::pendingFor(PlainEntry& entry) {
  if (entry.isSend()) {
    return std::make_shared<SentShort>(std::move(entry.sent));
  }
  return std::make_shared<Awaited>(entry.receive);
}

int makeOwnRequest(MPI_Request* request) {
  return real().Grequest_start(&statusOfSend, &freeNothing, &cancelNothing, nullptr, request);
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
