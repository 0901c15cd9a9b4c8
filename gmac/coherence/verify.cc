// SPDX-License-Identifier: Apache-2.0
//
// The walker: whether every object's states, lists, open range and page protections agree.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "gmac/base/log.h"
#include "gmac/coherence/blocks.h"
#include "gmac/os/mappings.h"

namespace gmac {
namespace {

Status wrong(Object& object, BlockIndex index, const char* what) {
  return fail(adsmErrorSystem, "object {} ({} bytes), block {} ({}): {}", shown(object.address()),
              object.bytes(), static_cast<std::size_t>(index), stateName(object[index].state),
              what);
}

// Whether bytes of a block, which lie in one chunk and are all or none to be open, are open exactly
// as far as its state says.
Status verifyPages(const std::vector<os::Mapping>& mappings, Object& object, BlockIndex index,
                   ByteRange bytes) {
  const bool installed = object.chunks[object.chunkOf(bytes.begin)] == Object::Chunk::kReady ||
                         object.mirror->readableBeforeInstall();
  const bool current = object.openOf(index).contains(bytes);
  // Its next state is not known here.
  const bool opening = object[index].transit == Transit::kOpening;
  const os::Access allowed = !installed || (!current && !opening) ? os::Access::kNone
                             : opening                            ? os::Access::kReadWrite
                                                                  : accessOf(object[index].state);
  const auto begin = reinterpret_cast<std::uintptr_t>(object.address()) + bytes.begin;
  if (os::loosestAccess(mappings, begin, bytes.length()) > allowed) {
    return wrong(object, index, "its pages are open further than its state allows");
  }
  const os::Access found = os::tightestAccess(mappings, begin, bytes.length());
  // Held bytes of a block that is open in part lie there, and those of a block that has
  // several chunks lie in chunks that are there.
  const bool held =
      object[index].holds > 0 && installed && (current || !object[index].openInPart());
  if (held && found == os::Access::kNone) {
    return wrong(object, index, "held, and not all of its pages are readable");
  }
  if ((object.usable(bytes, Intent::kRead) && found == os::Access::kNone) ||
      (object.usable(bytes, Intent::kWrite) && found != os::Access::kReadWrite)) {
    return wrong(object, index, "its pages are closed further than its state says");
  }
  return {};
}

// The same for all bytes of a block. Chunk by chunk: where a block has several, each is installed
// at a time of its own. And what is open apart from what is closed.
Status verifyPagesOf(const std::vector<os::Mapping>& mappings, Object& object, BlockIndex index) {
  const ByteRange open = object.openOf(index);
  if (object.ownAround(object.offsetOf(index)).end < object.offsetOf(index + 1)) {
    return object[index].state == State::kInvalid
               ? Status()
               : wrong(object, index, "open, but of a page that is another object");
  }
  for (ByteRange piece{object.offsetOf(index), 0}; piece.begin < object.offsetOf(index + 1);
       piece.begin = piece.end) {
    const std::size_t chunkBytes = object.mirror->chunkBytes();
    piece.end = std::min(object.offsetOf(index + 1), (piece.begin / chunkBytes + 1) * chunkBytes);
    for (const std::size_t border : {open.begin, open.end}) {
      if (piece.begin < border) {
        piece.end = std::min(piece.end, border);
      }
    }
    GMAC_TRY(verifyPages(mappings, object, index, piece));
  }
  return {};
}

// The same for a group of blocks that has never been used, which stays as it is.
Status verifyRest(const std::vector<os::Mapping>& mappings, Object& object, BlockRange group) {
  const State state = object.rest(group.begin);
  const bool inside = group.begin >= object.open.begin && group.end <= object.open.end;
  const auto base = reinterpret_cast<std::uintptr_t>(object.address());
  const ByteRange bytes = object.bytesOf(group);
  bool loose = false;
  for (std::size_t at = bytes.begin; at < bytes.end;) {
    const std::size_t end = std::min(bytes.end, object.ownAround(at).end);
    loose |= at < end && os::loosestAccess(mappings, base + at, end - at) > accessOf(state);
    at = at < end ? end : at + object.blockBytes;
  }
  if (loose || (state != State::kInvalid && !inside)) {
    return fail(
        adsmErrorSystem, "object {} ({} bytes), unused blocks from {} on ({}): {}",
        shown(object.address()), object.bytes(), static_cast<std::size_t>(group.begin),
        stateName(state),
        loose ? "their pages are open further than their state allows" : "outside the open range");
  }
  return {};
}

}  // namespace

Status Blocks::verifyState(Object& object, BlockIndex index) const {
  const Block& block = object[index];
  const bool evicts = protocol_.on(State::kDirty, Event::kEvict).next != State::kDirty;
  if (block.owner != &object) {
    return wrong(object, index, "another object's block");
  }
  if (block.state != State::kInvalid && (index < object.open.begin || index >= object.open.end)) {
    return wrong(object, index, "outside the open range");
  }
  if (block.rolling.is_linked() != (isDirty(block.state) && evicts && !object.isZeroCopy())) {
    return wrong(object, index, "rolling list and state disagree");
  }
  if (block.transit == Transit::kFlushing && !isDirty(block.state)) {
    return wrong(object, index, "being flushed, but not dirty");
  }
  if (block.transit == Transit::kFetching && !isPart(block.state) && !object.protectionStale_ &&
      block.state != State::kInvalid) {
    return wrong(object, index, "being fetched, but current");
  }
  if (block.evicted && block.state != State::kReadOnly && block.state != State::kPartReadOnly) {
    return wrong(object, index, "evicted, but not ReadOnly");
  }
  return {};
}

Status Blocks::verify() {
  const os::SignalsBlocked blocked;
  const std::lock_guard guard(mutex_);
  return verifyAll();
}

Status Blocks::verifyAll() {
  auto mappings = os::readMappings();
  if (!mappings.ok()) {
    return mappings.status();
  }
  // (They end without the lock, and would leave the list then.)
  const auto verifyList = [&](const auto& list, const char* name) -> Status {
    for (const Object& object : list) {
      const Object* const found = index_.find(object.address());
      if (found == nullptr || (found != &object && found->whole != &object)) {
        return fail(adsmErrorSystem, "object {}: freed, but in the list of objects that are {}",
                    shown(object.address()), name);
      }
    }
    return {};
  };
  GMAC_TRY(verifyList(readBacks_, "read back"));
  GMAC_TRY(verifyList(toSplit_, "to be split"));
  for (Object& object : index_.all()) {
    if (object.closing) {
      continue;
    }
    if (object.spread() && object.places.size() != object.blockCount) {
      return fail(adsmErrorSystem, "object {}: places of {} blocks, not of {}",
                  shown(object.address()), object.places.size(), object.blockCount);
    }
    for (std::size_t i = 0; i < object.places.size(); ++i) {
      if ((object.places[i] & object.copies) == 0) {
        return wrong(object, BlockIndex{i}, "on no device");
      }
    }
    std::size_t busy = 0;
    std::size_t held = 0;
    bool listed = false;
    for (const Object& open : listOf(object)) {
      listed = listed || &open == &object;
    }
    if (object.watchHook.is_linked() != (object.isZeroCopy() && !object.concurrent) ||
        (object.concurrent &&
         (!object.isZeroCopy() || object.lengthOf(object.open) < object.bytes()))) {
      return fail(adsmErrorSystem, "object {}: {} copy, {}concurrent, {}watched",
                  shown(object.address()), object.isZeroCopy() ? "one" : "a second",
                  object.concurrent ? "" : "not ", object.watchHook.is_linked() ? "" : "not ");
    }
    if (listed == object.open.empty()) {
      return fail(adsmErrorSystem, "object {}: {} the list of open objects",
                  shown(object.address()), listed ? "closed, but in" : "open, but not in");
    }
    for (BlockIndex i = object.all().begin; i < object.all().end; i = i + 1) {
      if (!object.made(i)) {
        if (!object.moving) {
          GMAC_TRY(verifyRest(*mappings, object, {i, object.groupEnd(i)}));
        }
        i = object.groupEnd(i) - 1;
        continue;
      }
      const Block& block = object[i];
      if (object.concurrent && block.state != State::kDirty) {
        return wrong(object, i, "concurrent, but not dirty");
      }
      busy += block.settled() ? 0 : 1;
      held += block.holds;
      GMAC_TRY(verifyState(object, i));
      if (!object.moving) {
        GMAC_TRY(verifyPagesOf(*mappings, object, i));
      }
    }
    if (busy != object.inTransit_) {
      return fail(adsmErrorSystem, "object {}: {} blocks are in transit, {} are counted",
                  shown(object.address()), busy, object.inTransit_);
    }
    if (object.edges != object.countEdges()) {
      return fail(adsmErrorSystem, "object {}: {} edges between blocks, {} are counted",
                  shown(object.address()), object.countEdges(), object.edges);
    }
    if (held != object.holds_) {
      return fail(adsmErrorSystem, "object {}: {} holds, {} are counted", shown(object.address()),
                  held, object.holds_);
    }
  }
  return {};
}

void Blocks::walk() noexcept {
  // A walk takes as long as there are blocks: with very many of them it is taken now and then.
  constexpr std::size_t kFewBlocks = 2048;
  constexpr std::uint32_t kSeldom = 4096;
  static std::atomic<std::uint32_t> transitions{0};
  const bool due = transitions.fetch_add(1, std::memory_order_relaxed) % kSeldom == 0;
  const Look look(mutex_);
  std::size_t blocks = 0;
  if (!due) {
    for (const Object& object : index_.all()) {
      blocks += object.blockCount;
    }
  }
  if (blocks <= kFewBlocks && !verifyAll().ok()) {
    log(LogLevel::kError, "the walker: {}", lastErrorText());
    std::abort();
  }
}

}  // namespace gmac
