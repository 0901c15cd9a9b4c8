// SPDX-License-Identifier: Apache-2.0
//
// The functions of adsm_datatype.h that make and ask types: they check arguments, bring the
// constructors to the few forms that Type has, and name what is wrong.
#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmac/api/adsm_datatype.h"
#include "gmac/base/api_call.h"
#include "gmac/datatype/layout/pieces.h"
#include "gmac/datatype/types/registry.h"
#include "gmac/datatype/types/type.h"

namespace {

using gmac::fail;
using gmac::Status;
using gmac::api::guarded;
using gmac::datatype::Dim;
using gmac::datatype::MemberArrays;
using gmac::datatype::Type;
using gmac::datatype::TypePtr;

Status notNull(const char* function, const char* argument, const void* value) {
  return value != nullptr ? Status()
                          : fail(adsmErrorInvalidValue, "{}: {} is NULL", function, argument);
}

// Arrays of no entries may be NULL. (What a negative count is, is said elsewhere.)
Status notNull(const char* function, const char* argument, const void* value, int64_t count) {
  return value != nullptr || count <= 0 ? Status()
                                        : fail(adsmErrorInvalidValue, "{}: {} is NULL, count is {}",
                                               function, argument, count);
}

Status notNegative(const char* function, const char* argument, int64_t value) {
  return value >= 0 ? Status()
                    : fail(adsmErrorInvalidValue, "{}: {} is {}; 0 or more is allowed", function,
                           argument, value);
}

// Of arrays: no more entries than the address space has room for.
Status checkCount(const char* function, int64_t count) {
  constexpr int64_t kMax = (int64_t{1} << 47) / static_cast<int64_t>(sizeof(int64_t));
  GMAC_TRY(notNegative(function, "count", count));
  return count <= kMax ? Status()
                       : fail(adsmErrorInvalidValue, "{}: count is {}; 0 to {} are allowed",
                              function, count, kMax);
}

Status noneNegative(const char* function, const char* argument, const int64_t* values,
                    int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < 0) {
      return fail(adsmErrorInvalidValue, "{}: {}[{}] is {}; 0 or more is allowed", function,
                  argument, i, values[i]);
    }
  }
  return {};
}

constexpr const char* kTooLarge = "the type's bytes or bounds do not fit into 63 bits";

adsmError_t makeVector(const char* function, int64_t count, int64_t blockLength, int64_t stride,
                       bool inElements, adsmType_t old, adsmType_t* type) {
  return guarded(function, [&]() -> Status {
    GMAC_TRY(notNull(function, "type", type));
    GMAC_TRY(notNegative(function, "count", count));
    GMAC_TRY(notNegative(function, "blockLength", blockLength));
    auto found = gmac::datatype::findType(old, function, "old");
    if (!found.ok()) {
      return found.status();
    }
    const int64_t extent = (*found)->extent();
    const char* const name = inElements ? "stride" : "strideBytes";
    int64_t bytes = stride;
    // The stride of one block is never used.
    const bool wrong = inElements && count > 1 && __builtin_mul_overflow(stride, extent, &bytes);
    TypePtr made = wrong ? nullptr
                         : Type::strided({{count, count > 1 ? bytes : 0}, {blockLength, extent}}, 0,
                                         std::move(*found));
    if (made == nullptr) {
      return fail(adsmErrorInvalidValue,
                  "{}: {}: count is {}, blockLength is {}, {} is {}, old's extent is {}", function,
                  kTooLarge, count, blockLength, name, stride, extent);
    }
    *type = gmac::datatype::addType(std::move(made), false);
    return {};
  });
}

