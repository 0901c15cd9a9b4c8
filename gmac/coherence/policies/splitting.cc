// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/splitting.h"

namespace gmac {

using Advice = SplitPolicy::Advice;

// (Parts of an object that are objects of their own end at borders of its blocks.)
bool Splitting::mayChange(const Object& object) const {
  return object.open.empty() && !object.inTransit() && !object.held() && !object.closing &&
         object.preparing == 0 && !object.spread() && !object.isZeroCopy() &&
         object.pages.empty() && object.whole == nullptr && object.lent.empty() &&
         !object.protectionIsStale() && accelerator_.done(object.flushed());
}

void Splitting::afterWait(Lock& lock) {
  Blocks::SplitList& objects = blocks_.toSplit();
  for (auto next = objects.begin(); next != objects.end();) {
    Object& object = *next;
    ++next;
    const Advice advice = object.split.advice();
    if (advice != Advice::kStay && !mayChange(object)) {
      continue;
    }
    object.splitHook.unlink();
    if (advice == Advice::kSplit) {
      blocks_.split(object);
    } else if (advice == Advice::kJoin) {
      (void)blocks_.join(lock, object, object.split.before() / object.blockBytes);
      next = objects.begin();  // the lock may have been free
    }
  }
}

}  // namespace gmac
