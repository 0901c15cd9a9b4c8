// SPDX-License-Identifier: Apache-2.0
//
// Rolling-update (Figure 6b with its dotted line): lazy-update per block, and at most rolling-size
// dirty blocks; the oldest is evicted, that is, flushed early, and becomes ReadOnly. The rolling
// size grows by a fixed step at every allocation, because applications tend to use all allocated
// structures at once.
#include "gmac/protocols/figure6b.h"
#include "gmac/protocols/table.h"

namespace gmac {
namespace {

constexpr TransitionTable kTable = makeTable([](State state, Event event) {
  return figure6b(state, event, {Move::kFlush, State::kReadOnly});
});

// Role: rolling-update and its first-in first-out list of dirty blocks; see Protocol for owner and
// threads.
class RollingProtocol final : public Protocol {
 public:
  explicit RollingProtocol(const RollingOptions& options)
      : step_(options.step), adaptive_(options.fixed == 0), limit_(options.fixed) {}

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
      limit_ += step_;
    }
  }
  void becameDirty(Block& block) noexcept override { dirty_.push_back(block); }
  void leftDirty(Block& block) noexcept override { dirty_.erase(dirty_.iterator_to(block)); }
  Block* excess() noexcept override {
    if (dirty_.size() <= limit_) {
      return nullptr;
    }
    for (Block& block : dirty_) {
      if (!block.busy && block.holds == 0) {
        return &block;
      }
    }
    return nullptr;
  }

 private:
  std::size_t step_;
  bool adaptive_;
  std::size_t limit_;
  RollingList dirty_;
};

}  // namespace

std::unique_ptr<Protocol> makeRollingProtocol(const RollingOptions& options) {
  return std::make_unique<RollingProtocol>(options);
}

}  // namespace gmac
