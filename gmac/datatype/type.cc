// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/type.h"

#include <algorithm>
#include <array>
#include <iterator>
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

TypePtr Type::listed(std::vector<Member> members, TypePtr old, std::size_t* offending) {
  std::vector<TypePtr> olds;
  olds.push_back(std::move(old));
  return listed(std::move(members), std::move(olds), offending);
}

TypePtr Type::listed(std::vector<Member> members, std::vector<TypePtr> olds,
                     std::size_t* offending) {
  int64_t size = 0;
  Union said;
  Union unsaid;
  Union data;
  Signature signature;
  int64_t elements = 0;  // of the one old type
  const bool one = olds.size() == 1;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Member& member = members[i];
    if (member.count == 0) {
      continue;
    }
    *offending = i;
    const Type& old = one ? *olds[0] : *olds[i];
    int64_t bytes = 0;
    if (__builtin_mul_overflow(member.count, old.size_, &bytes) ||
        __builtin_add_overflow(size, bytes, &size)) {
      return nullptr;
    }
    const auto place = [&](const Bounds& bounds) {
      return repeated(shifted(wide(bounds), member.displacement), member.count, old.extent());
    };
    if (old.size_ > 0) {
      data.add(place(old.bounds_.data));
    }
    if (old.bounds_.said) {
      said.add(place(old.bounds_.all));
    } else if (old.size_ > 0) {
      unsaid.add(place(old.bounds_.all));
    }
    if (!data.fits() || !said.fits() || !unsaid.fits()) {
      return nullptr;
    }
    if (!one) {
      signature = signature.then(member.count == 1 ? old.signature_
                                                   : old.signature_.repeated(member.count));
    } else if (old.size_ > 0) {
      elements += member.count;
    }
  }
  if (one) {
    signature = olds[0]->signature_.repeated(elements);
  }
  TypeBounds bounds;
  bounds.data = data.bounds();
  bounds.said = said.any();
  bounds.all = said.any() ? said.bounds() : unsaid.bounds();
  return make(Listed{std::move(members)}, std::move(olds), size, bounds, signature);
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

// Cuts the sequence down to its smallest period, again and again; gives the dims around what is
// left, outermost first. What is repeated as a whole need not be expanded.
std::vector<Dim> foldPieces(std::vector<Piece>& pieces) {
  std::vector<Dim> dims;
  for (;;) {
    const std::size_t count = pieces.size();
    const std::size_t period = smallestPeriod(count, [&](std::size_t p, std::size_t known) {
      int64_t stride = 0;
      if (__builtin_sub_overflow(pieces[p].displacement, pieces[0].displacement, &stride)) {
        return false;
      }
      const std::size_t end = std::min(count, known + p);
      for (std::size_t i = p; i < end; ++i) {
        const Piece& a = pieces[i - p];
        const Piece& b = pieces[i];
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
    dims.push_back({static_cast<int64_t>(count / period),
                    pieces[period].displacement - pieces[0].displacement});
    pieces.resize(period);
  }
}

}  // namespace

Result<Layout> Type::listLayout(const Listed& list, const char* function) const {
  const std::size_t members = list.members.size();
  const auto pieceAt = [&](std::size_t i) {
    const Committed& form = *oldOf(i).committedForm();
    return Piece{&form.layout, form.extent, list.members[i].count, list.members[i].displacement};
  };
  const auto has = [&](std::size_t i) { return list.members[i].count > 0 && oldOf(i).size_ > 0; };
  std::vector<Block> blocks;
  // Blocks are the rule; a member that is more sends all of them the longer way.
  blocks.reserve(members);
  std::size_t simple = 0;
  for (; simple < members; ++simple) {
    if (has(simple)) {
      const Piece piece = pieceAt(simple);
      if (!isBlock(piece)) {
        break;
      }
      blocks.push_back(blockOf(piece));
    }
  }
  if (simple == members) {
    return Layout::make({}, std::move(blocks));
  }
  blocks.clear();
  std::vector<Piece> pieces;
  pieces.reserve(members);
  for (std::size_t i = 0; i < members; ++i) {
    if (has(i)) {
      pieces.push_back(pieceAt(i));
    }
  }
  const std::vector<Dim> dims = foldPieces(pieces);
  if (pieces.size() == 1) {
    auto elements = pieces[0].layout->repeated(pieces[0].count, pieces[0].extent);
    return elements.ok() ? elements->arranged(dims, pieces[0].displacement) : elements;
  }
  Wide count = 0;
  for (const Piece& piece : pieces) {
    count += isBlock(piece) ? 1 : static_cast<Wide>(piece.layout->blockCount()) * piece.count;
  }
  if (count > kMostBlocks) {
    return fail(adsmErrorHostMemory, "{}: the layout has {} blocks that do not repeat; {} is most",
                function, static_cast<double>(count), kMostBlocks);
  }
  blocks.reserve(static_cast<std::size_t>(count));
  std::vector<Block> element;  // of the layout that was last
  const Layout* last = nullptr;
  for (const Piece& piece : pieces) {
    if (isBlock(piece)) {
      blocks.push_back(blockOf(piece));
      continue;
    }
    if (last != piece.layout) {
      last = piece.layout;
      element.clear();
      element.reserve(static_cast<std::size_t>(last->blockCount()));
      last->forEach(0, last->bytes(), [&](int64_t offset, int64_t, int64_t bytes) {
        element.push_back({offset, bytes});
      });
    }
    for (int64_t i = 0; i < piece.count; ++i) {
      const int64_t base = piece.displacement + i * piece.extent;
      for (const Block& block : element) {
        blocks.push_back({base + block.offset, block.bytes});
      }
    }
  }
  auto once = Layout::make({}, std::move(blocks));
  return once.ok() ? once->arranged(dims, 0) : once;
}

}  // namespace gmac::datatype
