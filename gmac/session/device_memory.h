/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of devices that the application has allocated itself (cudaMalloc, pools, managed memory,
 * mapped ranges), for a library beside libgmac.so that stands between the application and somebody
 * who does not reach it (mpi/). Not installed. All functions are thread-safe. */
#ifndef GMAC_SESSION_DEVICE_MEMORY_H_
#define GMAC_SESSION_DEVICE_MEMORY_H_

#include <stddef.h>
#include <stdint.h>

#include "gmac/api/adsm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether there may be such memory: the process has loaded a CUDA driver. Loads none. A load once
 * there is one, before that some 20 ns. */
ADSM_API int gmacAnyDeviceMemory(void);

/* Whether the byte at an address is of such memory. (Of shared objects gmacTouchesShared() tells;
 * this takes them for the device's.) Starts nothing. A few ns for the heap and the calling thread's
 * stack; else the driver is asked, some hundred. */
ADSM_API int gmacIsDeviceMemory(const void* address);

/* The same, and what else the driver says of that memory: as long as nobody may free it, as in a
 * call that the application makes with it. */
typedef struct {
  uintptr_t context; /* 0: the driver does not tell */
  int device;
} gmacDevicePlace;
ADSM_API int gmacFindDeviceMemory(const void* address, gmacDevicePlace* place);

/* To be called before device memory is read or written. *packs: whether adsmPackWith() and
 * adsmUnpackWith() reach it; else (it is on another device than the runtime's, or that is `host`)
 * the two functions below do. Starts the runtime. Waits for the default streams in that memory's
 * context; for all streams there where GMAC_MPI_ORDER says so. */
ADSM_API adsmError_t gmacOpenDeviceMemory(const void* address, int* packs);

/* Copies between device memory and CPU memory that is not shared; done when they return. */
ADSM_API adsmError_t gmacCopyFromDevice(void* to, const void* device, size_t bytes);
ADSM_API adsmError_t gmacCopyToDevice(void* device, const void* from, size_t bytes);

/* Both steps of few bytes at once, in much less time: copies after what gmacOpenDeviceMemory()
 * waits for. `place`: what gmacFindDeviceMemory() has just said; NULL: asks. *copied: 0: nothing
 * was done, as other streams of the application have to be waited for, or one is captured. Starts
 * nothing. */
ADSM_API adsmError_t gmacCopyFromDeviceInOrder(void* to, const void* device, size_t bytes,
                                               const gmacDevicePlace* place, int* copied);
ADSM_API adsmError_t gmacCopyToDeviceInOrder(void* device, const void* from, size_t bytes,
                                             const gmacDevicePlace* place, int* copied);

/* The same from an import (gmacImportDeviceMemory(), gmacImportDeviceFiles()), of any length.
 * *copied: 0 also where the memory is on another device than the runtime's, as the first function
 * says beforehand. Both start the runtime. */
ADSM_API int gmacReachesDeviceMemory(const void* address);
ADSM_API adsmError_t gmacCopyImportInOrder(void* device, const void* import, size_t bytes,
                                           int* copied);

/* Lets the accelerator copy to and from private memory of the CPU's, whole pages, at the speed of
 * its bus, until the second function is called. *pinned: whether it does; not where it has no use
 * for that. Starts the runtime. */
ADSM_API adsmError_t gmacPinMemory(void* memory, size_t bytes, int* pinned);
ADSM_API adsmError_t gmacUnpinMemory(void* memory, size_t bytes);

/* This process is one of several on a host, which share its devices: threads and a runtime that
 * have no context then use the device of the process's local rank (see
 * gmac/accel/cuda/default_device.h). To be called before CUDA is used. Starts nothing. */
ADSM_API void gmacSpreadByLocalRank(void);

