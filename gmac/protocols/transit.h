// SPDX-License-Identifier: Apache-2.0
//
// The second region of a block's machine, orthogonal to its State: what is under way with the block
// while the lock of all objects is let go. The State says which bytes are current and changes when
// that is over; the transit says how far the pages may be open meanwhile. Everybody else leaves the
// block alone until it is settled.
#ifndef GMAC_PROTOCOLS_TRANSIT_H_
#define GMAC_PROTOCOLS_TRANSIT_H_

#include <array>
#include <cstdint>

namespace gmac {

enum class Transit : std::uint8_t {
  kSettled,   // nothing: the pages are as the state says
  kFetching,  // bytes are copied from the accelerator; the pages are as the state says
  kOpening,   // the pages are opened as the next state says
  kFlushing,  // the pages are closed for writing, then the bytes copied to the accelerator
  kAwaiting,  // a write waits for what reads the old bytes; the pages are as the state says
  kNever,     // of no block: what comes of a step that the core never takes
};

enum class TransitStep : std::uint8_t { kFetch, kOpen, kFlush, kAwait, kEnd };

inline constexpr std::array kTransits = {Transit::kSettled, Transit::kFetching, Transit::kOpening,
                                         Transit::kFlushing, Transit::kAwaiting};
inline constexpr std::array kTransitSteps = {TransitStep::kFetch, TransitStep::kOpen,
                                             TransitStep::kFlush, TransitStep::kAwait,
                                             TransitStep::kEnd};

// The transit after a step, of a block that threads hold open for system calls (`held`) or not. A
// held block may be opened further, and is never closed.
constexpr Transit after(Transit transit, bool held, TransitStep step) {
  switch (transit) {
    case Transit::kSettled:
      switch (step) {
        case TransitStep::kFetch:
          return Transit::kFetching;
        case TransitStep::kOpen:
          return Transit::kOpening;
        case TransitStep::kFlush:
          return held ? Transit::kNever : Transit::kFlushing;
        case TransitStep::kAwait:
          return Transit::kAwaiting;
        case TransitStep::kEnd:
          return Transit::kNever;
      }
      break;
    case Transit::kFetching:  // its bytes have arrived, or could not be fetched
      switch (step) {
        case TransitStep::kOpen:
          return Transit::kOpening;
        case TransitStep::kEnd:
          return Transit::kSettled;
        case TransitStep::kFetch:
        case TransitStep::kFlush:
        case TransitStep::kAwait:
          return Transit::kNever;
      }
      break;
    case Transit::kOpening:
    case Transit::kFlushing:
    case Transit::kAwaiting:
      return step == TransitStep::kEnd ? Transit::kSettled : Transit::kNever;
    case Transit::kNever:
      break;
  }
  return Transit::kNever;
}

// Every transit ends, and only a settled block begins one.
static_assert([] {
  for (const Transit transit : kTransits) {
    for (const bool held : {false, true}) {
      const bool settled = transit == Transit::kSettled;
      if ((after(transit, held, TransitStep::kEnd) == Transit::kSettled) == settled ||
          (after(transit, held, TransitStep::kAwait) == Transit::kNever) == settled) {
        return false;
      }
    }
  }
  return after(Transit::kSettled, true, TransitStep::kFlush) == Transit::kNever;
}());

}  // namespace gmac

#endif  // GMAC_PROTOCOLS_TRANSIT_H_
