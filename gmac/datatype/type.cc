// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/type.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "gmac/datatype/period.h"

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

// Long chains of types that nobody else holds are let go one by one: each destructor calling the
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

// Role: the bounds of a list's members, each counted if it has any. For the stack.
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
    // What is near fits with all that is.
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

Result<CommittedPtr> Type::commit(const char* function) const {
  // Old types first, without recursion: chains of types may be longer than a stack is deep. What
  // has been on the path is committed when it is met again.
  std::vector<std::pair<const Type*, std::size_t>> path;
  if (committedForm() == nullptr) {
    path.emplace_back(this, 0);
  }
  while (!path.empty()) {
    auto& [type, next] = path.back();
    if (next < type->olds_.size()) {
      const Type* old = type->olds_[next++].get();
      if (old->committedForm() == nullptr) {
        path.emplace_back(old, 0);
      }
      continue;
    }
    auto layout = type->layout(function);
    if (!layout.ok()) {
      return layout.status();
    }
    auto made = std::make_shared<const Committed>(
        Committed{std::move(*layout), type->lowerBound(), type->extent(), type->size()});
    {
      const std::lock_guard guard(type->lock_);
      if (type->committed_ == nullptr) {
        type->committed_ = std::move(made);
        type->made_.store(type->committed_.get(), std::memory_order_release);
      }
    }
    path.pop_back();
  }
  return committed_;
}

Result<Layout> Type::layout(const char* function) const {
  if (size_ == 0) {
    return Layout();
  }
  if (const auto* strided = std::get_if<Strided>(&form_)) {
    return olds_[0]->committedForm()->layout.arranged(strided->dims, strided->offset);
  }
  if (const auto* list = std::get_if<Listed>(&form_)) {
    return listLayout(*list, function);
  }
  if (const auto* blocks = std::get_if<Blocks>(&form_)) {
    return Layout::make(blocks->list);
  }
  return olds_.empty() ? Layout::make({}, {{0, size_}}) : olds_[0]->committedForm()->layout;
}

namespace {

// A member that has bytes.
struct Piece {
  const Layout* layout;  // of one element
  int64_t extent;
  int64_t count;
  int64_t displacement;
};

// Whether the piece is one contiguous block.
bool isBlock(const Piece& piece) {
  const Layout& layout = *piece.layout;
  return layout.dims().empty() && layout.blocks().size() == 1 &&
         (piece.count == 1 || piece.extent == layout.bytes());
}

Block blockOf(const Piece& piece) {
  const Block& one = piece.layout->blocks()[0];
  return {piece.displacement + one.offset, piece.count * one.bytes};
}

// Cuts the sequence of `count` pieces down to its smallest period, again and again; gives the dims
// around what is left, outermost first. What is repeated as a whole need not be expanded.
template <typename PieceAt>
std::vector<Dim> foldPieces(std::size_t& count, const PieceAt& pieceAt) {
  std::vector<Dim> dims;
  for (;;) {
    const int64_t first = pieceAt(0).displacement;
    const std::size_t period = smallestPeriod(count, [&](std::size_t p, std::size_t known) {
      int64_t stride = 0;
      if (__builtin_sub_overflow(pieceAt(p).displacement, first, &stride)) {
        return false;
      }
      const std::size_t end = std::min(count, known + p);
      for (std::size_t i = p; i < end; ++i) {
        const Piece a = pieceAt(i - p);
        const Piece b = pieceAt(i);
        int64_t apart = 0;
        if (__builtin_sub_overflow(b.displacement, a.displacement, &apart) || apart != stride ||
            a.count != b.count || (a.count > 1 && a.extent != b.extent) ||
            (a.layout != b.layout && !(*a.layout == *b.layout))) {
          return false;
        }
      }
      return true;
    });
    if (period == count) {
      return dims;
    }
    dims.push_back({static_cast<int64_t>(count / period), pieceAt(period).displacement - first});
    count = period;
  }
}

// Adds the blocks of all elements of pieces. Bytes and bounds of all have been looked at before.
class Expansion {
 public:
  explicit Expansion(BlockListBuilder& blocks) : blocks_(blocks) {}

  void add(const Piece& piece) {
    if (isBlock(piece)) {
      (void)blocks_.add(blockOf(piece));
      return;
    }
    if (last_ != piece.layout) {
      last_ = piece.layout;
      flatten(*last_);
    }
    for (int64_t i = 0; i < piece.count; ++i) {
      const int64_t base = piece.displacement + i * piece.extent;
      for (const Block& block : element_) {
        (void)blocks_.add({base + block.offset, block.bytes});
      }
    }
  }

 private:
  void flatten(const Layout& layout) {
    if (layout.dims().empty()) {
      element_ = layout.blocks();
      return;
    }
    flat_.clear();
    flat_.reserve(static_cast<std::size_t>(layout.blockCount()));
    layout.forEach(0, layout.bytes(), [&](int64_t offset, int64_t, int64_t bytes) {
      flat_.push_back({offset, bytes});
    });
    element_ = flat_;
  }

  BlockListBuilder& blocks_;
  const Layout* last_ = nullptr;
  std::vector<Block> flat_;
  std::span<const Block> element_;  // of the layout that was last
};

}  // namespace

Result<Layout> Type::listLayout(const Listed& list, const char* function) const {
  const auto pieceAt = [&](std::size_t i) {
    const Committed& form = *oldOf(i).committedForm();
    return Piece{&form.layout, form.extent, list.members[i].count, list.members[i].displacement};
  };
  std::size_t pieces = list.members.size();
  const std::vector<Dim> dims = foldPieces(pieces, pieceAt);
  if (pieces == 1) {
    const Piece piece = pieceAt(0);
    auto elements = piece.layout->repeated(piece.count, piece.extent);
    return elements.ok() ? elements->arranged(dims, piece.displacement) : elements;
  }
  Wide count = 0;
  for (std::size_t i = 0; i < pieces; ++i) {
    const Piece piece = pieceAt(i);
    count += isBlock(piece) ? 1 : static_cast<Wide>(piece.layout->blockCount()) * piece.count;
  }
  if (count > kMostBlocks) {
    return fail(adsmErrorHostMemory, "{}: the layout has {} blocks that do not repeat; {} is most",
                function, static_cast<double>(count), kMostBlocks);
  }
  BlockListBuilder blocks;
  blocks.reserve(static_cast<std::size_t>(count));
  Expansion expansion(blocks);
  for (std::size_t i = 0; i < pieces; ++i) {
    expansion.add(pieceAt(i));
  }
  auto once = Layout::make(blocks.finish());
  return once.ok() ? once->arranged(dims, 0) : once;
}

}  // namespace gmac::datatype
