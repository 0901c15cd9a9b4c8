/* SPDX-License-Identifier: Apache-2.0
 *
 * Datatypes: a noncontiguous part of memory, described once, packed into a contiguous buffer and
 * unpacked back wherever its bytes are current (Jenkins et al., "Enabling Fast, Noncontiguous GPU
 * Data Movement in Hybrid MPI+GPU Environments"; Wu et al., "GPU-Aware Non-contiguous Data Movement
 * in Open MPI").
 *
 * A type is a sequence of primitives at byte displacements, in the order in which they are packed;
 * size, bounds and extents have MPI's meaning (MPI 4.0, chapter 5). Counts, block lengths and
 * strides are in elements of the old type and displacements in elements or, where the constructor's
 * name begins with h (and for structs), in bytes. Counts and block lengths may be 0; strides,
 * displacements and lower bounds may be negative.
 *
 * All functions are thread-safe. A function that fails changes nothing, returns an error code and
 * leaves a text for adsmLastErrorString() that names the function, the argument and its value.
 */
#ifndef GMAC_ADSM_DATATYPE_H_
#define GMAC_ADSM_DATATYPE_H_

#include <stddef.h>
#include <stdint.h>

#include "adsm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types ---- */

typedef struct adsmType_s* adsmType_t;

/* The primitives, by their bytes. They are committed and cannot be freed. */
#define ADSM_TYPE_1 ((adsmType_t)(uintptr_t)1)
#define ADSM_TYPE_2 ((adsmType_t)(uintptr_t)2)
#define ADSM_TYPE_4 ((adsmType_t)(uintptr_t)4)
#define ADSM_TYPE_8 ((adsmType_t)(uintptr_t)8)
#define ADSM_TYPE_16 ((adsmType_t)(uintptr_t)16)

typedef enum adsmOrder ADSM_INT {
  adsmOrderC = 1,      /* the last dimension varies fastest */
  adsmOrderFortran = 2 /* the first does */
} adsmOrder_t;

/* Constructors. The new type keeps what it needs of the old ones, which may be freed at once.
 * adsmErrorInvalidValue for a negative count or block length, a subarray outside its array, a type
 * that is none, and a type whose bytes or bounds do not fit into 63 bits. */
ADSM_API adsmError_t adsmTypeContiguous(int64_t count, adsmType_t old, adsmType_t* type);
ADSM_API adsmError_t adsmTypeVector(int64_t count, int64_t blockLength, int64_t stride,
                                    adsmType_t old, adsmType_t* type);
ADSM_API adsmError_t adsmTypeHvector(int64_t count, int64_t blockLength, int64_t strideBytes,
                                     adsmType_t old, adsmType_t* type);
ADSM_API adsmError_t adsmTypeIndexed(int64_t count, const int64_t* blockLengths,
                                     const int64_t* displacements, adsmType_t old,
                                     adsmType_t* type);
ADSM_API adsmError_t adsmTypeHindexed(int64_t count, const int64_t* blockLengths,
                                      const int64_t* displacementBytes, adsmType_t old,
                                      adsmType_t* type);
ADSM_API adsmError_t adsmTypeIndexedBlock(int64_t count, int64_t blockLength,
                                          const int64_t* displacements, adsmType_t old,
                                          adsmType_t* type);
ADSM_API adsmError_t adsmTypeHindexedBlock(int64_t count, int64_t blockLength,
                                           const int64_t* displacementBytes, adsmType_t old,
                                           adsmType_t* type);
ADSM_API adsmError_t adsmTypeStruct(int64_t count, const int64_t* blockLengths,
                                    const int64_t* displacementBytes, const adsmType_t* types,
                                    adsmType_t* type);
/* An array of `dimensions` (1 or more) sizes, of which the part [starts, starts + subsizes). The
 * extent is the whole array's. */
