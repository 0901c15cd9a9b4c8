// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/recent.h"

#include <utility>

namespace gmac::datatype {

Status Latest::findAnew(const char* function, adsmType_t type, std::int64_t count,
                        std::uint64_t freed) {
  auto found = committed(type, function);
  if (!found.ok()) {
    return found.status();
  }
  form_ = std::move(*found);
  prepared_ = nullptr;
  type_ = type;
  count_ = count;
  freed_ = freed;
  return {};
}

Result<const Prepared*> Latest::prepared(PreparedCache& cache) {
  if (prepared_ == nullptr || cache_ != &cache) [[unlikely]] {
    auto made = cache.get(form_, count_);
    if (!made.ok()) {
      return made.status();
    }
    prepared_ = std::move(*made);
    cache_ = &cache;
  }
  return prepared_.get();
}

thread_local constinit Recent* Recent::ofThread = nullptr;

Recent& Recent::make() {
  struct Owner {
    ~Owner() { delete std::exchange(ofThread, nullptr); }
  };
  ofThread = new Recent;
  // Constructed once: what destructors of the thread, or exit handlers, pack behind its end gets
  // one that stays.
  thread_local const Owner owner;
  return *ofThread;
}

}  // namespace gmac::datatype