/* Memory of the runtime's device for payloads to other processes, which use it through the second
 * function, by a handle of GMAC_MEMORY_HANDLE_BYTES bytes. Both keep it until the process ends, and
 * start the runtime. The memory holds anything, and the importer has to prove that what it reaches
 * is that memory. adsmErrorNotSupported: the device, or the system, does not do it; or it is out of
 * this device's reach. */
#define GMAC_MEMORY_HANDLE_BYTES 64
ADSM_API adsmError_t gmacExportDeviceMemory(size_t bytes, void** address, unsigned char* handle);
ADSM_API adsmError_t gmacImportDeviceMemory(const unsigned char* handle, void** address);

/* The handle of memory of the runtime's device that the application has allocated, from the start
 * of an allocation; good until it is freed. adsmErrorInvalidValue: none starts there;
 * adsmErrorNotSupported: it is another device's, or of a kind that has none (managed, mapped, a
 * pool's). The second function ends an import: nothing uses the address any more. */
ADSM_API adsmError_t gmacHandleOfDeviceMemory(void* address, unsigned char* handle);
ADSM_API adsmError_t gmacReleaseDeviceImport(void* address);
/* An import of either kind is of memory of this process's own device (which it has in common with
 * the exporter), so that no link is reckoned with where it is copied. */
ADSM_API void gmacDeviceImportIsLocal(void* address);

/* Memory that the runtime has made for objects, as other processes are given it: by files. From the
 * first function on, and no earlier, it is made such that it has files; to be called before objects
 * are made. For good. */
ADSM_API void gmacShareDeviceMemory(void);

/* Consecutive bytes of an allocation: the part of a file that they are. */
typedef struct {
  int file; /* a descriptor */
  int64_t offset;
  uint64_t bytes;
} gmacMemoryFile;
#define GMAC_MEMORY_FILES 16

/* The files of an allocation that gmacLendOnDevice() has told, in the order of its bytes; the
 * caller closes them. *count: how many. adsmErrorInvalidValue: it is freed, or has other pages now;
 * adsmErrorNotSupported: the system refuses, or there are more than GMAC_MEMORY_FILES.
 * The second function: where the runtime's device has another process's allocation, for reading,
 * until gmacReleaseDeviceImport(); adsmErrorNotSupported: it is out of its reach. Both block. */
ADSM_API adsmError_t gmacFilesOfDeviceMemory(const void* start, uint64_t bytes, uint64_t number,
                                             gmacMemoryFile* files, int* count);
ADSM_API adsmError_t gmacImportDeviceFiles(const gmacMemoryFile* files, int count, void** address);

/* For the one library that gives files to others, for good: `ended` is called with the number of an
 * allocation whose files were asked for when it is about to be freed, or get other pages. */
ADSM_API void gmacOnDeviceMemoryEnd(void (*ended)(uint64_t number));

/* The allocation that a byte of device memory is of; of a shared object, the one that the runtime
 * has made for it. Some hundred nanoseconds; starts nothing. adsmErrorInvalidValue: it is of none.
 */
typedef struct {
  void* start;
  size_t bytes;
  uint64_t id; /* of no other allocation of this process, ever */
} gmacAllocation;
ADSM_API adsmError_t gmacAllocationOf(const void* address, gmacAllocation* allocation);

/* For the one library that lets other processes import the application's memory, for good:
 * `mayFree` is asked before an allocation is freed (cuMemFree and its like), by the thread that
 * does, with no lock of gmac's held. 0: others have it still. The allocation is kept then, while
 * the application takes it for freed; it is asked again by later frees, by allocations that find no
 * memory (which wait for up to a second), and by the second function, which costs a load if there
 * is none. A context's end frees its memory without asking. */
ADSM_API void gmacOnDeviceFree(int (*mayFree)(void* start));
ADSM_API void gmacFreeKept(void);

/* Whether the application may expect to use such memory: the machine has a CUDA driver, and the
 * runtime is not told to use another device. Loads the driver, and does not initialise it. */
ADSM_API int gmacServesDeviceMemory(void);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_SESSION_DEVICE_MEMORY_H_ */
