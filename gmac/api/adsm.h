/* SPDX-License-Identifier: Apache-2.0
 *
 * ADSM: one pointer for the CPU and the accelerator.
 *
 * An object allocated here has one address that is valid in CPU code and in kernels. Its two
 * physical copies are kept consistent at two points: adsmCall() releases the CPU's writes to the
 * accelerator, adsmSync() acquires the accelerator's writes (Gelado et al., ASPLOS 2010,
 * sections 3.3 and 4).
 *
 * Every function is thread-safe. The runtime starts with the first call that needs it and reads its
 * GMAC_* variables then. A function that fails changes nothing, returns an error code (or NULL) and
 * leaves a text for adsmLastErrorString() in the calling thread. No function may be called from an
 * asynchronous signal handler.
 */
#ifndef GMAC_ADSM_H_
#define GMAC_ADSM_H_

#include <stddef.h>

#if defined(__GNUC__)
#define ADSM_API __attribute__((visibility("default")))
#else
#define ADSM_API
#endif

/* In C++ as in C, a variable of an enum may hold any int: a number that is none of its values is an
 * error, and not undefined. */
#ifdef __cplusplus
#define ADSM_INT : int
#else
#define ADSM_INT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors */

typedef enum adsmError ADSM_INT {
  adsmSuccess = 0,
  adsmErrorInvalidValue = 1,   /* an argument is outside what the function allows */
  adsmErrorInvalidPointer = 2, /* the address is no shared object's (or no object starts there) */
  adsmErrorHostMemory = 3,     /* the CPU side has no memory or no mappings left */
  adsmErrorAcceleratorMemory = 4, /* the accelerator's memory is exhausted */
  adsmErrorAddressConflict = 5,   /* no address is free on both sides: use adsmSafeAlloc() */
  adsmErrorNoImplementation = 6,  /* the kernel has no implementation for this accelerator */
  adsmErrorLaunch = 7,            /* the accelerator refused the launch */
  adsmErrorKernel = 8,            /* a kernel failed while it ran */
  adsmErrorAcceleratorLost = 9,   /* the accelerator is gone; its objects' contents are lost */
  adsmErrorNoAccelerator = 10,    /* the accelerator asked for is not there */
  adsmErrorConfiguration = 11,    /* a GMAC_* variable has a value that is not allowed */
  adsmErrorForked = 12,           /* called in the child of a fork, which has no shared objects */
  adsmErrorSystem = 13,           /* the system or the driver failed in some other way */
  adsmErrorNotSupported = 14      /* this accelerator cannot do what was asked */
} adsmError_t;

/* The enumerator's own spelling, e.g. "adsmErrorInvalidValue"; "adsmErrorUnknown" for a number that
 * is none. */
ADSM_API const char* adsmErrorName(adsmError_t error);

/* The last error of the calling thread: its code, and one sentence that says what was wrong and
 * with which value. The text is valid until the thread's next failing call; "" when nothing has
 * failed. Success does not reset either. */
ADSM_API adsmError_t adsmLastError(void);
ADSM_API const char* adsmLastErrorString(void);

/* ---- Objects */

/* Allocates a shared object of `size` bytes (1 or more). The address is valid on both sides and
 * aligned to 256 bytes; both copies start out equal. NULL on failure: adsmErrorInvalidValue,
 * adsmErrorHostMemory, adsmErrorAcceleratorMemory, or adsmErrorAddressConflict, in which case
 * adsmSafeAlloc() still works. */
ADSM_API void* adsmAlloc(size_t size);

/* Like adsmAlloc(), for an object that the CPU fills and several GPUs use: its pieces of 2 MiB lie
 * in the memory of these devices in turn, piece i on devices[i % deviceCount], so that it is filled
 * over the buses of all of them at once. `deviceCount` 0: all devices; `devices` NULL: the first
 * `deviceCount`. A device is listed once. The address is the same for all devices. Where there is
 * one device, where devices do not reach each other's memory or a device has no room for its
 * pieces, and for at most 2 MiB: an object of adsmAlloc(), and one line at level info says why.
 * Also adsmErrorInvalidValue for a number that is no device's or is listed twice. */
ADSM_API void* adsmAllocStriped(size_t size, int deviceCount, const int* devices);

/* Like adsmAlloc(), but the address is valid on the CPU only; pass adsmSafe(address) to kernels
 * (section 4.2). Pointers stored inside the object are not translated. */
ADSM_API void* adsmSafeAlloc(size_t size);

