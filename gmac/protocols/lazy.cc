// SPDX-License-Identifier: Apache-2.0
//
// Lazy-update (Figure 6b without its dotted line): per object; writes are detected on ReadOnly
// objects, every access on Invalid ones; only dirty objects are flushed at a call, nothing is
// fetched at a sync.
#include "gmac/protocols/figure6b.h"
#include "gmac/protocols/table.h"

namespace gmac {
namespace {

// Its unit is the object, as in the paper: it opens no parts and never evicts.
constexpr TransitionTable kTable = makeTable([](State state, Event event) {
  return figure6b(state, event, Parts::kNever, Evictions::kNever);
});

// Lazy-update; see Protocol for owner and threads.
class LazyProtocol final : public Protocol {
 public:
  std::string_view name() const noexcept override { return "lazy"; }
  Transition on(State state, Event event) const noexcept override {
    return lookUp(kTable, state, event);
  }
  State initial() const noexcept override { return State::kReadOnly; }
  bool wholeObjects() const noexcept override { return true; }
};

}  // namespace

std::unique_ptr<Protocol> makeLazyProtocol() { return std::make_unique<LazyProtocol>(); }

}  // namespace gmac
