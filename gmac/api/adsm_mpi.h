/* SPDX-License-Identifier: Apache-2.0
 *
 * Types of MPI as types of ADSM. For sources that include an MPI library's own mpi.h, whichever
 * that is: everything here is compiled there, and libgmac knows nothing of MPI.
 */
#ifndef GMAC_ADSM_MPI_H_
#define GMAC_ADSM_MPI_H_

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adsm_datatype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C, in which NULL is NULL; and names of its own end in an underscore.
 * NOLINTBEGIN(modernize-use-nullptr,readability-identifier-naming) */

/* For this header: leaves `text` as the calling thread's last error and returns `error`. */
ADSM_API adsmError_t adsmMpiError_(adsmError_t error, const char* text);
/* For this header: a function of libgmac_mpi.so, or NULL where that is not loaded. */
ADSM_API void* adsmMpiFunction_(const char* name);

static inline adsmError_t adsmTypeFromMpi(MPI_Datatype from, adsmType_t* type);

static inline adsmError_t adsmMpiCheckIn_(const char* function, int code, const char* call) {
  char said[MPI_MAX_ERROR_STRING + 1] = "";
  char text[MPI_MAX_ERROR_STRING + 100];
  int length = 0;
  if (code == MPI_SUCCESS) {
    return adsmSuccess;
  }
  if (MPI_Error_string(code, said, &length) != MPI_SUCCESS) {
    said[0] = '\0';
  }
  snprintf(text, sizeof text, "%s: %s: %s", function, call, said);
  return adsmMpiError_(adsmErrorSystem, text);
}
static inline adsmError_t adsmMpiCheck_(int code, const char* call) {
  return adsmMpiCheckIn_("adsmTypeFromMpi", code, call);
}

/* Bytes and bounds; in MPI's widest integers. */
static inline adsmError_t adsmMpiMeasure_(MPI_Datatype from, int64_t* size, int64_t* lowerBound,
                                          int64_t* extent) {
  adsmError_t error = adsmSuccess;
#if MPI_VERSION >= 3
  MPI_Count bytes = 0, lb = 0, wide = 0;
  error = adsmMpiCheck_(MPI_Type_size_x(from, &bytes), "MPI_Type_size_x");
  if (error == adsmSuccess) {
    error = adsmMpiCheck_(MPI_Type_get_extent_x(from, &lb, &wide), "MPI_Type_get_extent_x");
  }
#else
  int bytes = 0;
  MPI_Aint lb = 0, wide = 0;
  error = adsmMpiCheck_(MPI_Type_size(from, &bytes), "MPI_Type_size");
  if (error == adsmSuccess) {
    error = adsmMpiCheck_(MPI_Type_get_extent(from, &lb, &wide), "MPI_Type_get_extent");
  }
#endif
  *size = (int64_t)bytes;
  *lowerBound = (int64_t)lb;
  *extent = (int64_t)wide;
  return error;
}

/* A predefined type: a primitive, a few of them, or one of the pairs for MPI_MINLOC. */
static inline adsmError_t adsmMpiNamed_(MPI_Datatype from, int64_t size, adsmType_t* type) {
  struct FloatInt {
    float first;
    int second;
  };
  struct DoubleInt {
    double first;
    int second;
  };
  struct LongInt {
    long first;
    int second;
  };
  struct ShortInt {
    short first;
    int second;
  };
  struct LongDoubleInt {
    long double first;
    int second;
  };
  const int64_t lengths[2] = {1, 1};
  int64_t places[2] = {0, 0};
  adsmType_t olds[2] = {ADSM_TYPE_1, ADSM_TYPE_4};
  int64_t unit = 16;
  if (from == MPI_FLOAT_INT) {
    places[1] = (int64_t)offsetof(struct FloatInt, second);
    olds[0] = ADSM_TYPE_4;
  } else if (from == MPI_DOUBLE_INT) {
    places[1] = (int64_t)offsetof(struct DoubleInt, second);
    olds[0] = ADSM_TYPE_8;
  } else if (from == MPI_LONG_INT) {
    places[1] = (int64_t)offsetof(struct LongInt, second);
    olds[0] = (adsmType_t)(uintptr_t)sizeof(long);
  } else if (from == MPI_SHORT_INT) {
    places[1] = (int64_t)offsetof(struct ShortInt, second);
    olds[0] = ADSM_TYPE_2;
  } else if (from == MPI_LONG_DOUBLE_INT) {
    places[1] = (int64_t)offsetof(struct LongDoubleInt, second);
    olds[0] = (adsmType_t)(uintptr_t)sizeof(long double);
  } else if (from == MPI_2INT) {
    return adsmTypeContiguous(2, ADSM_TYPE_4, type);
  }
  if (places[1] != 0) {
    return adsmTypeStruct(2, lengths, places, olds, type);
  }
  while (unit > 1 && size % unit != 0) {
    unit /= 2;
  }
  return adsmTypeContiguous(size / unit, (adsmType_t)(uintptr_t)unit, type);
}

