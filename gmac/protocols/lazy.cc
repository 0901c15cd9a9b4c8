// SPDX-License-Identifier: Apache-2.0
//
// Lazy-update (Figure 6b without its dotted line): per object; writes are detected on ReadOnly
// objects, every access on Invalid ones; only dirty objects are flushed at a call, nothing is
// fetched at a sync.
#include "gmac/protocols/table.h"

namespace gmac {
namespace {

constexpr Transition lazy(State state, Event event) {
  switch (state) {
    case State::kInvalid:
      switch (event) {
        case Event::kRead:
          return {Move::kFetch, State::kReadOnly};
        case Event::kWrite:
          return {Move::kFetch, State::kDirty};
        case Event::kCall:
        case Event::kCallRead:
        case Event::kSync:
        case Event::kEvict:
          return {Move::kNone, State::kInvalid};
      }
      break;
    case State::kReadOnly:
      switch (event) {
        case Event::kWrite:
          return {Move::kNone, State::kDirty};
        case Event::kCall:
          return {Move::kNone, State::kInvalid};
        case Event::kRead:
        case Event::kCallRead:
        case Event::kSync:
        case Event::kEvict:
          return {Move::kNone, State::kReadOnly};
      }
      break;
    case State::kDirty:
      switch (event) {
        case Event::kCall:
          return {Move::kFlush, State::kInvalid};
        case Event::kCallRead:
          return {Move::kFlush, State::kReadOnly};
        case Event::kRead:
        case Event::kWrite:
        case Event::kSync:
        case Event::kEvict:
          return {Move::kNone, State::kDirty};
      }
      break;
  }
  __builtin_unreachable();
}

constexpr TransitionTable kTable = makeTable(lazy);

// Role: lazy-update; see Protocol for owner and threads.
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