/* The accelerator's address for a CPU address anywhere inside a shared object; NULL and
 * adsmErrorInvalidPointer for any other address. The same address for objects of adsmAlloc(). */
ADSM_API void* adsmSafe(const void* address);

/* Frees the object that starts at `address`; waits for the kernels that may use it. NULL is allowed
 * and does nothing. adsmErrorInvalidPointer for any other address, an address inside an object, and
 * a second free. */
ADSM_API adsmError_t adsmFree(void* address);

/* ---- Kernels */

typedef struct adsmDim {
  unsigned x, y, z; /* each 1 or more */
} adsmDim_t;

/* What a host kernel sees: its thread block. The function runs all threads of one block itself. */
typedef struct adsmThreadBlock {
  adsmDim_t gridDim, blockDim, blockIdx;
  void* shared;       /* the block's own scratch, aligned to 64 bytes, uninitialised */
  size_t sharedBytes; /* of it, as given to adsmCall() */
} adsmThreadBlock_t;

/* The `host` implementation of a kernel: called once per thread block, from several threads at a
 * time, in the device process. args[i] points to the i-th argument. It may use shared objects,
 * constants named in the description, and code; other memory of the application is not there. */
typedef void (*adsmHostKernel_t)(const adsmThreadBlock_t* block, void** args);

/* Constant memory that kernels read: one logical name, one variable per implementation. */
typedef struct adsmConstant {
  const char* name;         /* the __constant__ variable's name in the module image (`cuda`) */
  size_t size;              /* bytes */
  void* host;               /* the variable that the host kernel reads, or NULL */
  const void* cudartSymbol; /* the __constant__ symbol (`cudart`), or NULL */
} adsmConstant_t;

/* A kernel: one method, with an implementation for each accelerator; NULL where there is none. */
typedef struct adsmKernelDesc {
  const char* name;         /* for messages, statistics and traces; required */
  size_t paramCount;        /* number of parameters */
  const size_t* paramSizes; /* bytes of each, together at most 32 KiB; paramCount entries */
  adsmHostKernel_t host;    /* `host` */
  const void* cudaImage;    /* `cuda`: a fatbin, cubin or NUL-terminated PTX; must stay there */
  const char* cudaName;     /* `cuda`: the function's name in that image (extern "C" or mangled) */
  const void* cudartSymbol; /* `cudart`: the __global__ function */
  size_t constantCount;     /* those of adsmSetConstant(); kernels of one image share them */
  const adsmConstant_t* constants;
} adsmKernelDesc_t;

typedef struct adsmKernel_s* adsmKernel_t;

/* Describes a kernel; everything in `desc` but the image and the constants' variables is copied.
 * adsmErrorInvalidValue names the field. Loading happens at the first call. */
ADSM_API adsmError_t adsmKernelCreate(const adsmKernelDesc_t* desc, adsmKernel_t* kernel);

/* Forgets a kernel and its bindings; waits for its calls in flight. adsmErrorInvalidValue, here and
 * wherever a kernel is named, for one that was destroyed and for what is none. */
ADSM_API adsmError_t adsmKernelDestroy(adsmKernel_t kernel);

/* Sets a constant for all calls made afterwards; calls already made see the old value. `data` may
 * be reused on return. adsmErrorInvalidValue when the kernel has no such constant or size exceeds
 * it. */
ADSM_API adsmError_t adsmSetConstant(adsmKernel_t kernel, const char* name, const void* data,
                                     size_t size);

/* ---- Calls */

/* What a call does to an object. adsmWrite alone promises nothing about bytes that the kernel does
 * not write: they keep the CPU's values. */
typedef enum adsmAccess ADSM_INT { adsmRead = 1, adsmWrite = 2, adsmReadWrite = 3 } adsmAccess_t;

typedef struct adsmUse {
  const void* object; /* any address inside the object */
  adsmAccess_t access;
} adsmUse_t;

/* Releases all objects to the accelerator and launches: returns when the launch is queued. Calls
 * run one after another. args[i] points to the i-th argument, which is copied before the function
 * returns. Objects that are bound to other kernels only (adsmBind) are left alone; all other
 * objects count as read and written. A CPU access to an object that the call may write waits for
 * the call. */
ADSM_API adsmError_t adsmCall(adsmKernel_t kernel, adsmDim_t grid, adsmDim_t block,
                              size_t sharedBytes, void** args);

/* The same for a call that uses exactly the `count` objects listed (none when 0). An object that it
 * only reads stays readable on the CPU while the kernel runs and costs nothing afterwards. */