/* A derived type: the constructor's arguments, one after the other as MPI lists them, and its old
 * types, of ADSM. */
static inline adsmError_t adsmMpiDerived_(int combiner, const int64_t* values,
                                          const adsmType_t* olds, adsmType_t* type) {
  const adsmType_t old = olds[0];
  char text[100];
  switch (combiner) {
    case MPI_COMBINER_DUP:
      return adsmTypeDuplicate(old, type);
    case MPI_COMBINER_CONTIGUOUS:
      return adsmTypeContiguous(values[0], old, type);
    case MPI_COMBINER_VECTOR:
      return adsmTypeVector(values[0], values[1], values[2], old, type);
    case MPI_COMBINER_HVECTOR:
      return adsmTypeHvector(values[0], values[1], values[2], old, type);
    case MPI_COMBINER_INDEXED:
      return adsmTypeIndexed(values[0], values + 1, values + 1 + values[0], old, type);
    case MPI_COMBINER_HINDEXED:
      return adsmTypeHindexed(values[0], values + 1, values + 1 + values[0], old, type);
    case MPI_COMBINER_INDEXED_BLOCK:
      return adsmTypeIndexedBlock(values[0], values[1], values + 2, old, type);
#if MPI_VERSION >= 3
    case MPI_COMBINER_HINDEXED_BLOCK:
      return adsmTypeHindexedBlock(values[0], values[1], values + 2, old, type);
#endif
    case MPI_COMBINER_STRUCT:
      return adsmTypeStruct(values[0], values + 1, values + 1 + values[0], olds, type);
    case MPI_COMBINER_SUBARRAY: {
      const int64_t dimensions = values[0];
      const int64_t* sizes = values + 1;
      const int64_t order = sizes[3 * dimensions];
      return adsmTypeSubarray((int)dimensions, sizes, sizes + dimensions, sizes + 2 * dimensions,
                              order == MPI_ORDER_C ? adsmOrderC : adsmOrderFortran, old, type);
    }
    case MPI_COMBINER_RESIZED:
      return adsmTypeResized(old, values[0], values[1], type);
    case MPI_COMBINER_DARRAY:
      return adsmMpiError_(adsmErrorNotSupported,
                           "adsmTypeFromMpi: the type is made by MPI_Type_create_darray, which is "
                           "not supported; MPI_Type_create_subarray is");
    default:
      snprintf(text, sizeof text, "adsmTypeFromMpi: MPI combiner %d is not supported", combiner);
      return adsmMpiError_(adsmErrorNotSupported, text);
  }
}

/* Whether MPI gives a new handle for such an old type, which is to be freed. */
static inline int adsmMpiIsDerived_(MPI_Datatype from) {
  int combiner = 0;
#if MPI_VERSION >= 4
  MPI_Count ints = 0, addresses = 0, counts = 0, types = 0;
  const int code = MPI_Type_get_envelope_c(from, &ints, &addresses, &counts, &types, &combiner);
#else
  int ints = 0, addresses = 0, types = 0;
  const int code = MPI_Type_get_envelope(from, &ints, &addresses, &types, &combiner);
#endif
  if (code != MPI_SUCCESS) {
    return 0;
  }
  return combiner != MPI_COMBINER_NAMED && combiner != MPI_COMBINER_F90_REAL &&
         combiner != MPI_COMBINER_F90_COMPLEX && combiner != MPI_COMBINER_F90_INTEGER;
}

