// SPDX-License-Identifier: Apache-2.0
//
// The unit of coherence and its states (Gelado et al., section 4.3).
#ifndef GMAC_PROTOCOLS_BLOCK_H_
#define GMAC_PROTOCOLS_BLOCK_H_

#include <boost/intrusive/list_hook.hpp>
#include <cstdint>

#include "gmac/protocols/transit.h"

namespace gmac {

class Object;

// Part: the CPU has one window of the block (Block::window), an aligned piece, and nothing of the
// rest.
enum class State : std::uint8_t {
  kInvalid,       // only the accelerator's copy is current
  kReadOnly,      // both copies are
  kDirty,         // only the CPU's is
  kPartReadOnly,  // the accelerator's is, and inside the window the CPU's too
  kPartDirty,     // inside the window only the CPU's is, outside only the accelerator's
};

// Whether the CPU's copy is current inside a window alone.
constexpr bool isPart(State state) {
  return state == State::kPartReadOnly || state == State::kPartDirty;
}
// Whether the CPU has written bytes that the accelerator lacks.
constexpr bool isDirty(State state) { return state == State::kDirty || state == State::kPartDirty; }

constexpr const char* stateName(State state) {
  switch (state) {
    case State::kInvalid:
      return "Invalid";
    case State::kReadOnly:
      return "ReadOnly";
    case State::kDirty:
      return "Dirty";
    case State::kPartReadOnly:
      return "PartReadOnly";
    case State::kPartDirty:
      return "PartDirty";
  }
  return "?";
}

// One block of an object. Owned by its object; every member is guarded by the lock of all objects.
// Its list hook is in the rolling list while a protocol that evicts holds it dirty.
struct Block {
  boost::intrusive::list_member_hook<> rolling;
  Object* owner = nullptr;
  std::uint64_t flushed =
      0;  // ticket of the newest flush: the accelerator reads the CPU's pages until it is done
  State state = State::kReadOnly;
  Transit transit = Transit::kSettled;
  std::uint16_t holds = 0;  // threads that keep it open for system calls
  // The protocol's own: evicted, and neither written nor released since. ReadOnly then, or
  // PartReadOnly.
  bool evicted = false;
  // Not 0: of what the CPU has of the block one page alone is open (Object::openOf), the one of
  // that number, counted from 1. Of an Invalid block: which page was open when it was closed.
  std::uint8_t page = 0;
  std::uint32_t evictionStamp = 0;
  std::uint32_t window = 0;  // of a block that is open in part: its number, in windows

  bool settled() const { return transit == Transit::kSettled; }
  // Whether it may be closed.
  bool idle() const { return settled() && holds == 0; }
  // Whether a part of its bytes is open, and the rest is closed.
  bool openInPart() const { return isPart(state) || (page != 0 && state != State::kInvalid); }
};

}  // namespace gmac

#endif  // GMAC_PROTOCOLS_BLOCK_H_