// `inElements`: displacements count elements of the old type, else bytes.
adsmError_t makeList(const char* function, int64_t count, const int64_t* blockLengths,
                     int64_t blockLength, const int64_t* displacements,
                     const char* displacementsName, bool inElements, adsmType_t old,
                     adsmType_t* type) {
  return guarded(function, [&]() -> Status {
    GMAC_TRY(notNull(function, "type", type));
    GMAC_TRY(checkCount(function, count));
    GMAC_TRY(notNull(function, displacementsName, displacements, count));
    if (blockLengths != nullptr) {
      GMAC_TRY(noneNegative(function, "blockLengths", blockLengths, count));
    } else {
      GMAC_TRY(notNegative(function, "blockLength", blockLength));
    }
    auto found = gmac::datatype::findType(old, function, "old");
    if (!found.ok()) {
      return found.status();
    }
    const int64_t extent = (*found)->extent();
    const MemberArrays members{static_cast<std::size_t>(count), blockLengths, blockLength,
                               displacements, inElements ? extent : 1};
    std::size_t offending = 0;
    TypePtr made = Type::listed(members, std::move(*found), &offending);
    if (made == nullptr) {
      return fail(adsmErrorInvalidValue,
                  "{}: {}: entry {} has length {}, {} {}, old's extent is {}", function, kTooLarge,
                  offending, members.countOf(offending), displacementsName,
                  displacements[offending], extent);
    }
    *type = gmac::datatype::addType(std::move(made), false);
    return {};
  });
}

Status makeStruct(const char* function, int64_t count, const int64_t* blockLengths,
                  const int64_t* displacements, const adsmType_t* types, adsmType_t* type) {
  GMAC_TRY(notNull(function, "type", type));
  GMAC_TRY(checkCount(function, count));
  GMAC_TRY(notNull(function, "blockLengths", blockLengths, count));
  GMAC_TRY(notNull(function, "displacementBytes", displacements, count));
  GMAC_TRY(notNull(function, "types", types, count));
  GMAC_TRY(noneNegative(function, "blockLengths", blockLengths, count));
  const MemberArrays members{static_cast<std::size_t>(count), blockLengths, 0, displacements, 1};
  std::vector<TypePtr> olds(members.size);
  bool one = count > 0;
  for (std::size_t i = 0; i < members.size; ++i) {
    if (i > 0 && types[i] == types[i - 1]) {
      olds[i] = olds[i - 1];
      continue;
    }
    auto found = gmac::datatype::findType(types[i], function, "types[i]");
    if (!found.ok()) {
      return fail(adsmErrorInvalidValue, "{}: types[{}] is {}, which is no type, or is freed",
                  function, i, static_cast<const void*>(types[i]));
    }
    olds[i] = std::move(*found);
    one = one && i == 0;
  }
  std::size_t offending = 0;
  TypePtr made = one ? Type::listed(members, std::move(olds[0]), &offending)
                     : Type::listed(members, std::move(olds), &offending);
  if (made == nullptr) {
    return fail(adsmErrorInvalidValue, "{}: {}: entry {} has blockLengths {}, displacementBytes {}",
                function, kTooLarge, offending, blockLengths[offending], displacements[offending]);
  }
  *type = gmac::datatype::addType(std::move(made), false);
  return {};
}

