// SPDX-License-Identifier: Apache-2.0
//
// A protocol's table, built at compile time from a function with one case per pair: a missing pair
// does not compile (the switches have no default, and a fall-through is no constant expression).
#ifndef GMAC_PROTOCOLS_TABLE_H_
#define GMAC_PROTOCOLS_TABLE_H_

#include <array>

#include "gmac/protocols/protocol.h"

namespace gmac {

inline constexpr std::array kStates = {State::kInvalid, State::kReadOnly, State::kDirty,
                                       State::kPartReadOnly, State::kPartDirty};
inline constexpr std::array kEvents = {Event::kRead,      Event::kWrite, Event::kReadPart,
                                       Event::kWritePart, Event::kCall,  Event::kCallRead,
                                       Event::kSync,      Event::kEvict};

using TransitionTable = std::array<std::array<Transition, kEvents.size()>, kStates.size()>;

template <typename Function>
consteval TransitionTable makeTable(Function transition) {
  TransitionTable table{};
  for (const State state : kStates) {
    for (const Event event : kEvents) {
      table[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)] =
          transition(state, event);
    }
  }
  return table;
}

constexpr Transition lookUp(const TransitionTable& table, State state, Event event) {
  return table[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
}

}  // namespace gmac

#endif  // GMAC_PROTOCOLS_TABLE_H_