ADSM_API adsmError_t adsmCallUsing(adsmKernel_t kernel, adsmDim_t grid, adsmDim_t block,
                                   size_t sharedBytes, void** args, const adsmUse_t* uses,
                                   size_t count);

/* Binds an object to a kernel (section 3.3, "a more elaborate scheme"): from now on a call uses a
 * bound object only if it is bound to the kernel called, and as `access` says. An object may be
 * bound to several kernels. */
ADSM_API adsmError_t adsmBind(const void* object, adsmKernel_t kernel, adsmAccess_t access);

/* Waits, yielding the CPU, until every call made before has finished, and acquires what they wrote.
 * An error of such a call is returned here (adsmErrorKernel, adsmErrorAcceleratorLost). */
ADSM_API adsmError_t adsmSync(void);

/* ---- Devices */

/* An accelerator may consist of several devices, numbered from 0. An object lies on one of them and
 * has the same address on all. Where they do not reach each other's memory (`host`, some GPUs) it
 * moves to the device where a call uses it. */
typedef struct adsmDeviceInfo {
  char kind[16];      /* "host", "cuda", "cudart" */
  char name[256];     /* the device's own words for itself */
  size_t memoryBytes; /* its memory */
  size_t freeBytes;   /* of those */
  char bus[32];       /* its PCI address, as "0000:3b:00.0"; empty where it has none */
  unsigned peers;     /* bit i: its kernels use the memory of device i where that lies */
} adsmDeviceInfo_t;

/* How many devices there are; 1 or more. */
ADSM_API adsmError_t adsmDeviceCount(int* count);

/* Describes one. adsmErrorInvalidValue for a number that is none; adsmErrorAcceleratorLost for a
 * device that is gone; adsmErrorNotSupported where the driver does not tell. */
ADSM_API adsmError_t adsmDeviceInfo(int device, adsmDeviceInfo_t* info);

/* A call on one device. (adsmCall() runs on device 0, and adsmCallUsing() where GMAC_SCHEDULER
 * says: on device 0 unless it is set.) `uses` NULL, with a `count` of 0: the call uses what
 * adsmCall() does; else exactly the `count` objects listed. Calls on different devices that share
 * no object run at once. Those that share one run in the order in which they are made, unless they
 * all only read it and the devices reach each other's memory. Besides the errors of
 * adsmCallUsing(), and with nothing launched: adsmErrorInvalidValue for a number that is no
 * device's; adsmErrorAcceleratorMemory where what the call uses has to move to the device and does
 * not fit; adsmErrorAcceleratorLost where that device, or the one on which an object lies, is gone;
 * adsmErrorNoImplementation where the kernel has no code for it. */
ADSM_API adsmError_t adsmCallOn(int device, adsmKernel_t kernel, adsmDim_t grid, adsmDim_t block,
                                size_t sharedBytes, void** args, const adsmUse_t* uses,
                                size_t count);

/* What a call does to a part of an object. (A structure of its own, so that programs that were
 * written or compiled with adsmUse_t keep their meaning.) */
typedef struct adsmRangeUse {
  const void* address; /* any address inside the object */
  size_t bytes;        /* from there on, none after the object's end; 0: the whole object */
  adsmAccess_t access;
} adsmRangeUse_t;

#define ADSM_ANY_DEVICE (-1) /* where GMAC_SCHEDULER says, as adsmCallUsing() */

/* A call that uses exactly the `count` parts of objects listed (none when 0), on one device or
 * ADSM_ANY_DEVICE. The parts are those blocks of an object (GMAC_BLOCK_SIZE; under the protocols
 * batch and lazy the object is one block) of which they have a byte: those are released to the
 * accelerator, and no others. Calls whose parts have no block in common run at once on different
 * devices, and so do calls that only read what they have in common; the others run in the order of
 * the calls. A CPU access to a block that the call may write waits for the call, an access to
 * another block does not. Besides the errors of adsmCallOn(): adsmErrorInvalidValue for a part that
 * leaves its object, and for two that have a byte in common and different accesses. */
ADSM_API adsmError_t adsmCallRanges(int device, adsmKernel_t kernel, adsmDim_t grid,
                                    adsmDim_t block, size_t sharedBytes, void** args,
                                    const adsmRangeUse_t* uses, size_t count);

/* Moves the object with these bytes to a device, before a call needs it there; waits for the
 * kernels that may use it. `bytes`: 1 or more, none after the object's end; the whole object moves.
 * adsmErrorInvalidPointer, adsmErrorInvalidValue, adsmErrorAcceleratorMemory (it stays where it
 * is). */
ADSM_API adsmError_t adsmMigrate(const void* address, size_t bytes, int device);

