// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/launch_cache.h"

#include <pthread.h>

#include <utility>

namespace gmac::datatype {

Status LastType::lookUp(const char* function, adsmType_t type, std::int64_t count,
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

Result<const Prepared*> LastType::prepared(PreparedCache& cache) {
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

thread_local constinit LaunchCache* LaunchCache::current = nullptr;

LaunchCache& LaunchCache::make() {
  // A key's destructor runs after those of the thread's variables, and once more for a cache that
  // is made anew meanwhile: a thread may pack while it ends, and leaks nothing. (The main thread's
  // cache stays until the process ends.)
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    const int failed = pthread_key_create(&made, [](void* cache) {
      current = nullptr;
      delete static_cast<LaunchCache*>(cache);
    });
    return failed == 0 ? made : ~pthread_key_t{0};
  }();
  current = new LaunchCache;
  // Without a key the thread's cache is not freed.
  (void)pthread_setspecific(key, current);
  return *current;
}

}  // namespace gmac::datatype
