/* SPDX-License-Identifier: Apache-2.0
 *
 * Which memory is shared, for a library beside libgmac.so that stands between the application and
 * somebody else (mpi/). Not installed. Both functions are thread-safe, take no lock where nothing
 * is shared, need no runtime, and may be called by signal handlers. */
#ifndef GMAC_COHERENCE_SHARED_MEMORY_H_
#define GMAC_COHERENCE_SHARED_MEMORY_H_

#include <stddef.h>

#include "gmac/api/adsm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether any object lives. */
ADSM_API int gmacAnythingShared(void);

/* Whether any byte of [address, address + bytes) belongs to a shared object. */
ADSM_API int gmacTouchesShared(const void* address, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_COHERENCE_SHARED_MEMORY_H_ */