/* Takes a derived type apart and puts it together again. */
static inline adsmError_t adsmMpiTakeApart_(MPI_Datatype from, int combiner, size_t ints,
                                            size_t addresses, size_t counts, size_t types,
                                            adsmType_t* type) {
  const size_t all = ints + addresses + counts;
  int* const intValues = (int*)calloc(ints + 1, sizeof(int));
  MPI_Aint* const addressValues = (MPI_Aint*)calloc(addresses + 1, sizeof(MPI_Aint));
  MPI_Datatype* const mpiOlds = (MPI_Datatype*)calloc(types + 1, sizeof(MPI_Datatype));
  int64_t* const values = (int64_t*)calloc(all + 1, sizeof(int64_t));
  adsmType_t* const olds = (adsmType_t*)calloc(types + 1, sizeof(adsmType_t));
  size_t used = 0, have = 0, i = 0;
  adsmError_t error = adsmSuccess;
#if MPI_VERSION >= 4
  MPI_Count* const countValues = (MPI_Count*)calloc(counts + 1, sizeof(MPI_Count));
  const int allocated = countValues != NULL;
#else
  const int allocated = 1;
#endif
  if (intValues == NULL || addressValues == NULL || mpiOlds == NULL || values == NULL ||
      olds == NULL || !allocated) {
    error = adsmMpiError_(adsmErrorHostMemory, "adsmTypeFromMpi: the CPU's memory is exhausted");
  } else {
#if MPI_VERSION >= 4
    error = adsmMpiCheck_(
        MPI_Type_get_contents_c(from, (MPI_Count)ints, (MPI_Count)addresses, (MPI_Count)counts,
                                (MPI_Count)types, intValues, addressValues, countValues, mpiOlds),
        "MPI_Type_get_contents_c");
#else
    error = adsmMpiCheck_(MPI_Type_get_contents(from, (int)ints, (int)addresses, (int)types,
                                                intValues, addressValues, mpiOlds),
                          "MPI_Type_get_contents");
#endif
  }
  if (error == adsmSuccess) {
    have = types;
    for (i = 0; i < ints; ++i) {
      values[used++] = intValues[i];
    }
    for (i = 0; i < addresses; ++i) {
      values[used++] = (int64_t)addressValues[i];
    }
#if MPI_VERSION >= 4
    if (counts > 0 && combiner == MPI_COMBINER_SUBARRAY) {
      /* Two ints, the order being the second: it goes last, as in the other form. */
      used = 1;
    }
    for (i = 0; i < counts; ++i) {
      values[used++] = (int64_t)countValues[i];
    }
    if (counts > 0 && combiner == MPI_COMBINER_SUBARRAY) {
      values[used++] = intValues[1];
    }
#endif
    /* Old types that are the same, one after the other, are converted once. */
    for (i = 0; i < types && error == adsmSuccess; ++i) {
      if (i > 0 && mpiOlds[i] == mpiOlds[i - 1]) {
        olds[i] = olds[i - 1];
      } else {
        error = adsmTypeFromMpi(mpiOlds[i], &olds[i]);
      }
    }
    if (error == adsmSuccess) {
      error = adsmMpiDerived_(combiner, values, olds, type);
    }
    for (i = 0; i < types; ++i) {
      if (olds[i] != NULL && (i == 0 || olds[i] != olds[i - 1])) {
        (void)adsmTypeFree(olds[i]);
      }
    }
  }
  for (i = 0; i < have; ++i) {
    if (adsmMpiIsDerived_(mpiOlds[i])) {
      (void)MPI_Type_free(&mpiOlds[i]);
    }
  }
  free(intValues);
  free(addressValues);
  free(mpiOlds);
  free(values);
  free(olds);
#if MPI_VERSION >= 4
  free(countValues);
#endif
  return error;
}

/* A new type, not committed and to be freed by the caller, with the bytes, the lower bound and the
 * extent that `from` has in the MPI library (what padding that gives to structs included).
 * adsmErrorNotSupported for types that were made by MPI_Type_create_darray. */
static inline adsmError_t adsmTypeFromMpi(MPI_Datatype from, adsmType_t* type) {
  int64_t size = 0, lowerBound = 0, extent = 0, ownLowerBound = 0, ownExtent = 0;
  adsmType_t made = NULL;
  adsmError_t error = adsmSuccess;
  int combiner = 0;
#if MPI_VERSION >= 4
  MPI_Count ints = 0, addresses = 0, counts = 0, types = 0;
#else
  int ints = 0, addresses = 0, types = 0;
  const int counts = 0;
#endif
  if (type == NULL) {
    return adsmMpiError_(adsmErrorInvalidValue, "adsmTypeFromMpi: type is NULL");
  }
  if (from == MPI_DATATYPE_NULL) {
    return adsmMpiError_(adsmErrorInvalidValue, "adsmTypeFromMpi: from is MPI_DATATYPE_NULL");
  }
#if MPI_VERSION >= 4
  error =
      adsmMpiCheck_(MPI_Type_get_envelope_c(from, &ints, &addresses, &counts, &types, &combiner),
                    "MPI_Type_get_envelope_c");
#else
  error = adsmMpiCheck_(MPI_Type_get_envelope(from, &ints, &addresses, &types, &combiner),
                        "MPI_Type_get_envelope");
#endif
  if (error == adsmSuccess) {
    error = adsmMpiMeasure_(from, &size, &lowerBound, &extent);
  }
  if (error == adsmSuccess) {
    if (combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
        combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER) {
      error = adsmMpiNamed_(from, size, &made);
    } else {
      error = adsmMpiTakeApart_(from, combiner, (size_t)ints, (size_t)addresses, (size_t)counts,
                                (size_t)types, &made);
    }
  }
  if (error == adsmSuccess) {
    (void)adsmTypeExtent(made, &ownLowerBound, &ownExtent);
  }
  if (error == adsmSuccess && (ownLowerBound != lowerBound || ownExtent != extent)) {
    adsmType_t resized = NULL;
    error = adsmTypeResized(made, lowerBound, extent, &resized);
    (void)adsmTypeFree(made);
    made = resized;
  }
  if (error == adsmSuccess) {
    *type = made;
  }
  return error;
}

