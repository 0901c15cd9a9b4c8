/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of mpi/, which is a library beside libgmac.so, in the trace (GMAC_TRACE) and the
 * statistics (GMAC_STATS). Not installed. */
#ifndef GMAC_SESSION_MESSAGE_TRACE_H_
#define GMAC_SESSION_MESSAGE_TRACE_H_

#include <stdint.h>

#include "gmac/api/adsm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Counts the message by its name. The trace of this process, if it has one, gets an event of this
 * moment, of the category "mpi". `name` says which way the payload goes, and lives as long as the
 * process. Thread-safe. */
ADSM_API void gmacTraceMessage(const char* name, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_SESSION_MESSAGE_TRACE_H_ */
