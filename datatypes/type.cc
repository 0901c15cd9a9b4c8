// SPDX-License-Identifier: Apache-2.0
#include "datatypes/type.h"

#include <fmt/core.h>

#include "datatypes/failure.h"

namespace datatypes {
namespace {

bool isPrimitive(adsmType_t type) {
  for (adsmType_t primitive : {ADSM_TYPE_1, ADSM_TYPE_2, ADSM_TYPE_4, ADSM_TYPE_8, ADSM_TYPE_16}) {
    if (type == primitive) return true;
  }
  return false;
}

std::int64_t countOf(const std::vector<std::int64_t>& list) {
  return static_cast<std::int64_t>(list.size());
}

}  // namespace

void require(adsmError_t error, const char* what) {
  if (error != adsmSuccess) {
    throw Failure(fmt::format("{}: {}: {}", what, adsmErrorName(error), adsmLastErrorString()));
  }
}

Type Type::contiguous(std::int64_t count, const Type& old) {
  adsmType_t type = nullptr;
  require(adsmTypeContiguous(count, old.type_, &type), "adsmTypeContiguous");
  return Type(type);
}

Type Type::hvector(std::int64_t count, std::int64_t blockLength, std::int64_t strideBytes,
                   const Type& old) {
  adsmType_t type = nullptr;
  require(adsmTypeHvector(count, blockLength, strideBytes, old.type_, &type), "adsmTypeHvector");
  return Type(type);
}

Type Type::indexed(const std::vector<std::int64_t>& blockLengths,
                   const std::vector<std::int64_t>& displacements, const Type& old) {
  adsmType_t type = nullptr;
  require(adsmTypeIndexed(countOf(blockLengths), blockLengths.data(), displacements.data(),
                          old.type_, &type),
          "adsmTypeIndexed");
  return Type(type);
}

Type Type::indexedBlock(std::int64_t blockLength, const std::vector<std::int64_t>& displacements,
                        const Type& old) {
  adsmType_t type = nullptr;
  require(adsmTypeIndexedBlock(countOf(displacements), blockLength, displacements.data(), old.type_,
                               &type),
          "adsmTypeIndexedBlock");
  return Type(type);
}

Type Type::structure(const std::vector<std::int64_t>& blockLengths,
                     const std::vector<std::int64_t>& displacementBytes,
                     const std::vector<const Type*>& types) {
  std::vector<adsmType_t> olds;
  for (const Type* old : types) olds.push_back(old->type_);
  adsmType_t type = nullptr;
  require(adsmTypeStruct(countOf(blockLengths), blockLengths.data(), displacementBytes.data(),
                         olds.data(), &type),
          "adsmTypeStruct");
  return Type(type);
}

Type Type::subarray(const std::vector<std::int64_t>& sizes,
                    const std::vector<std::int64_t>& subsizes,
                    const std::vector<std::int64_t>& starts, const Type& old) {
  adsmType_t type = nullptr;
  require(adsmTypeSubarray(static_cast<int>(sizes.size()), sizes.data(), subsizes.data(),
                           starts.data(), adsmOrderC, old.type_, &type),
          "adsmTypeSubarray");
  return Type(type);
}

Type Type::resized(const Type& old, std::int64_t lowerBound, std::int64_t extent) {
  adsmType_t type = nullptr;
  require(adsmTypeResized(old.type_, lowerBound, extent, &type), "adsmTypeResized");
  return Type(type);
}

Type::~Type() {
  if (type_ != nullptr && !isPrimitive(type_)) (void)adsmTypeFree(type_);
}

void Type::commit() const { require(adsmTypeCommit(type_), "adsmTypeCommit"); }

std::int64_t Type::size() const {
  std::int64_t size = 0;
  require(adsmTypeSize(type_, &size), "adsmTypeSize");
  return size;
}

std::string Type::describe() const {
  const char* text = nullptr;
  require(adsmTypeDescribe(type_, &text), "adsmTypeDescribe");
  return text;
}

}  // namespace datatypes
