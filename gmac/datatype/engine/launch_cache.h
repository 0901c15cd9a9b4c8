// SPDX-License-Identifier: Apache-2.0
//
// A cache of each thread's last launches, by the arguments of the call.
#ifndef GMAC_DATATYPE_ENGINE_LAUNCH_CACHE_H_
#define GMAC_DATATYPE_ENGINE_LAUNCH_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "gmac/api/adsm_datatype.h"
#include "gmac/base/status.h"
#include "gmac/datatype/engine/operation.h"
#include "gmac/datatype/engine/prepared.h"
#include "gmac/datatype/types/registry.h"

namespace gmac::datatype {

// The arguments of a pack or unpack. Equal requests mean the same operation until a type is freed:
// a handle is never used for a second type.
struct Request {
  Direction direction;
  void* target;
  const void* source;
  std::int64_t count;
  adsmType_t type;
  // Of the options.
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  adsmMethod_t method = adsmMethodAny;
  int blocks = 0;
  void* stream = nullptr;

  friend bool operator==(const Request&, const Request&) = default;
};

// The type and count that a thread packed last, so that the next look-up takes no lock. Not
// thread-safe; owned by one thread's LaunchCache. Not for the fault handler.
class LastType {
 public:
  // Looks the type up, or finds it here. Errors as of committed().
  Status find(const char* function, adsmType_t type, std::int64_t count) {
    const std::uint64_t freed = freedTypes();
    if (prepared_ != nullptr && type == type_ && count == count_ && freed == freed_) [[likely]] {
      return {};
    }
    return lookUp(function, type, count, freed);
  }
  // The layout and plan of what find() has found; valid until the next find().
  // adsmErrorInvalidValue as of PreparedCache::get().
  Result<const Prepared*> prepared(PreparedCache& cache);

 private:
  Status lookUp(const char* function, adsmType_t type, std::int64_t count, std::uint64_t freed);

  adsmType_t type_ = nullptr;
  std::int64_t count_ = 0;
  std::uint64_t freed_ = 0;
  CommittedPtr form_;
  const PreparedCache* cache_ = nullptr;
  PreparedPtr prepared_;
};

// Per-thread cache of recent launches, direct-mapped. Not thread-safe; not for the fault handler.
class LaunchCache {
 public:
  class Entry {
   public:
    // True if `request` hits this entry.
    bool hits(const Request& request) const noexcept {
      return launch_.valid && request == request_ && freed_ == freedTypes();
    }
    const CachedLaunch& launch() const noexcept { return launch_; }
    // Evicts the old launch; Engine::run() of the request fills in the result. `freed`:
    // freedTypes() before the request's type was looked up.
    CachedLaunch& replace(const Request& request, std::uint64_t freed) noexcept {
      request_ = request;
      freed_ = freed;
      launch_.valid = false;
      return launch_;
    }

   private:
    Request request_;
    std::uint64_t freed_;
    CachedLaunch launch_;
  };

  // The calling thread's; also while the thread ends.
  static LaunchCache& ofThread() {
    if (LaunchCache* const made = current; made != nullptr) [[likely]] {
      return *made;
    }
    return make();
  }

  LastType& lastType() { return lastType_; }
  // The launch to give to Engine::relaunch(); nullptr: a miss.
  const CachedLaunch* find(const Request& request) const noexcept {
    const Entry* const entry = entries_[hash(request)].get();
    return entry != nullptr && entry->hits(request) ? &entry->launch() : nullptr;
  }
  // The slot that the request maps to.
  Entry& slot(const Request& request) {
    std::unique_ptr<Entry>& entry = entries_[hash(request)];
    if (entry == nullptr) [[unlikely]] {
      entry = std::make_unique<Entry>();
    }
    return *entry;
  }

 private:
  static constexpr unsigned kSlotBits = 6;
  static std::size_t hash(const Request& request) noexcept {
    // The upper bits of a product depend on all bits of its factors (Knuth, volume 3, 6.4).
    const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    const std::uint64_t mixed =
        address(request.target) + 3 * address(request.source) + 5 * address(request.type);
    return mixed * 0x9e3779b97f4a7c15U >> (64 - kSlotBits);
  }
  static LaunchCache& make();

  // The initial-exec model, and constinit, so that no call is needed to find it.
  static __attribute__((tls_model("initial-exec"))) thread_local constinit LaunchCache* current;

  LastType lastType_;
  std::array<std::unique_ptr<Entry>, std::size_t{1} << kSlotBits> entries_;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_LAUNCH_CACHE_H_