Status makeSubarray(const char* function, int dimensions, const int64_t* sizes,
                    const int64_t* subsizes, const int64_t* starts, adsmOrder_t order,
                    adsmType_t old, adsmType_t* type) {
  GMAC_TRY(notNull(function, "type", type));
  // More than any array has that is larger than one element in each; longer lists are not looked
  // for.
  constexpr int kMaxDimensions = 1024;
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    return fail(adsmErrorInvalidValue, "{}: dimensions is {}; 1 to {} are allowed", function,
                dimensions, kMaxDimensions);
  }
  GMAC_TRY(notNull(function, "sizes", sizes));
  GMAC_TRY(notNull(function, "subsizes", subsizes));
  GMAC_TRY(notNull(function, "starts", starts));
  if (order != adsmOrderC && order != adsmOrderFortran) {
    return fail(adsmErrorInvalidValue, "{}: order is {}; adsmOrderC and adsmOrderFortran are",
                function, static_cast<int>(order));
  }
  GMAC_TRY(noneNegative(function, "sizes", sizes, dimensions));
  GMAC_TRY(noneNegative(function, "subsizes", subsizes, dimensions));
  GMAC_TRY(noneNegative(function, "starts", starts, dimensions));
  for (int i = 0; i < dimensions; ++i) {
    if (subsizes[i] > sizes[i] || starts[i] > sizes[i] - subsizes[i]) {
      return fail(adsmErrorInvalidValue,
                  "{}: starts[{}] is {} and subsizes[{}] is {}: outside the array, whose sizes[{}] "
                  "is {}",
                  function, i, starts[i], i, subsizes[i], i, sizes[i]);
    }
  }
  auto found = gmac::datatype::findType(old, function, "old");
  if (!found.ok()) {
    return found.status();
  }
  const int64_t extent = (*found)->extent();
  std::vector<Dim> dims(static_cast<std::size_t>(dimensions));
  int64_t pitch = extent;
  int64_t offset = 0;
  bool wrong = false;
  // From the dimension that varies fastest to the slowest; dims has the slowest first.
  for (int i = 0; i < dimensions && !wrong; ++i) {
    const int dimension = order == adsmOrderC ? dimensions - 1 - i : i;
    int64_t start = 0;
    wrong = __builtin_mul_overflow(starts[dimension], pitch, &start) ||
            __builtin_add_overflow(offset, start, &offset);
    dims[static_cast<std::size_t>(dimensions - 1 - i)] = {subsizes[dimension], pitch};
    wrong = wrong || __builtin_mul_overflow(pitch, sizes[dimension], &pitch);
  }
  TypePtr made = wrong ? nullptr : Type::strided(std::move(dims), offset, std::move(*found));
  made = made == nullptr ? nullptr : Type::resized(std::move(made), 0, pitch);
  if (made == nullptr) {
    std::string array;
    for (int i = 0; i < dimensions; ++i) {
      array += fmt::format("{}{}", i == 0 ? "" : ", ", sizes[i]);
    }
    return fail(adsmErrorInvalidValue, "{}: {}: sizes is {{{}}}, old's extent is {}", function,
                kTooLarge, array, extent);
  }
  *type = gmac::datatype::addType(std::move(made), false);
  return {};
}

// Runs `ask(type)` on the type of a handle.
template <typename Ask>
adsmError_t query(const char* function, adsmType_t handle, const Ask& ask) {
  return guarded(function, [&]() -> Status {
    auto type = gmac::datatype::findType(handle, function);
    return type.ok() ? ask(**type) : type.status();
  });
}

}  // namespace

