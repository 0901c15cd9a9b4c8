// SPDX-License-Identifier: Apache-2.0
#include "gmac/session/message_trace.h"

#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

void gmacTraceMessage(const char* name, uint64_t bytes) {
  gmac::messageCounts().add(name, bytes);
  gmac::traceInstant("mpi", name, {"bytes", bytes});
}
