// SPDX-License-Identifier: Apache-2.0
//
// Layout and plan of a type and a count, made once and cached.
#ifndef GMAC_DATATYPE_ENGINE_PREPARED_H_
#define GMAC_DATATYPE_ENGINE_PREPARED_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gmac/base/status.h"
#include "gmac/datatype/layout/layout.h"
#include "gmac/datatype/plan/device_plan.h"
#include "gmac/datatype/types/type.h"

namespace gmac::datatype {

// The layout of `count` elements of a type, and what engines derive from it. Thread-safe;
// shared by the cache and by operations under way.
class Prepared {
 public:
  // One element: the type's own layout.
  explicit Prepared(CommittedPtr type)
      : type_(std::move(type)), layout_(type_->layout), plan_(layout_) {}
  Prepared(CommittedPtr type, Layout repeated)
      : type_(std::move(type)),
        repeated_(std::move(repeated)),
        layout_(repeated_),
        plan_(layout_) {}
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  const Committed* type() const { return type_.get(); }
  const Layout& layout() const { return layout_; }
  const DevicePlan& plan() const { return plan_; }
  // touched() of the whole layout; computed once, for the first caller's gap.
  const std::vector<Bounds>& allTouched(std::int64_t gap) const;

 private:
  const CommittedPtr type_;
  const Layout repeated_;
  const Layout& layout_;
  const DevicePlan plan_;
  mutable std::once_flag once_;
  mutable std::vector<Bounds> touched_;
};
using PreparedPtr = std::shared_ptr<const Prepared>;

// A cache of the most recent ones. Thread-safe; owned by the engine.
class PreparedCache {
 public:
  // adsmErrorInvalidValue when `count` elements leave 63 bits.
  Result<PreparedPtr> get(const CommittedPtr& type, std::int64_t count);

 private:
  static constexpr std::size_t kMax = 64;
  struct Entry {
    std::int64_t count;
    PreparedPtr prepared;
  };

  std::mutex mutex_;
  std::list<Entry> entries_;  // the newest first
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_PREPARED_H_
