/* SPDX-License-Identifier: Apache-2.0
 *
 * The shortest way to bytes of a shared object that are current on the CPU, for a library beside
 * libgmac.so that packs many short messages (mpi/). Not installed. */
#ifndef GMAC_DATATYPE_ENGINE_CPU_BYTES_H_
#define GMAC_DATATYPE_ENGINE_CPU_BYTES_H_

#include <stddef.h>

#include "gmac/api/adsm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copy few bytes out of an object, or into it, with one look-up, no lock, no allocation and no
 * system call. `to` of the first and `from` of the second are the CPU's own memory.
 *
 * 1: copied. 0: nothing was done, because they are many (more than 64 KiB), are not all one
 * object's, or the CPU may not read (write) them as they are, as far as this thread knows: use
 * adsmPack() (adsmUnpack()). Thread-safe. (What another thread closes meanwhile is opened by a
 * fault, as for any access of the CPU's.) */
ADSM_API int gmacReadOnCpu(void* to, const void* shared, size_t bytes);
ADSM_API int gmacWriteOnCpu(void* shared, const void* from, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_DATATYPE_ENGINE_CPU_BYTES_H_ */
