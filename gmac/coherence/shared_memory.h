/* SPDX-License-Identifier: Apache-2.0
 *
 * Which memory is shared, for a library beside libgmac.so that stands between the application and
 * somebody else (mpi/); and how others read it where it lies. Not installed. All functions are
 * thread-safe. */
#ifndef GMAC_COHERENCE_SHARED_MEMORY_H_
#define GMAC_COHERENCE_SHARED_MEMORY_H_

#include <stddef.h>
#include <stdint.h>

#include "gmac/api/adsm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Both take no lock where nothing is shared, need no runtime, and may be called by signal handlers.
 *
 * Whether any object lives. */
ADSM_API int gmacAnythingShared(void);

/* Whether any byte of [address, address + bytes) belongs to a shared object. */
ADSM_API int gmacTouchesShared(const void* address, size_t bytes);

/* How many objects have been freed by now. A load, as above. */
ADSM_API uint64_t gmacFreedObjects(void);

/* Bytes of one object that another process may read where they lie: in the memory file of this
 * process's objects. All of them are current on the CPU, and stay so, and as they are but for what
 * the application itself writes, until they are given back. */
typedef struct {
  int file;            /* its descriptor, to be duplicated at once */
  uint64_t fileNumber; /* of no other file of this process, ever */
  int64_t fileBytes;   /* its length, which only grows: the file is sealed against shrinking */
  int64_t offset;      /* of the first of the bytes */
  const void* view; /* where this process may read them, whatever is done to the object's pages */
} gmacLoan;

/* 1: so it is, and exactly one gmacGiveBack() with the same bytes follows. 0: it cannot be: not all
 * of the bytes are one object's and current on the CPU, or objects of this process are no file.
 * Waits for nothing. */
ADSM_API int gmacLend(const void* address, size_t bytes, gmacLoan* loan);
ADSM_API void gmacGiveBack(const void* address, size_t bytes);

/* Bytes of one object that other processes' accelerators may read where they lie: in the memory of
 * this process's, whose files they get (gmacFilesOfDeviceMemory). All of them are current there,
 * and kernels that write them have finished; they stay as they are, but for what the program itself
 * copies or packs there, until they are given back. */
typedef struct {
  void* start;     /* of the allocation, a device address */
  uint64_t bytes;  /* of the allocation */
  uint64_t number; /* of its pages: of no others of this process, ever */
  void* address;   /* of the first of the lent bytes, a device address */
  uint64_t object;
} gmacDeviceLoan;

/* *lent: whether so it is, and exactly one gmacGiveBackOnDevice() with the same bytes follows. 0:
 * not all of the bytes are one object's and current on the accelerator, or that has no files.
 * Waits for kernels; errors are theirs, and nothing is lent then. */
ADSM_API adsmError_t gmacLendOnDevice(const void* address, size_t bytes, gmacDeviceLoan* loan,
                                      int* lent);
ADSM_API void gmacGiveBackOnDevice(const void* address, size_t bytes, const gmacDeviceLoan* loan);

/* What lent bytes are asked back with, for the one library that borrows: called when a kernel call
 * or a free needs them, or a move of their memory, which then waits until they are back; by its
 * thread, with no lock of gmac's held. It gives back all that it can of one kind: what is lent on
 * the device, or on the CPU. For good. */
ADSM_API void gmacOnReclaim(void (*giveBack)(int onDevice));

#ifdef __cplusplus
}
#endif

#endif /* GMAC_COHERENCE_SHARED_MEMORY_H_ */
