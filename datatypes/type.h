// SPDX-License-Identifier: Apache-2.0
//
// Datatypes as values, over the C functions that this program measures.
#ifndef GMAC_DATATYPES_TYPE_H_
#define GMAC_DATATYPES_TYPE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmac/api/adsm_datatype.h"

namespace datatypes {

// Throws Failure with the runtime's last error when `error` is one.
void require(adsmError_t error, const char* what);

// The owner of one type, or a primitive, which needs none. Move-only; not thread-safe.
// Constructors throw Failure. None is committed until commit().
class Type {
 public:
  static Type bytes1() { return Type(ADSM_TYPE_1); }
  static Type bytes4() { return Type(ADSM_TYPE_4); }
  static Type bytes8() { return Type(ADSM_TYPE_8); }
  static Type contiguous(std::int64_t count, const Type& old);
  static Type hvector(std::int64_t count, std::int64_t blockLength, std::int64_t strideBytes,
                      const Type& old);
  static Type indexed(const std::vector<std::int64_t>& blockLengths,
                      const std::vector<std::int64_t>& displacements, const Type& old);
  static Type indexedBlock(std::int64_t blockLength, const std::vector<std::int64_t>& displacements,
                           const Type& old);
  static Type structure(const std::vector<std::int64_t>& blockLengths,
                        const std::vector<std::int64_t>& displacementBytes,
                        const std::vector<const Type*>& types);
  static Type subarray(const std::vector<std::int64_t>& sizes,
                       const std::vector<std::int64_t>& subsizes,
                       const std::vector<std::int64_t>& starts, const Type& old);
  static Type resized(const Type& old, std::int64_t lowerBound, std::int64_t extent);

  Type(Type&& other) noexcept : type_(std::exchange(other.type_, nullptr)) {}
  Type& operator=(Type&& other) noexcept {
    std::swap(type_, other.type_);
    return *this;
  }
  Type(const Type&) = delete;
  Type& operator=(const Type&) = delete;
  ~Type();

  void commit() const;
  adsmType_t get() const { return type_; }
  std::int64_t size() const;
  // The layout that commit found, as text.
  std::string describe() const;

 private:
  explicit Type(adsmType_t type) : type_(type) {}

  adsmType_t type_;
};

}  // namespace datatypes

#endif  // GMAC_DATATYPES_TYPE_H_