ADSM_API adsmError_t adsmTypeSubarray(int dimensions, const int64_t* sizes, const int64_t* subsizes,
                                      const int64_t* starts, adsmOrder_t order, adsmType_t old,
                                      adsmType_t* type);
ADSM_API adsmError_t adsmTypeResized(adsmType_t old, int64_t lowerBound, int64_t extent,
                                     adsmType_t* type);
ADSM_API adsmError_t adsmTypeDuplicate(adsmType_t old, adsmType_t* type);

/* Prepares a type for adsmPack() and adsmUnpack(): brings its layout into the smallest of the forms
 * that describe it, the same for equal layouts. A second commit does nothing. */
ADSM_API adsmError_t adsmTypeCommit(adsmType_t type);

/* Forgets a type; operations under way and types built on it keep what they need.
 * adsmErrorInvalidValue for a primitive, NULL and what is no type. */
ADSM_API adsmError_t adsmTypeFree(adsmType_t type);

/* ---- Queries; results in bytes. ---- */

ADSM_API adsmError_t adsmTypeSize(adsmType_t type, int64_t* size);
ADSM_API adsmError_t adsmTypeExtent(adsmType_t type, int64_t* lowerBound, int64_t* extent);
ADSM_API adsmError_t adsmTypeTrueExtent(adsmType_t type, int64_t* lowerBound, int64_t* extent);

/* A hash of the sequence of primitive sizes, after the names: equal for types that one may pack and
 * the other unpack. */
ADSM_API adsmError_t adsmTypeSignature(adsmType_t type, uint64_t* signature);

/* The layout of a committed type: contiguous pieces in packed order, neighbours joined. */
typedef struct adsmBlock {
  int64_t offset; /* from the address that is packed */
  int64_t bytes;
} adsmBlock_t;
/* How many blocks there are; and those from number `first` on, at most `room` of them, in
 * packed order, `*written` of them. adsmErrorInvalidValue when the type is not committed. */
ADSM_API adsmError_t adsmTypeBlockCount(adsmType_t type, int64_t* count);
ADSM_API adsmError_t adsmTypeBlocks(adsmType_t type, int64_t first, int64_t room,
                                    adsmBlock_t* blocks, int64_t* written);
/* The canonical form as text, e.g. "strided 8 B x 4096 @ 512" or "list of 8192 blocks, 268 MB"; for
 * logs and tests. Valid until the type is freed. */
ADSM_API adsmError_t adsmTypeDescribe(adsmType_t type, const char** text);

/* ---- Pack and unpack ---- */

/* Copies `count` elements of a committed type at `source` into contiguous bytes at `target`, and
 * back. Either side may be shared (adsmAlloc), device memory, pinned or other CPU memory. Bytes of
 * shared objects are taken from, and left at, the side where they are current, without a fault:
 * what only the accelerator has is packed there and only packed bytes cross the bus. In the order
 * of calls: the operation sees what earlier calls and device work have written. On return, CPU
 * memory has its bytes; work on the accelerator's side may still be under way, in order before
 * every later call, copy and sync. No piece of the type may overlap the packed bytes; they may lie
 * in its gaps. An unpack of a type whose pieces overlap leaves one of the values there. */
ADSM_API adsmError_t adsmPack(void* target, const void* source, int64_t count, adsmType_t type);
ADSM_API adsmError_t adsmUnpack(void* target, const void* source, int64_t count, adsmType_t type);

/* How an operation is done. */
typedef enum adsmMethod ADSM_INT {
  adsmMethodAny = 0,    /* the cost model's choice */
  adsmMethodKernel = 1, /* a pack kernel; into pinned CPU memory it writes directly (zero copy) */
  adsmMethodCopy2d = 2, /* the device's strided copy engine; for layouts of at most three dimensions
                         */
  adsmMethodCopy = 3,   /* one plain copy a contiguous piece */
  adsmMethodStaged = 4, /* a pack kernel into device memory, and a pipelined copy from there */
  adsmMethodCpu = 5     /* the CPU, where the bytes are current there */
} adsmMethod_t;
/* "any", "kernel", "copy2d", "copy", "staged", "cpu". */
ADSM_API const char* adsmMethodName(adsmMethod_t method);

