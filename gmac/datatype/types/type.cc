// SPDX-License-Identifier: Apache-2.0
//
// The types that constructors make of old types.
#include "gmac/datatype/types/type.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace gmac::datatype {
namespace {

using std::int64_t;
using Wide = __int128;

struct WideBounds {
  Wide first;
  Wide last;
};

bool fits(Wide value) { return static_cast<int64_t>(value) == value; }
bool fits(const WideBounds& bounds) {
  return fits(bounds.first) && fits(bounds.last) && fits(bounds.last - bounds.first);
}

Bounds narrow(const WideBounds& bounds) {
  return {static_cast<int64_t>(bounds.first), static_cast<int64_t>(bounds.last)};
}

// `count` > 0 times, `stride` apart.
WideBounds repeated(WideBounds one, int64_t count, int64_t stride) {
  const Wide reach = static_cast<Wide>(count - 1) * stride;
  return {one.first + std::min<Wide>(reach, 0), one.last + std::max<Wide>(reach, 0)};
}

WideBounds wide(Bounds bounds) { return {bounds.first, bounds.last}; }

WideBounds shifted(WideBounds bounds, int64_t by) { return {bounds.first + by, bounds.last + by}; }

// Bounds of several parts, each counted if it has any.
class Union {
 public:
  void add(const WideBounds& bounds) {
    if (!any_) {
      bounds_ = bounds;
    }
    bounds_.first = std::min(bounds_.first, bounds.first);
    bounds_.last = std::max(bounds_.last, bounds.last);
    any_ = true;
  }
  bool any() const { return any_; }
  Bounds bounds() const { return any_ ? narrow(bounds_) : Bounds{}; }
  bool fits() const { return !any_ || datatype::fits(bounds_); }

 private:
  WideBounds bounds_{0, 0};
  bool any_ = false;
};

}  // namespace

Type::Type(Form form, std::vector<TypePtr> olds, int64_t size, const TypeBounds& bounds,
           const Signature& signature)
    : form_(std::move(form)),
      olds_(std::move(olds)),
      size_(size),
      bounds_(bounds),
      signature_(signature) {}

TypePtr Type::make(Form form, std::vector<TypePtr> olds, int64_t size, const TypeBounds& bounds,
                   const Signature& signature) {
  return TypePtr(new Type(std::move(form), std::move(olds), size, bounds, signature));
}

// Long chains of types without other owners are freed one by one: each destructor calling the
// next would need a stack as deep.
Type::~Type() {
  std::vector<TypePtr> doomed = std::move(olds_);
  while (!doomed.empty()) {
    const TypePtr last = std::move(doomed.back());
    doomed.pop_back();
    if (last.use_count() == 1) {
      // Nobody but this thread can reach it any more, so that it may be changed.
      auto& olds = const_cast<Type&>(*last).olds_;
      std::move(olds.begin(), olds.end(), std::back_inserter(doomed));
      olds.clear();
    }
  }
}

const TypePtr& Type::primitive(int bytes) {
  static const auto& kAll = *[] {
    auto* all = new std::array<TypePtr, 5>;
    for (std::size_t i = 0; i < all->size(); ++i) {
      const int size = 1 << i;
      (*all)[i] = make(Same{}, {}, size, {{0, size}, {0, size}, false}, Signature(size));
    }
    return all;
  }();
  std::size_t i = 0;
  while (bytes > 1) {
    bytes >>= 1;
    ++i;
  }
  return kAll[i];
}

TypePtr Type::strided(std::vector<Dim> dims, int64_t offset, TypePtr old) {
  int64_t count = 1;
  WideBounds all = shifted(wide(old->bounds_.all), offset);
  WideBounds data = shifted(wide(old->bounds_.data), offset);
  const bool none =
      std::any_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim.count == 0; });
  if (none || (old->size_ == 0 && !old->bounds_.said)) {
    return make(Strided{std::move(dims), 0}, {std::move(old)}, 0, {}, {});
  }
  for (const Dim& dim : dims) {
    if (__builtin_mul_overflow(count, dim.count, &count) && old->size_ > 0) {
      return nullptr;
    }
    all = repeated(all, dim.count, dim.stride);
    data = repeated(data, dim.count, dim.stride);
    if (!fits(all) || !fits(data)) {
      return nullptr;
    }
  }
  int64_t size = 0;
  if (__builtin_mul_overflow(count, old->size_, &size)) {
    return nullptr;
  }
  TypeBounds bounds;
  if (old->size_ > 0) {
    bounds.data = narrow(data);
  }
  bounds.all = narrow(all);
  bounds.said = old->bounds_.said;
  const Signature signature = old->size_ > 0 ? old->signature_.repeated(count) : Signature();
  return make(Strided{std::move(dims), offset}, {std::move(old)}, size, bounds, signature);
}

Block Type::block() const {
  if (std::holds_alternative<Same>(form_) && olds_.empty()) {
    return {0, size_};
  }
  const Committed* const form = committedForm();
  const bool one =
      form != nullptr && form->layout.dims().empty() && form->layout.blocks().size() == 1;
  return one ? form->layout.blocks()[0] : Block{0, 0};
}

