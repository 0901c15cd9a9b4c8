/* SPDX-License-Identifier: Apache-2.0
 *
 * The variables of mpi/, which is a library beside libgmac.so. Not installed. */
#ifndef GMAC_SESSION_MPI_SETTINGS_H_
#define GMAC_SESSION_MPI_SETTINGS_H_

#include <stdint.h>

#include "gmac/api/adsm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int tickets;                  /* GMAC_MPI_TICKETS */
  int statistics;               /* whether GMAC_STATS names a file */
  int64_t leastTicketBytes;     /* payloads of fewer bytes are not sent as tickets */
  int64_t ticketRoomBytes;      /* room for payloads under way */
  int64_t leastFragmentedBytes; /* payloads of fewer bytes are not sent in fragments */
  int64_t answerWait; /* milliseconds that a sender of fragments waits for a late receiver */
} gmacMpiSettings;

/* Reads them; starts nothing. adsmErrorConfiguration: a variable has a value that is not allowed,
 * as adsmLastErrorString() says, and *settings is as it was. Thread-safe, but for changes of the
 * environment. */
ADSM_API adsmError_t gmacReadMpiSettings(gmacMpiSettings* settings);

/* What GMAC_LOG wants, as a number of gmac::LogLevel: each library has a threshold of its own
 * (gmac/base/log.h). Its default if it has a value that is not allowed. Starts nothing. Thread-safe
 * likewise. */
ADSM_API int gmacLogLevel(void);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_SESSION_MPI_SETTINGS_H_ */