/* What an operation did. */
typedef struct adsmPackReport {
  adsmMethod_t method; /* of most of its bytes */
  int64_t bytes;       /* packed */
  int64_t bytesOnCpu;  /* of these, packed by the CPU */
  int64_t bytesAcross; /* that crossed the bus */
  int64_t launches;    /* kernels and copies submitted */
} adsmPackReport_t;

typedef struct adsmPackEvent_s* adsmPackEvent_t;

/* Zero means: not said. Begin with `adsmPackOptions_t options = {0}; options.size = sizeof
 * options;`
 */
typedef struct adsmPackOptions {
  size_t size;    /* sizeof(adsmPackOptions_t) */
  int64_t offset; /* of the part to do, bytes in packed order; the target of a pack and the source
                     of an unpack are where that part begins */
  int64_t bytes;  /* of the part; 0: to the end */
  adsmMethod_t method;      /* forced: adsmErrorNotSupported where it cannot be had */
  int blocks;               /* the most thread blocks that a kernel may occupy; 0: no limit */
  void* stream;             /* a CUstream of the application's to run on, in its order: pinned
                                                CPU memory has its bytes, and may be reused, when the stream is
                                                past the operation. NULL: the runtime's */
  adsmPackEvent_t* event;   /* asynchronous: filled in, and the operation is over when it is; CPU
                               memory named must stay until then, shared objects may be used */
  adsmPackReport_t* report; /* filled in before the function returns */
} adsmPackOptions_t;

ADSM_API adsmError_t adsmPackWith(void* target, const void* source, int64_t count, adsmType_t type,
                                  const adsmPackOptions_t* options);
ADSM_API adsmError_t adsmUnpackWith(void* target, const void* source, int64_t count,
                                    adsmType_t type, const adsmPackOptions_t* options);

/* ---- Transfer ---- */

/* Copies `sourceCount` elements of a committed type at `source` to `targetCount` of another at
 * `target`, byte after byte in packed order, as a pack and an unpack would, in one pass and without
 * the packed bytes in between: by one kernel where the device has both sides, or by the CPU where
 * it has. Where they are at different places, it is a pack and an unpack by way of the CPU's
 * memory, 4 MiB at a time. An object's bytes that the CPU has are flushed where a kernel writes
 * beside them. Both sides have the same number of bytes (adsmErrorInvalidValue). One of the two
 * has no bytes between the first and the last of the other (adsmErrorInvalidValue).
 * Order, return and memory are as of adsmPack(). Thread-safe.
 *
 * With options: offset and bytes are those of the part in packed order, on both sides; with bytes,
 * one side may be longer. Methods:
 * kernel, copy2d (equal rows on both sides, or one contiguous side) and cpu force the one pass,
 * staged the two; adsmErrorNotSupported for a method that the sides do not allow, for the others,
 * and for a stream where the CPU would take part. */
ADSM_API adsmError_t adsmTransfer(void* target, int64_t targetCount, adsmType_t targetType,
                                  const void* source, int64_t sourceCount, adsmType_t sourceType);
ADSM_API adsmError_t adsmTransferWith(void* target, int64_t targetCount, adsmType_t targetType,
                                      const void* source, int64_t sourceCount,
                                      adsmType_t sourceType, const adsmPackOptions_t* options);

/* Whether the operation is over (1 or 0); waits for it. Each event is given back once, by
 * adsmPackWait() only, whose result is the operation's. A second wait, and what is no event, is
 * adsmErrorInvalidValue (adsmPackDone: 1, and the last error). */
ADSM_API int adsmPackDone(adsmPackEvent_t event);
ADSM_API adsmError_t adsmPackWait(adsmPackEvent_t event);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_ADSM_DATATYPE_H_ */
