/* SPDX-License-Identifier: Apache-2.0
 *
 * One kernel that unpacks a message while it arrives, for a library beside libgmac.so (mpi/). Not
 * installed. */
#ifndef GMAC_DATATYPE_ENGINE_ARRIVING_BYTES_H_
#define GMAC_DATATYPE_ENGINE_ARRIVING_BYTES_H_

#include <stdint.h>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An unpack under way. For one thread at a time. */
typedef struct gmacArrival gmacArrival;

/* Launches the unpack of the first `bytes` bytes, in packed order, of one element of a committed
 * type at `target`, which come in fragments of `fragmentBytes` bytes (the last one may be shorter)
 * into the slots of a ring, one after the other: fragment i into slot i % slots, which somebody
 * else fills. The ring is memory
 * that the device reaches. The kernel is ordered as adsmUnpackWith() orders one; it takes one block
 * of 512 threads of each multiprocessor, and asks for news in memory that the CPU writes
 * (gmacArrived). It ends by itself when it has heard nothing for a millisecond (of the
 * first fragment, for 100 us), with fewer fragments unpacked, so what waits for it does not wait
 * for this process for longer.
 *
 * Never waits. adsmErrorNotSupported: there is no such kernel for this layout, ring or device, or
 * one is under way in this process; else the errors of adsmUnpackWith(). */
ADSM_API adsmError_t gmacUnpackArriving(void* target, adsmType_t type, int64_t bytes,
                                        const void* ring, int64_t fragmentBytes, int slots,
                                        gmacArrival** arrival);

/* So many fragments are there, in all; of those, at most `slots` are not unpacked. How many are
 * unpacked: their slots may be filled again. A few loads and a store. */
ADSM_API int64_t gmacArrived(gmacArrival* arrival, int64_t fragments);

/* No more fragments than those will be there: the kernel ends with them. A store. */
ADSM_API void gmacNoMoreArrives(gmacArrival* arrival);

/* Whether the kernel has ended, with all fragments or by itself. Asks the driver. */
ADSM_API int gmacArrivalOver(gmacArrival* arrival);

/* Ends the kernel, which unpacks what it knows to be there, and waits for it, unless all is
 * unpacked: nothing writes to the target any more. *fragments: how many are unpacked. The arrival
 * is gone. Errors as adsmPackWait(). */
ADSM_API adsmError_t gmacEndArrival(gmacArrival* arrival, int64_t* fragments);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_DATATYPE_ENGINE_ARRIVING_BYTES_H_ */