extern "C" {

// Declared in adsm_mpi.h, which is for sources that have an mpi.h.
// NOLINTBEGIN(readability-identifier-naming): the header's own
ADSM_API adsmError_t adsmMpiError_(adsmError_t error, const char* text);
ADSM_API void* adsmMpiFunction_(const char* name);
// NOLINTEND(readability-identifier-naming)

void* adsmMpiFunction_(const char* name) { return ::dlsym(RTLD_DEFAULT, name); }

adsmError_t adsmMpiError_(adsmError_t error, const char* text) {
  return fail(error, "{}", text).code();
}

adsmError_t adsmTypeContiguous(int64_t count, adsmType_t old, adsmType_t* type) {
  const char* const function = "adsmTypeContiguous";
  return guarded(function, [&]() -> Status {
    GMAC_TRY(notNull(function, "type", type));
    GMAC_TRY(notNegative(function, "count", count));
    auto found = gmac::datatype::findType(old, function, "old");
    if (!found.ok()) {
      return found.status();
    }
    const int64_t extent = (*found)->extent();
    TypePtr made = Type::strided({{count, extent}}, 0, std::move(*found));
    if (made == nullptr) {
      return fail(adsmErrorInvalidValue, "{}: {}: count is {}, old's extent is {}", function,
                  kTooLarge, count, extent);
    }
    *type = gmac::datatype::addType(std::move(made), false);
    return {};
  });
}

adsmError_t adsmTypeVector(int64_t count, int64_t blockLength, int64_t stride, adsmType_t old,
                           adsmType_t* type) {
  return makeVector("adsmTypeVector", count, blockLength, stride, true, old, type);
}

adsmError_t adsmTypeHvector(int64_t count, int64_t blockLength, int64_t strideBytes, adsmType_t old,
                            adsmType_t* type) {
  return makeVector("adsmTypeHvector", count, blockLength, strideBytes, false, old, type);
}

adsmError_t adsmTypeIndexed(int64_t count, const int64_t* blockLengths,
                            const int64_t* displacements, adsmType_t old, adsmType_t* type) {
  const char* const function = "adsmTypeIndexed";
  if (const Status status = notNull(function, "blockLengths", blockLengths, count); !status.ok()) {
    return status.code();
  }
  return makeList(function, count, blockLengths, 0, displacements, "displacements", true, old,
                  type);
}

adsmError_t adsmTypeHindexed(int64_t count, const int64_t* blockLengths,
                             const int64_t* displacementBytes, adsmType_t old, adsmType_t* type) {
  const char* const function = "adsmTypeHindexed";
  if (const Status status = notNull(function, "blockLengths", blockLengths, count); !status.ok()) {
    return status.code();
  }
  return makeList(function, count, blockLengths, 0, displacementBytes, "displacementBytes", false,
                  old, type);
}

adsmError_t adsmTypeIndexedBlock(int64_t count, int64_t blockLength, const int64_t* displacements,
                                 adsmType_t old, adsmType_t* type) {
  return makeList("adsmTypeIndexedBlock", count, nullptr, blockLength, displacements,
                  "displacements", true, old, type);
}

adsmError_t adsmTypeHindexedBlock(int64_t count, int64_t blockLength,
                                  const int64_t* displacementBytes, adsmType_t old,
                                  adsmType_t* type) {
  return makeList("adsmTypeHindexedBlock", count, nullptr, blockLength, displacementBytes,
                  "displacementBytes", false, old, type);
}

adsmError_t adsmTypeStruct(int64_t count, const int64_t* blockLengths,
                           const int64_t* displacementBytes, const adsmType_t* types,
                           adsmType_t* type) {
  return guarded("adsmTypeStruct", [&] {
    return makeStruct("adsmTypeStruct", count, blockLengths, displacementBytes, types, type);
  });
}

adsmError_t adsmTypeSubarray(int dimensions, const int64_t* sizes, const int64_t* subsizes,
                             const int64_t* starts, adsmOrder_t order, adsmType_t old,
                             adsmType_t* type) {
  return guarded("adsmTypeSubarray", [&] {
    return makeSubarray("adsmTypeSubarray", dimensions, sizes, subsizes, starts, order, old, type);
  });
}

adsmError_t adsmTypeResized(adsmType_t old, int64_t lowerBound, int64_t extent, adsmType_t* type) {
  const char* const function = "adsmTypeResized";
  return guarded(function, [&]() -> Status {
    GMAC_TRY(notNull(function, "type", type));
    auto found = gmac::datatype::findType(old, function, "old");
    if (!found.ok()) {
      return found.status();
    }
    TypePtr made = Type::resized(std::move(*found), lowerBound, extent);
    if (made == nullptr) {
      return fail(adsmErrorInvalidValue, "{}: {}: lowerBound is {}, extent is {}", function,
                  kTooLarge, lowerBound, extent);
    }
    *type = gmac::datatype::addType(std::move(made), false);
    return {};
  });
}

adsmError_t adsmTypeDuplicate(adsmType_t old, adsmType_t* type) {
  const char* const function = "adsmTypeDuplicate";
  return guarded(function, [&]() -> Status {
    GMAC_TRY(notNull(function, "type", type));
    auto found = gmac::datatype::findType(old, function, "old");
    if (!found.ok()) {
      return found.status();
    }
    *type = gmac::datatype::addType(std::move(*found), gmac::datatype::isCommitted(old));
    return {};
  });
}

adsmError_t adsmTypeCommit(adsmType_t type) {
  return guarded("adsmTypeCommit",
                 [&] { return gmac::datatype::commitType(type, "adsmTypeCommit"); });
}

adsmError_t adsmTypeFree(adsmType_t type) {
  return guarded("adsmTypeFree", [&] { return gmac::datatype::freeType(type, "adsmTypeFree"); });
}

adsmError_t adsmTypeSize(adsmType_t type, int64_t* size) {
  return query("adsmTypeSize", type, [&](const Type& asked) -> Status {
    GMAC_TRY(notNull("adsmTypeSize", "size", size));
    *size = asked.size();
    return {};
  });
}

adsmError_t adsmTypeExtent(adsmType_t type, int64_t* lowerBound, int64_t* extent) {
  return query("adsmTypeExtent", type, [&](const Type& asked) -> Status {
    GMAC_TRY(notNull("adsmTypeExtent", "lowerBound", lowerBound));
    GMAC_TRY(notNull("adsmTypeExtent", "extent", extent));
    *lowerBound = asked.lowerBound();
    *extent = asked.extent();
    return {};
  });
}

adsmError_t adsmTypeTrueExtent(adsmType_t type, int64_t* lowerBound, int64_t* extent) {
  return query("adsmTypeTrueExtent", type, [&](const Type& asked) -> Status {
    GMAC_TRY(notNull("adsmTypeTrueExtent", "lowerBound", lowerBound));
    GMAC_TRY(notNull("adsmTypeTrueExtent", "extent", extent));
    *lowerBound = asked.trueLowerBound();
    *extent = asked.trueExtent();
    return {};
  });
}

adsmError_t adsmTypeSignature(adsmType_t type, uint64_t* signature) {
  return query("adsmTypeSignature", type, [&](const Type& asked) -> Status {
    GMAC_TRY(notNull("adsmTypeSignature", "signature", signature));
    *signature = asked.signature();
    return {};
  });
}

adsmError_t adsmTypeBlockCount(adsmType_t type, int64_t* count) {
  const char* const function = "adsmTypeBlockCount";
  return guarded(function, [&]() -> Status {
    auto form = gmac::datatype::committed(type, function);
    if (!form.ok()) {
      return form.status();
    }
    GMAC_TRY(notNull(function, "count", count));
    *count = gmac::datatype::pieceCount((*form)->layout);
    return {};
  });
}

adsmError_t adsmTypeBlocks(adsmType_t type, int64_t first, int64_t room, adsmBlock_t* blocks,
                           int64_t* written) {
  const char* const function = "adsmTypeBlocks";
  return guarded(function, [&]() -> Status {
    auto form = gmac::datatype::committed(type, function);
    if (!form.ok()) {
      return form.status();
    }
    GMAC_TRY(notNegative(function, "first", first));
    GMAC_TRY(notNegative(function, "room", room));
    GMAC_TRY(notNull(function, "written", written));
    if (room > 0) {
      GMAC_TRY(notNull(function, "blocks", blocks));
    }
    *written = gmac::datatype::readPieces((*form)->layout, first, room, blocks);
    return {};
  });
}

adsmError_t adsmTypeDescribe(adsmType_t type, const char** text) {
  const char* const function = "adsmTypeDescribe";
  return guarded(function, [&]() -> Status {
    GMAC_TRY(notNull(function, "text", text));
    auto described = gmac::datatype::describeType(type, function);
    if (!described.ok()) {
      return described.status();
    }
    *text = *described;
    return {};
  });
}

}  // extern "C"