/* Whether all processes of `comm` name the same type: each gives a digest of its own, if it has
 * one. The smallest of each word and of its complement, which is the largest, are then of one word.
 */
static inline adsmError_t adsmMpiAgree_(const char* function, MPI_Comm comm, MPI_Datatype type,
                                        int* known) {
  typedef int (*Digest)(MPI_Datatype, uint64_t*);
  Digest digest = NULL;
  uint64_t words[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
  uint64_t least[4] = {0, 0, 0, 0};
  char text[160];
  void* const found = adsmMpiFunction_("MPIX_Gmac_type_digest");
  adsmError_t error = adsmSuccess;
  memcpy(&digest, &found, sizeof digest);
  *known = digest != NULL && digest(type, words);
  if (*known) {
    words[2] = ~words[0];
    words[3] = ~words[1];
  }
  error = adsmMpiCheckIn_(function, MPI_Allreduce(words, least, 4, MPI_UINT64_T, MPI_MIN, comm),
                          "MPI_Allreduce");
  if (error == adsmSuccess && (least[0] != UINT64_MAX || least[2] != UINT64_MAX) &&
      (least[0] != ~least[2] || least[1] != ~least[3])) {
    snprintf(text, sizeof text,
             "%s: the processes of the communicator name types of different layouts", function);
    error = adsmMpiError_(adsmErrorInvalidValue, text);
  }
  return error;
}

static inline adsmError_t adsmMpiCheckType_(const char* function, const MPI_Datatype* type) {
  char text[100];
  if (type != NULL && *type != MPI_DATATYPE_NULL) {
    return adsmSuccess;
  }
  snprintf(text, sizeof text, "%s: %s", function,
           type == NULL ? "type is NULL" : "*type is MPI_DATATYPE_NULL");
  return adsmMpiError_(adsmErrorInvalidValue, text);
}

static inline void adsmMpiKnow_(MPI_Datatype type, int known) {
  typedef int (*Know)(MPI_Datatype, int);
  Know know = NULL;
  void* const found = adsmMpiFunction_("MPIX_Gmac_type_known");
  memcpy(&know, &found, sizeof know);
  if (know != NULL) {
    (void)know(type, known);
  }
}

/* Commits a datatype in all processes of a communicator, which call this together and have all made
 * the same type. So each knows the layout of the others' messages of it, of any count, from the
 * first one on, whatever type it receives them as (FALCON-X, section 6.2: the new type has the same
 * name in all processes). As MPI_Type_commit, with one MPI_Allreduce of 32 bytes; processes without
 * libgmac_mpi.so take part, and learn nothing. Of types that only MPI can pack nothing is told.
 *
 * adsmErrorInvalidValue, in all processes: their types have different layouts; in one: `type` is
 * NULL or MPI_DATATYPE_NULL, and it has called nothing of MPI's. adsmErrorSystem: MPI has failed.
 * After an error of the first and the last kind the type is committed, and may be freed by
 * MPI_Type_free. Thread-safe as MPI's collective calls are. */
static inline adsmError_t adsmTypeCommitOn(MPI_Comm comm, MPI_Datatype* type) {
  const char* const function = "adsmTypeCommitOn";
  int known = 0;
  adsmError_t error = adsmMpiCheckType_(function, type);
  if (error == adsmSuccess) {
    error = adsmMpiCheckIn_(function, MPI_Type_commit(type), "MPI_Type_commit");
  }
  if (error == adsmSuccess) {
    error = adsmMpiAgree_(function, comm, *type, &known);
  }
  if (error == adsmSuccess && known) {
    adsmMpiKnow_(*type, 1);
  }
  return error;
}

/* Frees such a datatype in all processes of the communicator, which call this together: nothing of
 * it is kept. (MPI_Type_free is allowed as well; the layout is kept then until others come.) Errors
 * as above; after one of them the type is not freed. */
static inline adsmError_t adsmTypeFreeOn(MPI_Comm comm, MPI_Datatype* type) {
  const char* const function = "adsmTypeFreeOn";
  int known = 0;
  adsmError_t error = adsmMpiCheckType_(function, type);
  if (error == adsmSuccess) {
    error = adsmMpiAgree_(function, comm, *type, &known);
  }
  if (error == adsmSuccess) {
    if (known) {
      adsmMpiKnow_(*type, 0);
    }
    error = adsmMpiCheckIn_(function, MPI_Type_free(type), "MPI_Type_free");
  }
  return error;
}

/* NOLINTEND(modernize-use-nullptr,readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* GMAC_ADSM_MPI_H_ */
