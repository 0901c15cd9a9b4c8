// SPDX-License-Identifier: Apache-2.0
//
// From types as they were written to layouts: what commits them.
#include <algorithm>
#include <span>
#include <utility>

#include "gmac/datatype/layout/period.h"
#include "gmac/datatype/types/type.h"

namespace gmac::datatype {
namespace {

using std::int64_t;
using Wide = __int128;

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
  if (count > kMaxBlocks) {
    return fail(adsmErrorHostMemory, "{}: the layout has {} blocks that do not repeat; {} is most",
                function, static_cast<double>(count), kMaxBlocks);
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
