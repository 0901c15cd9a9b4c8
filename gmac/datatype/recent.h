// SPDX-License-Identifier: Apache-2.0
//
// What a thread has packed lately, so that it need not be worked out again.
#ifndef GMAC_DATATYPE_RECENT_H_
#define GMAC_DATATYPE_RECENT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "gmac/api/adsm_datatype.h"
#include "gmac/base/status.h"
#include "gmac/datatype/operation.h"
#include "gmac/datatype/prepared.h"
#include "gmac/datatype/registry.h"

namespace gmac::datatype {

// What an application asks for. Equal ones ask for the same while no type is freed: a handle never
// stands for another type.
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

// Role: the type and count that a thread has packed last, found again without a lock. For one
// thread, which owns it. Not for the fault handler.
class Latest {
 public:
  // What `type` stands for; errors as of committed().
  Status find(const char* function, adsmType_t type, std::int64_t count) {
    const std::uint64_t freed = freedTypes();
    if (prepared_ != nullptr && type == type_ && count == count_ && freed == freed_) [[likely]] {
      return {};
    }
    return findAnew(function, type, count, freed);
  }
  // Of what find() has found; stays until the next find(). adsmErrorInvalidValue as of the cache.
  Result<const Prepared*> prepared(PreparedCache& cache);

 private:
  Status findAnew(const char* function, adsmType_t type, std::int64_t count, std::uint64_t freed);

  adsmType_t type_ = nullptr;
  std::int64_t count_ = 0;
  std::uint64_t freed_ = 0;
  CommittedPtr form_;
  const PreparedCache* cache_ = nullptr;
  PreparedPtr prepared_;
};

// Role: what was launched for a request, for the next one that is equal. For one thread, whose
// Recent owns it. Not for the fault handler.
class Repeat {
 public:
  // Whether that is known.
  bool answers(const Request& request) const noexcept {
    return kept_.kept && request == request_ && freed_ == freedTypes();
  }
  const KeptLaunch& kept() const noexcept { return kept_; }

  // From now on of this request, which an engine does next, leaving what it keeps there.
  // `freed`: freedTypes() before its type was looked up.
  KeptLaunch& replace(const Request& request, std::uint64_t freed) noexcept {
    request_ = request;
    freed_ = freed;
    kept_.kept = false;
    return kept_;
  }

 private:
  Request request_;
  std::uint64_t freed_;
  KeptLaunch kept_;
};

// Role: all of that. One for each thread; not thread-safe; not for the fault handler.
class Recent {
 public:
  // The calling thread's; also while it ends.
  static Recent& mine() {
    if (Recent* const made = ofThread; made != nullptr) [[likely]] {
      return *made;
    }
    return make();
  }

  Latest& latest() { return latest_; }
  // What Engine::again() takes for the request; nullptr: nothing is known.
  const KeptLaunch* find(const Request& request) const noexcept {
    const Repeat* const known = repeats_[numberOf(request)].get();
    return known != nullptr && known->answers(request) ? &known->kept() : nullptr;
  }
  // Where the answer to a request belongs, in place of another's: of what is asked for in turns,
  // most have places of their own.
  Repeat& placeOf(const Request& request) {
    std::unique_ptr<Repeat>& place = repeats_[numberOf(request)];
    if (place == nullptr) [[unlikely]] {
      place = std::make_unique<Repeat>();
    }
    return *place;
  }

 private:
  static constexpr unsigned kPlaceBits = 6;
  static std::size_t numberOf(const Request& request) noexcept {
    // The upper bits of a product depend on all bits of its factors (Knuth, volume 3, 6.4).
    const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    const std::uint64_t mixed =
        address(request.target) + 3 * address(request.source) + 5 * address(request.type);
    return mixed * 0x9e3779b97f4a7c15U >> (64 - kPlaceBits);
  }
  static Recent& make();

  // The initial-exec model, and constinit, so that it is found without a call.
  static __attribute__((tls_model("initial-exec"))) thread_local constinit Recent* ofThread;

  Latest latest_;
  std::array<std::unique_ptr<Repeat>, std::size_t{1} << kPlaceBits> repeats_;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_RECENT_H_
