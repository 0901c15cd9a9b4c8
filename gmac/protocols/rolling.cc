// SPDX-License-Identifier: Apache-2.0
//
// Rolling-update (Figure 6b with its dotted line): lazy-update per block, and at most rolling-size
// dirty blocks; the oldest is evicted, that is, flushed early, and becomes ReadOnly.
//
// The adaptive rolling size is never below the paper's, a fixed step for every object, because
// applications tend to use all allocated structures at once. The worst case of the paper's size
// alone is a program that writes more blocks in turn than that: it evicts a block at every store.
// So the size is raised above the paper's on evidence, such that never more than a small multiple
// is flushed of what lazy-update by blocks would flush:
//
//  - A flush was wasted if its block is written again after its eviction and before a call releases
//    it (or if no call ever does). A wasted flush adds kWastePrice to a debt; the first write to a
//    block since its release, which lazy-update flushes too, takes 1 off. The debt is never below
//    -kWastePrice: an occasional wasted flush is tolerated, as where one block is written all the
//    time and the rest in order.
//  - In debt, a wasted flush that the present size would not have avoided doubles the size.
//    (Avoiding it would have taken the size at the eviction plus the evictions since.)
//  - Out of debt, a call lowers the size by an eighth of its excess over the paper's, if anything
//    was written: copies then overlap the CPU's work again.
//
// The bound. Let U be the flushes of lazy-update by blocks, W the wasted ones, and M the most
// blocks that are dirty or evicted (and not released) at one time. The debt is never less than
// kWastePrice * W - U, so W <= (U + debt) / kWastePrice. While in debt the size only rises. At most
// log2(M) wasted flushes raise it before it reaches M; from then on nothing is evicted, and each of
// at most M evicted blocks can be wasted once. Of the blocks that were evicted before the size was
// raised to S, at most S can be wasted without raising it again (a block evicted longer ago
// would), which adds up to 2 M. Therefore
//
//   W <= U / kWastePrice + 3 M + log2(M) + 1
//
// whatever the program does: 1/16 of the bytes that lazy-update moves and, once, while the
// program's pattern is learned, a few times the bytes that it writes between two calls. A write to
// a block whose eviction is still in progress waits for that flush and for those before it: the
// same flushes again, and lazy-update waits for all of its own at the call.
#include <algorithm>
#include <functional>

#include "gmac/protocols/figure6b.h"
#include "gmac/protocols/table.h"

namespace gmac {
namespace {

constexpr TransitionTable kTable = makeTable([](State state, Event event) {
  return figure6b(state, event, Parts::kMade, Evictions::kMade);
});

// So many flushes that lazy-update makes too pay for one wasted flush.
constexpr std::int64_t kWastePrice = 16;
// A call lowers the rolling size by this part of its excess over the paper's.
constexpr std::size_t kDecay = 8;

// Rolling-update, its first-in first-out list of dirty blocks and its adaptive size; see Protocol
// for owner and threads.
class RollingProtocol final : public Protocol {
 public:
  explicit RollingProtocol(const RollingOptions& options)
      : step_(options.step), adaptive_(options.fixed == 0), least_(options.fixed) {}

  // The blocks belong to their objects, which may outlive the protocol in a failed start.
  ~RollingProtocol() override { dirty_.clear(); }

  std::string_view name() const noexcept override { return "rolling"; }
  Transition on(State state, Event event) const noexcept override {
    return lookUp(kTable, state, event);
  }
  State initial() const noexcept override { return State::kReadOnly; }
  bool wholeObjects() const noexcept override { return false; }

  void allocated() noexcept override {
    if (adaptive_) {
      least_ += step_;
    }
  }
  void freed() noexcept override {
    if (adaptive_) {
      least_ -= step_;
      extra_ += debt_ > 0 ? step_ : 0;
    }
  }
  void becameDirty(Block& block) noexcept override {
    if (block.evicted) {
      wasted(block);
    } else {
      debt_ = std::max(debt_ - 1, -kWastePrice);
    }
    dirty_.push_back(block);
  }
  void leftDirty(Block& block) noexcept override { dirty_.erase(dirty_.iterator_to(block)); }
  void evicted(Block& block) noexcept override {
    block.evicted = true;
    // The evictions so far minus this are the size that would have kept the block. Modulo 2^32.
    block.evictionStamp = evictions_++ - static_cast<std::uint32_t>(limit());
  }
  void released(Block& block) noexcept override {
    block.evicted = false;
    written_ = true;
  }
  void dropped(Block& block) noexcept override {
    ++debt_;  // lazy-update does not flush it either
    if (block.evicted) {
      wasted(block);
    }
  }
  void called() noexcept override {
    if (written_ && debt_ <= 0) {
      extra_ -= (extra_ + kDecay - 1) / kDecay;
    }
    written_ = false;
  }
  std::size_t room() const noexcept override { return limit() - std::min(dirty_.size(), limit()); }
  Block* evictionCandidate(std::size_t flushing) noexcept override {
    if (dirty_.size() <= limit() + flushing) {
      return nullptr;
    }
    const auto oldest = std::find_if(dirty_.begin(), dirty_.end(), std::mem_fn(&Block::idle));
    return oldest == dirty_.end() ? nullptr : &*oldest;
  }

 private:
  std::size_t limit() const { return least_ + extra_; }

  // The block's last eviction was wasted.
  void wasted(Block& block) {
    debt_ += kWastePrice;
    const std::size_t enough = evictions_ - block.evictionStamp;
    if (adaptive_ && debt_ > 0 && enough > limit()) {
      extra_ += limit();
    }
    block.evicted = false;
  }

  const std::size_t step_;
  const bool adaptive_;
  std::size_t least_;      // the paper's size, or the fixed one
  std::size_t extra_ = 0;  // added on evidence
  RollingList dirty_;
  std::uint32_t evictions_ = 0;
  std::int64_t debt_ = 0;
  bool written_ = false;  // a call has released written bytes since the last call()
};

}  // namespace

std::unique_ptr<Protocol> makeRollingProtocol(const RollingOptions& options) {
  return std::make_unique<RollingProtocol>(options);
}

}  // namespace gmac
