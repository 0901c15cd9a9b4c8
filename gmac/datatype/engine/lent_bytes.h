/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs of bytes that a message is of, for a library beside libgmac.so (mpi/). Not installed. */
#ifndef GMAC_DATATYPE_ENGINE_LENT_BYTES_H_
#define GMAC_DATATYPE_ENGINE_LENT_BYTES_H_

#include <stdint.h>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Packs `bytes` bytes, from number `offset` on in packed order, of one element of a committed type
 * at `source` to `packed`, device memory of the process's own that is no object's. The source is
 * lent on the device (gmacLendOnDevice), or is memory of the device's that is no object's; either
 * way nothing changes it until the pack is over, and its last change is over. So the pack is
 * ordered with nothing: where the device has streams it runs on one that packs alone use, beside
 * the packs, copies and calls of others.
 *
 * *event stands for it, as adsmPackOptions_t.event. Thread-safe; never waits. Errors: those of
 * adsmPackWith(). */
ADSM_API adsmError_t gmacPackLent(void* packed, const void* source, adsmType_t type, int64_t offset,
                                  int64_t bytes, adsmPackEvent_t* event);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_DATATYPE_ENGINE_LENT_BYTES_H_ */
