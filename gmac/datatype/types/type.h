// SPDX-License-Identifier: Apache-2.0
//
// Types as they were constructed, with MPI's bounds.
#ifndef GMAC_DATATYPE_TYPES_TYPE_H_
#define GMAC_DATATYPE_TYPES_TYPE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "gmac/base/status.h"
#include "gmac/datatype/layout/layout.h"
#include "gmac/datatype/types/signature.h"

namespace gmac::datatype {

class Type;
using TypePtr = std::shared_ptr<const Type>;

// The form of a committed type that engines use.
struct Committed {
  Layout layout;            // of one element
  std::int64_t lowerBound;  // bytes
  std::int64_t extent;
  std::int64_t size;
};
using CommittedPtr = std::shared_ptr<const Committed>;

// Bounds in bytes with MPI's meaning. Explicit bounds (resized, subarray) carry over to types built
// on the type: if one part has explicit bounds, parts without them do not count for the whole's. A
// type without bytes and without explicit bounds has none; they count as 0.
struct TypeBounds {
  Bounds all;
  Bounds data;  // the "true" ones
  bool said = false;
};

// `count` elements of an old type, at a displacement in bytes.
struct Member {
  std::int64_t count;
  std::int64_t displacement;
};

// Members as constructors are given them: number i is counts[i] elements (counts == nullptr:
// `each`) at displacements[i] x `unit` bytes. A view; counts are 0 or more.
struct MemberArrays {
  std::size_t size;
  const std::int64_t* counts;
  std::int64_t each;
  const std::int64_t* displacements;
  std::int64_t unit;

  std::int64_t countOf(std::size_t i) const { return counts != nullptr ? counts[i] : each; }
  // Of a member that has elements; false when the displacement leaves 63 bits.
  bool displacementOf(std::size_t i, std::int64_t* bytes) const {
    return !__builtin_mul_overflow(displacements[i], unit, bytes);
  }
};

// One node of a type. Immutable but for the committed form, which is made once on demand and
// kept; thread-safe. Owned by handles and by the types built on it. Not for the fault handler (it
// allocates).
//
// The makers return nullptr where bytes or bounds do not fit into 63 bits; counts are 0 or more.
class Type : public std::enable_shared_from_this<Type> {
 public:
  // 1, 2, 4, 8 or 16 bytes; one node each for the whole process.
  static const TypePtr& primitive(int bytes);
  // An old type for every index of `dims` (the last varies fastest), `offset` bytes from 0.
  static TypePtr strided(std::vector<Dim> dims, std::int64_t offset, TypePtr old);
  // One old type for all members. `offending`: where that does not fit, the member's number.
  static TypePtr listed(const MemberArrays& members, TypePtr old, std::size_t* offending);
  // One old type for each member.
  static TypePtr listed(const MemberArrays& members, std::vector<TypePtr> olds,
                        std::size_t* offending);
  static TypePtr resized(TypePtr old, std::int64_t lowerBound, std::int64_t extent);

  ~Type();
  Type(const Type&) = delete;
  Type& operator=(const Type&) = delete;

  std::int64_t size() const { return size_; }
  std::int64_t lowerBound() const { return bounds_.all.first; }
  std::int64_t extent() const { return bounds_.all.last - bounds_.all.first; }
  std::int64_t trueLowerBound() const { return bounds_.data.first; }
  std::int64_t trueExtent() const { return bounds_.data.last - bounds_.data.first; }
  std::uint64_t signature() const { return signature_.value(); }

  // The canonical form, made at the first call. adsmErrorHostMemory when a list of it would have
  // more than kMaxBlocks blocks; `function` is named then.
  Result<CommittedPtr> commit(const char* function) const;

  // A list has this many blocks at most: 8 GiB.
  static constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 28;

 private:
  struct Strided {
    std::vector<Dim> dims;
    std::int64_t offset;
  };
  // Every member has bytes.
  struct Listed {
    std::vector<Member> members;
  };
  // Members that are known to be one contiguous piece each; the old types are not needed any more.
  struct Blocks {
    BlockListPtr list;
  };
  struct Same {};  // the old type's layout: a primitive's or a resized type's
  using Form = std::variant<Same, Strided, Listed, Blocks>;
  class ListBounds;

  Type(Form form, std::vector<TypePtr> olds, std::int64_t size, const TypeBounds& bounds,
       const Signature& signature);
  static TypePtr make(Form form, std::vector<TypePtr> olds, std::int64_t size,
                      const TypeBounds& bounds, const Signature& signature);

  const Type& oldOf(std::size_t member) const {
    return olds_.size() == 1 ? *olds_[0] : *olds_[member];
  }
  // One element, if it is known to be one contiguous piece; else without bytes.
  Block block() const;
  // The committed form, or nullptr. Valid as long as the type.
  const Committed* committedForm() const { return made_.load(std::memory_order_acquire); }
  // The layout of this node; those of the old types exist.
  Result<Layout> layout(const char* function) const;
  Result<Layout> listLayout(const Listed& list, const char* function) const;

  const Form form_;
  // One, or one for each member of a list; none of a primitive or of blocks.
  std::vector<TypePtr> olds_;
  const std::int64_t size_;
  const TypeBounds bounds_;
  const Signature signature_;

  mutable std::mutex lock_;
  mutable CommittedPtr committed_;                       // by lock_, until it is made
  mutable std::atomic<const Committed*> made_{nullptr};  // the same
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_TYPES_TYPE_H_
