// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/coarsening.h"

#include <algorithm>
#include <utility>

#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/observe/stats.h"

namespace gmac {
namespace {

// By how much coarsening grows the blocks of an object.
constexpr std::size_t kCoarsenFactor = 16;

// By how much those of one object can grow, which is not over the borders of its pages that have
// one copy. 1: they stay.
std::size_t factorOf(const Object& object) {
  return object.pages.empty()
             ? kCoarsenFactor
             : std::min(kCoarsenFactor, object.pages.front()->bytes() / object.blockBytes);
}

}  // namespace

Result<Step> Coarsening::leaveMappings(Lock& lock, std::size_t more) {
  constexpr std::size_t kFewEdges = MappingUse::kFewEdges;
  const std::size_t edges = mappings_.edges();
  if (mappings_.allowsOrFew(more) || (nothingToJoinAt_ && edges < *nothingToJoinAt_ + kFewEdges &&
                                      edges + kFewEdges > *nothingToJoinAt_)) {
    return Step::kDone;
  }
  Object* most = nullptr;
  for (Object& object : index_.all()) {
    if (!object.closing && !object.inTransit() && !object.held() && object.preparing == 0 &&
        !object.spread() && factorOf(object) > 1 &&
        object.edges >= (most == nullptr ? kFewEdges : most->edges + 1) &&
        ledger_.writersDone(object)) {
      most = &object;
    }
  }
  if (most == nullptr) {
    nothingToJoinAt_ = edges;
    return Step::kDone;
  }
  nothingToJoinAt_.reset();
  // What is open in part goes first: those blocks are opened as a whole then.
  const std::size_t before = most->edges;
  GMAC_TRY(blocks_.closeParts(lock, *most));
  if (most->edges < before) {
    return Step::kRetry;
  }
  GMAC_TRY(join(lock, *most));
  return Step::kRetry;
}

Status Coarsening::leaveMappingsForObject(Lock& lock) {
  const std::size_t more = mappings_.ofAnObject();
  for (;;) {
    auto room = leaveMappings(lock, more);
    if (!room.ok()) {
      return room.status();
    }
    if (*room == Step::kDone) {
      break;
    }
  }
  while (!mappings_.allows(more)) {
    if (!closeParts(lock)) {
      break;
    }
  }
  if (mappings_.allows(more)) {
    return {};
  }
  const os::MappingBudget& budget = mappings_.budget();
  return fail(adsmErrorHostMemory,
              "adsmAlloc: {} objects have about {} of this process's {} memory mappings; {} of the "
              "{} that vm.max_map_count allows stay free for the program. Larger objects need no "
              "more mappings than small ones",
              mappings_.objects(), mappings_.total(), budget.estimate(mappings_.total()),
              budget.reserve(), budget.limit());
}

Result<Step> Coarsening::retry(Lock& lock, Status failed) {
  if (!lock.outOfMappings(failed)) {
    return failed;
  }
  GMAC_TRY(coarsen(lock));
  return Step::kRetry;
}

// The kernel's limit of mappings is reached: grows the blocks of the object that has the most of
// them. Where there is none, closes what may be closed.
Status Coarsening::coarsen(Lock& lock) {
  if (freed_.giveBackAll(lock)) {
    return {};  // the caller tries again with the mappings that this has freed
  }
  Object* most = nullptr;
  Object* closes = nullptr;  // where nothing can grow, this one can be closed
  bool later = false;
  const auto has = [](const Object& object) { return std::pair(object.edges, object.blockCount); };
  for (Object& object : index_.all()) {
    if (object.closing || object.held() || object.blockCount == 1 || object.spread()) {
      continue;
    }
    if (factorOf(object) == 1) {
      closes = object.edges != 0 && !object.inTransit() && object.preparing == 0 ? &object : closes;
    } else if (object.preparing > 0 || object.inTransit()) {
      later = true;
    } else if (most == nullptr || has(object) > has(*most)) {
      most = &object;
    }
  }
  if (most == nullptr && later) {
    lock.waitForChange();  // the caller tries again, and comes back here
    return {};
  }
  // (Not again before there is new work: what needs more of it open at a time than there are
  // mappings for would close it for ever.)
  const std::uint64_t work = ledger_.newestWork();
  if (most == nullptr && closes != nullptr &&
      (closes->number != closedLast_ || work != closedAt_)) {
    closedLast_ = closes->number;
    closedAt_ = work;
    accel::Ticket stillOpen;
    return blocks_.close(lock, *closes, closes->all(), Event::kCall, &stillOpen);
  }
  if (most == nullptr && closeParts(lock)) {
    return {};
  }
  if (most == nullptr) {
    return fail(adsmErrorHostMemory,
                "the kernel's limit of memory mappings is reached (vm.max_map_count) and no object "
                "has blocks left to join");
  }
  return join(lock, *most);
}

Status Coarsening::join(Lock& lock, Object& object) {
  GMAC_TRY(blocks_.join(lock, object, factorOf(object)));
  stats().coarsenings.add();
  return {};
}

// Before an allocation or an access fails for want of the mappings that windows and pages take:
// closes those of some objects. What cannot be closed now stays as it is. False: nothing can.
bool Coarsening::closeParts(Lock& lock) {
  const std::size_t edges = mappings_.edges();
  for (Object& object : index_.all()) {
    if (object.edges > 0 && !object.closing && !object.inTransit() && !object.held()) {
      (void)blocks_.closeParts(lock, object);
    }
    if (mappings_.edges() + MappingUse::kFewEdges <= edges) {
      break;
    }
  }
  return mappings_.edges() < edges;
}

}  // namespace gmac
