// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/recent.h"

#include <pthread.h>

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
  // Keys' destructors come behind those of the thread's variables, and once more for what they make
  // anew: whatever packs while the thread ends finds one, and none is left. (The main thread's
  // stays to the end of the process.)
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    const int failed = pthread_key_create(&made, [](void* recent) {
      ofThread = nullptr;
      delete static_cast<Recent*>(recent);
    });
    return failed == 0 ? made : ~pthread_key_t{0};
  }();
  ofThread = new Recent;
  // Without a key a thread's is not given back.
  (void)pthread_setspecific(key, ofThread);
  return *ofThread;
}

}  // namespace gmac::datatype