/* ---- The application's CUDA runtime */

/* What the `cudart` accelerator calls: the functions of the CUDA runtime in which the program's
 * kernels are registered. A source that nvcc compiles registers its own runtime, static or shared,
 * by including this header (below); nothing need be called. The list is X(name, result,
 * parameters); only the names matter to sources without CUDA. */
#define ADSM_CUDART_FUNCTIONS(X)                                                                   \
  X(cudaGetErrorString, const char*, (cudaError_t))                                                \
  X(cudaPeekAtLastError, cudaError_t, (void))                                                      \
  X(cudaGetLastError, cudaError_t, (void))                                                         \
  X(cudaGetDevice, cudaError_t, (int*))                                                            \
  X(cudaSetDevice, cudaError_t, (int))                                                             \
  X(cudaGetDeviceProperties, cudaError_t, (struct cudaDeviceProp*, int))                           \
  X(cudaDeviceGetAttribute, cudaError_t, (int*, enum cudaDeviceAttr, int))                         \
  X(cudaMalloc, cudaError_t, (void**, size_t))                                                     \
  X(cudaFree, cudaError_t, (void*))                                                                \
  X(cudaHostAlloc, cudaError_t, (void**, size_t, unsigned))                                        \
  X(cudaFreeHost, cudaError_t, (void*))                                                            \
  X(cudaHostRegister, cudaError_t, (void*, size_t, unsigned))                                      \
  X(cudaHostUnregister, cudaError_t, (void*))                                                      \
  X(cudaStreamCreateWithFlags, cudaError_t, (cudaStream_t*, unsigned))                             \
  X(cudaStreamDestroy, cudaError_t, (cudaStream_t))                                                \
  X(cudaStreamWaitEvent, cudaError_t, (cudaStream_t, cudaEvent_t, unsigned))                       \
  X(cudaEventCreateWithFlags, cudaError_t, (cudaEvent_t*, unsigned))                               \
  X(cudaEventDestroy, cudaError_t, (cudaEvent_t))                                                  \
  X(cudaEventRecord, cudaError_t, (cudaEvent_t, cudaStream_t))                                     \
  X(cudaEventQuery, cudaError_t, (cudaEvent_t))                                                    \
  X(cudaMemcpyAsync, cudaError_t, (void*, const void*, size_t, enum cudaMemcpyKind, cudaStream_t)) \
  X(cudaMemsetAsync, cudaError_t, (void*, int, size_t, cudaStream_t))                              \
  X(cudaGetSymbolAddress, cudaError_t, (void**, const void*))                                      \
  X(cudaGetSymbolSize, cudaError_t, (size_t*, const void*))                                        \
  X(cudaFuncGetAttributes, cudaError_t, (struct cudaFuncAttributes*, const void*))                 \
  X(cudaFuncSetAttribute, cudaError_t, (const void*, enum cudaFuncAttribute, int))                 \
  X(cudaLaunchKernel, cudaError_t, (const void*, dim3, dim3, void**, size_t, cudaStream_t))

typedef void (*adsmFunction_t)(void);

typedef struct adsmCudart {
  size_t size; /* sizeof(adsmCudart_t) where it was filled in */
#define ADSM_CUDART_MEMBER(name, result, parameters) adsmFunction_t name;
  ADSM_CUDART_FUNCTIONS(ADSM_CUDART_MEMBER)
#undef ADSM_CUDART_MEMBER
} adsmCudart_t;

/* Names the CUDA runtime of the `cudart` accelerator, before the runtime starts; the first one
 * named stays. The table is copied, the functions must stay. adsmErrorInvalidValue when the table
 * is another version's or lacks a function. */
ADSM_API adsmError_t adsmUseCudart(const adsmCudart_t* cudart);

#ifdef __cplusplus
}
#endif

#if defined(__CUDACC__) && defined(__cplusplus) && !defined(ADSM_NO_CUDART)
static inline adsmError_t adsmUseOwnCudart_(void) {
  adsmCudart_t own;
  own.size = sizeof own;
#define ADSM_CUDART_FILL(name, result, parameters) \
  own.name = reinterpret_cast<adsmFunction_t>(static_cast<result(*) parameters>(&::name));
  ADSM_CUDART_FUNCTIONS(ADSM_CUDART_FILL)
#undef ADSM_CUDART_FILL
  return adsmUseCudart(&own);
}
static const adsmError_t adsmOwnCudart_ __attribute__((unused)) = adsmUseOwnCudart_();
#endif

#endif /* GMAC_ADSM_H_ */
