// SPDX-License-Identifier: Apache-2.0
//
// Batch-update (Figure 6a): every object goes to the accelerator at a call, and comes back at a
// sync. Accesses are detected only between the two, so that no write of the kernel is overwritten.
#include "gmac/protocols/table.h"

namespace gmac {
namespace {

constexpr Transition batch(State state, Event event) {
  switch (state) {
    case State::kInvalid:
      switch (event) {
        case Event::kRead:
        case Event::kWrite:
        case Event::kReadPart:
        case Event::kWritePart:
        case Event::kSync:
          return {Move::kFetch, State::kDirty};
        case Event::kCall:
        case Event::kCallRead:
        case Event::kEvict:
          return {Move::kNone, State::kInvalid};
      }
      break;
    case State::kReadOnly:  // batch makes no such blocks; treated as if the CPU may have written
                            // them
    case State::kDirty:
      switch (event) {
        case Event::kRead:
        case Event::kWrite:
        case Event::kReadPart:
        case Event::kWritePart:
        case Event::kSync:
        case Event::kEvict:
          return {Move::kNone, State::kDirty};
        case Event::kCall:
          return {Move::kFlush, State::kInvalid};
        case Event::kCallRead:
          return {Move::kFlush, State::kDirty};
      }
      break;
    case State::kPartReadOnly:  // nor these: treated as if the CPU may have written their windows
    case State::kPartDirty:
      switch (event) {
        case Event::kRead:
        case Event::kWrite:
        case Event::kSync:
          return {Move::kFetch, State::kDirty};
        case Event::kReadPart:
        case Event::kWritePart:
        case Event::kEvict:
          return {Move::kNone, State::kPartDirty};
        case Event::kCall:
        case Event::kCallRead:
          return {Move::kFlush, State::kInvalid};
      }
      break;
  }
  __builtin_unreachable();
}

constexpr TransitionTable kTable = makeTable(batch);

// Batch-update; see Protocol for owner and threads.
class BatchProtocol final : public Protocol {
 public:
  std::string_view name() const noexcept override { return "batch"; }
  Transition on(State state, Event event) const noexcept override {
    return lookUp(kTable, state, event);
  }
  State initial() const noexcept override { return State::kDirty; }
  bool wholeObjects() const noexcept override { return true; }
};

}  // namespace

std::unique_ptr<Protocol> makeBatchProtocol() { return std::make_unique<BatchProtocol>(); }

}  // namespace gmac
