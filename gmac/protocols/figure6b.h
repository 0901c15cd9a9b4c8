// SPDX-License-Identifier: Apache-2.0
//
// The machine of Figure 6b, which lazy-update and rolling-update share but for its dotted line, the
// eviction.
#ifndef GMAC_PROTOCOLS_FIGURE6B_H_
#define GMAC_PROTOCOLS_FIGURE6B_H_

#include "gmac/protocols/protocol.h"

namespace gmac {

// `evicted`: what becomes of a dirty block when the rolling size is exceeded.
constexpr Transition figure6b(State state, Event event, Transition evicted) {
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
        case Event::kEvict:
          return evicted;
        case Event::kRead:
        case Event::kWrite:
        case Event::kSync:
          return {Move::kNone, State::kDirty};
      }
      break;
  }
  __builtin_unreachable();
}

}  // namespace gmac

#endif  // GMAC_PROTOCOLS_FIGURE6B_H_