// The bounds of a list's members, of those that have any. For the stack.
class Type::ListBounds {
 public:
  // The next member, which has elements; false when the bounds do not fit any more.
  bool add(const Member& member, const Type& old) {
    if (&old != old_) {
      flush();
      old_ = &old;
      extent_ = old.extent();
      const Bounds& all = old.bounds_.all;
      const Bounds& data = old.bounds_.data;
      oldIsNear_ = isNear(all.first) && isNear(all.last) && isNear(data.first) && isNear(data.last);
    }
    const Wide reach = static_cast<Wide>(member.count - 1) * extent_;
    const Wide low = member.displacement + std::min<Wide>(reach, 0);
    const Wide high = member.displacement + std::max<Wide>(reach, 0);
    low_ = any_ ? std::min(low_, low) : low;
    high_ = any_ ? std::max(high_, high) : high;
    any_ = true;
    // A sum of two that are small enough cannot overflow.
    far_ = far_ || !oldIsNear_ || !isNear(low) || !isNear(high);
    if (far_) [[unlikely]] {
      flush();
      return data_.fits() && said_.fits() && unsaid_.fits();
    }
    return true;
  }

  TypeBounds bounds() {
    flush();
    TypeBounds bounds;
    bounds.data = data_.bounds();
    bounds.said = said_.any();
    bounds.all = said_.any() ? said_.bounds() : unsaid_.bounds();
    return bounds;
  }

 private:
  static bool isNear(Wide value) {
    constexpr int64_t kNear = int64_t{1} << 60;
    return value > -kNear && value < kNear;
  }

  // Counts the members of the old type that was last.
  void flush() {
    if (!any_) {
      return;
    }
    any_ = false;
    const auto swept = [&](const Bounds& one) {
      return WideBounds{low_ + one.first, high_ + one.last};
    };
    if (old_->size_ > 0) {
      data_.add(swept(old_->bounds_.data));
    }
    if (old_->bounds_.said) {
      said_.add(swept(old_->bounds_.all));
    } else if (old_->size_ > 0) {
      unsaid_.add(swept(old_->bounds_.all));
    }
  }

  Union data_;
  Union said_;
  Union unsaid_;
  const Type* old_ = nullptr;
  int64_t extent_ = 0;
  bool oldIsNear_ = false;
  // Where the first bytes of the first and the last elements of the old type's members lie.
  bool any_ = false;
  Wide low_ = 0;
  Wide high_ = 0;
  bool far_ = false;
};

TypePtr Type::listed(const MemberArrays& members, TypePtr old, std::size_t* offending) {
  std::vector<TypePtr> olds;
  olds.push_back(std::move(old));
  return listed(members, std::move(olds), offending);
}

TypePtr Type::listed(const MemberArrays& members, std::vector<TypePtr> olds,
                     std::size_t* offending) {
  const bool one = olds.size() == 1;
  int64_t size = 0;
  int64_t elements = 0;  // of the one old type
  ListBounds bounds;
  Signature signature;
  // Members are one piece each in most lists. As many pieces can be written at once; what else is
  // made of them takes a second look.
  bool areBlocks = true;
  BlockListBuilder blocks;
  const Type* last = nullptr;
  Block block{0, 0};      // one element of it
  bool adjacent = false;  // the next one begins where it ends
  for (std::size_t i = 0; i < members.size; ++i) {
    Member member{members.countOf(i), 0};
    if (member.count == 0) {
      continue;
    }
    *offending = i;
    const Type& old = one ? *olds[0] : *olds[i];
    int64_t bytes = 0;
    if (!members.displacementOf(i, &member.displacement) ||
        __builtin_mul_overflow(member.count, old.size_, &bytes) ||
        __builtin_add_overflow(size, bytes, &size) || !bounds.add(member, old)) {
      return nullptr;
    }
    if (!one) {
      signature = signature.then(member.count == 1 ? old.signature_
                                                   : old.signature_.repeated(member.count));
    }
    if (bytes == 0) {
      continue;
    }
    elements += member.count;
    if (&old != last) {
      last = &old;
      block = old.block();
      adjacent = old.extent() == block.bytes;
    }
    areBlocks = areBlocks && block.bytes > 0 && (member.count == 1 || adjacent);
    if (areBlocks) {
      if (size == bytes) {
        blocks.reserve(members.size - i);
      }
      if (!blocks.add({member.displacement + block.offset, bytes})) {
        return nullptr;
      }
    }
  }
  if (one) {
    signature = olds[0]->signature_.repeated(elements);
  }
  if (areBlocks) {
    return make(Blocks{blocks.finish()}, {}, size, bounds.bounds(), signature);
  }
  std::vector<Member> kept;
  kept.reserve(members.size);
  for (std::size_t i = 0; i < members.size; ++i) {
    Member member{members.countOf(i), 0};
    if (member.count == 0 || (one ? *olds[0] : *olds[i]).size_ == 0) {
      continue;
    }
    (void)members.displacementOf(i, &member.displacement);
    if (!one) {
      olds[kept.size()] = olds[i];
    }
    kept.push_back(member);
  }
  if (!one) {
    olds.resize(kept.size());
  }
  return make(Listed{std::move(kept)}, std::move(olds), size, bounds.bounds(), signature);
}

TypePtr Type::resized(TypePtr old, int64_t lowerBound, int64_t extent) {
  TypeBounds bounds;
  bounds.said = true;
  bounds.data = old->bounds_.data;
  bounds.all.first = lowerBound;
  if (__builtin_add_overflow(lowerBound, extent, &bounds.all.last)) {
    return nullptr;
  }
  const int64_t size = old->size_;
  const Signature signature = old->signature_;
  return make(Same{}, {std::move(old)}, size, bounds, signature);
}

}  // namespace gmac::datatype
