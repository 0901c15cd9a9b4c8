// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/prepared.h"

#include <algorithm>

#include "gmac/datatype/layout/touched.h"

namespace gmac::datatype {

const std::vector<Bounds>& Prepared::allTouched(std::int64_t gap) const {
  std::call_once(once_, [&] { touched_ = touched(layout_, 0, layout_.bytes(), gap); });
  return touched_;
}

Result<PreparedPtr> PreparedCache::get(const CommittedPtr& type, std::int64_t count) {
  const auto matches = [&](const Entry& entry) {
    return entry.prepared->type() == type.get() && entry.count == count;
  };
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), matches);
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      return entries_.front().prepared;
    }
  }
  PreparedPtr prepared;
  if (count == 1) {
    prepared = std::make_shared<const Prepared>(type);
  } else {
    auto layout = type->layout.repeated(count, type->extent);
    if (!layout.ok()) {
      return layout.status();
    }
    prepared = std::make_shared<const Prepared>(type, std::move(*layout));
  }
  std::list<Entry> dropped;  // destroyed when the lock is free
  const std::lock_guard lock(mutex_);
  entries_.push_front({count, prepared});
  if (entries_.size() > kMax) {
    dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
  }
  return prepared;
}

}  // namespace gmac::datatype
