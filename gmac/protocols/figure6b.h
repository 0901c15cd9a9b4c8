// SPDX-License-Identifier: Apache-2.0
//
// The machine of Figure 6b. Lazy-update and rolling-update share it; only rolling-update has its
// dotted line, the eviction, and opens blocks in part.
#ifndef GMAC_PROTOCOLS_FIGURE6B_H_
#define GMAC_PROTOCOLS_FIGURE6B_H_

#include "gmac/protocols/protocol.h"

namespace gmac {

// Whether a protocol opens blocks in part.
enum class Parts : bool { kNever, kMade };
// Whether a protocol evicts dirty blocks when the rolling size is exceeded.
enum class Evictions : bool { kNever, kMade };

constexpr Transition figure6b(State state, Event event, Parts parts, Evictions evictions) {
  const bool evicts = evictions == Evictions::kMade;
  const bool makesParts = parts == Parts::kMade;
  switch (state) {
    case State::kInvalid:
      switch (event) {
        case Event::kRead:
          return {Move::kFetch, State::kReadOnly};
        case Event::kWrite:
          return {Move::kFetch, State::kDirty};
        case Event::kReadPart:
          return {Move::kFetch, makesParts ? State::kPartReadOnly : State::kReadOnly};
        case Event::kWritePart:
          return {Move::kFetch, makesParts ? State::kPartDirty : State::kDirty};
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
        case Event::kWritePart:
          return {Move::kNone, State::kDirty};
        case Event::kCall:
          return {Move::kNone, State::kInvalid};
        case Event::kRead:
        case Event::kReadPart:
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
        case Event::kEvict:
          return evicts ? Transition{Move::kFlush, State::kReadOnly}
                        : Transition{Move::kNone, State::kDirty};
        case Event::kRead:
        case Event::kWrite:
        case Event::kReadPart:
        case Event::kWritePart:
        case Event::kSync:
          return {Move::kNone, State::kDirty};
      }
      break;
    case State::kPartReadOnly:
      switch (event) {
        case Event::kRead:
          return {Move::kFetch, State::kReadOnly};
        case Event::kWrite:
          return {Move::kFetch, State::kDirty};
        case Event::kWritePart:
          return {Move::kNone, State::kPartDirty};
        case Event::kCall:
          return {Move::kNone, State::kInvalid};
        case Event::kReadPart:
        case Event::kCallRead:
        case Event::kSync:
        case Event::kEvict:
          return {Move::kNone, State::kPartReadOnly};
      }
      break;
    case State::kPartDirty:
      switch (event) {
        case Event::kRead:  // the window's bytes are still the CPU's alone
        case Event::kWrite:
          return {Move::kFetch, State::kDirty};
        case Event::kCall:
          return {Move::kFlush, State::kInvalid};
        case Event::kCallRead:
          return {Move::kFlush, State::kPartReadOnly};
        case Event::kEvict:
          return evicts ? Transition{Move::kFlush, State::kPartReadOnly}
                        : Transition{Move::kNone, State::kPartDirty};
        case Event::kReadPart:
        case Event::kWritePart:
        case Event::kSync:
          return {Move::kNone, State::kPartDirty};
      }
      break;
  }
  __builtin_unreachable();
}

}  // namespace gmac

#endif  // GMAC_PROTOCOLS_FIGURE6B_H_
