// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/splitting.h"

#include <algorithm>

#include "gmac/accel/devices.h"
#include "gmac/coherence/ledger.h"

namespace gmac {

using Advice = SplitPolicy::Advice;

bool Splitting::mayChange(const Object& object) const {
  if (!object.open.empty() || object.inTransit() || object.held() || object.closing ||
      object.preparing > 0 || object.spread() || object.isZeroCopy() || object.whole != nullptr ||
      !object.lent.empty() || object.protectionIsStale()) {
    return false;
  }
  // (Bytes are gathered from other devices by blocks.)
  const accel::Devices* const devices = accelerator_.devices();
  if (devices != nullptr && !devices->reachEachOther() && !ledger_.writersDone(object)) {
    return false;
  }
  const NewestCalls flushes = blocks_.flushesOf(object, object.all());
  return std::all_of(flushes.begin(), flushes.end(),
                     [this](accel::Ticket flush) { return accelerator_.done(flush); });
}

void Splitting::afterWait() {
  Blocks::SplitList& objects = blocks_.toSplit();
  while (!objects.empty()) {
    Object& object = objects.front();
    const Advice advice = object.split.advice();
    object.splitHook.unlink();  // the next evidence links it again
    if (advice == Advice::kStay || !mayChange(object)) {
      continue;
    }
    if (advice == Advice::kSplit) {
      blocks_.split(object);
      continue;
    }
    // (Pages that are objects of their own end at borders of blocks.)
    const std::size_t before = object.split.before();
    if (object.pages.empty() || object.pages.front()->bytes() % before == 0) {
      blocks_.unsplit(object);
    }
  }
  blocks_.noteReadBacks();
}

}  // namespace gmac
