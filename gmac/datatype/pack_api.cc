// SPDX-License-Identifier: Apache-2.0
//
// The functions of adsm_datatype.h that pack and unpack: they check arguments and hand over to the
// engine.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "gmac/adsm_datatype.h"
#include "gmac/coherence.h"
#include "gmac/datatype/engine.h"
#include "gmac/datatype/registry.h"
#include "gmac/guarded.h"

// What adsmPackWait() takes: the ticket of an operation under way.
struct adsmPackEvent_s {
  gmac::accel::Ticket ticket;
};

namespace {

using gmac::fail;
using gmac::guarded;
using gmac::Result;
using gmac::Status;
using namespace gmac::datatype;

constexpr const char* kMethodNames[] = {"any", "kernel", "copy2d", "copy", "staged", "cpu"};

// Whether the process may have memory that is not the CPU's alone.
bool devicesInUse() {
  static std::atomic<bool> seen{false};
  if (seen.load(std::memory_order_relaxed)) {
    return true;
  }
  if (!gmac::coherence::anythingShared()) {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) {
      return false;
    }
    ::dlclose(driver);
  }
  seen = true;
  return true;
}

PreparedCache& cpuCache() {
  static auto* const cache = new PreparedCache;  // also for exit handlers
  return *cache;
}

// Role: what a thread has packed last, which it finds again without a lock: a handle never stands
// for another type, so it is right while no type has been freed. One for each thread.
class Latest {
 public:
  // What `type` stands for; errors as of committed().
  Status find(const char* function, adsmType_t type, std::int64_t count) {
    const std::uint64_t freed = freedTypes();
    if (prepared_ != nullptr && type == type_ && count == count_ && freed == freed_) [[likely]] {
      return {};
    }
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
  // Of what find() has found; stays until the next find(). adsmErrorInvalidValue as of the cache.
  Result<const Prepared*> prepared(PreparedCache& cache) {
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

 private:
  adsmType_t type_ = nullptr;
  std::int64_t count_ = 0;
  std::uint64_t freed_ = 0;
  CommittedPtr form_;
  const PreparedCache* cache_ = nullptr;
  PreparedPtr prepared_;
};

Status checkOptions(const char* function, const adsmPackOptions_t& options) {
  if (options.size != sizeof options) {
    return fail(adsmErrorInvalidValue,
                "{}: options.size is {}; it is sizeof(adsmPackOptions_t), {}", function,
                options.size, sizeof options);
  }
  if (options.method < adsmMethodAny || options.method > adsmMethodCpu) {
    return fail(adsmErrorInvalidValue, "{}: options.method is {}; allowed are {} (any) to {} (cpu)",
                function, static_cast<int>(options.method), static_cast<int>(adsmMethodAny),
                static_cast<int>(adsmMethodCpu));
  }
  if (options.blocks < 0) {
    return fail(adsmErrorInvalidValue, "{}: options.blocks is {}; 0 (no limit) or more is allowed",
                function, options.blocks);
  }
  return {};
}

// The part that the options name; 0 bytes: nothing to do.
Status takePart(const char* function, const adsmPackOptions_t* options, std::int64_t whole,
                Operation* operation) {
  operation->bytes = whole;
  if (options == nullptr) {
    return {};
  }
  if (options->offset < 0 || options->offset > whole) {
    return fail(adsmErrorInvalidValue,
                "{}: options.offset is {}; allowed are 0 to {}, the packed bytes", function,
                options->offset, whole);
  }
  operation->offset = options->offset;
  operation->bytes = whole - options->offset;
  if (options->bytes != 0) {
    if (options->bytes < 0 || options->bytes > operation->bytes) {
      return fail(adsmErrorInvalidValue,
                  "{}: options.bytes is {}; allowed are 1 to {}, what follows offset {}, and 0 for "
                  "all of it",
                  function, options->bytes, operation->bytes, options->offset);
    }
    operation->bytes = options->bytes;
  }
  return {};
}

bool overlap(const Operation& operation) {
  const std::byte* const first = operation.strided + operation.bounds.first;
  const std::byte* const last = operation.strided + operation.bounds.last;
  return operation.packed < last && first < operation.packed + operation.bytes;
}

adsmError_t run(const char* function, Direction direction, void* target, const void* source,
                std::int64_t count, adsmType_t type, const adsmPackOptions_t* options) {
  return guarded(function, [&]() -> Status {
    if (count < 0) {
      return fail(adsmErrorInvalidValue, "{}: count is {}; 0 or more is allowed", function, count);
    }
    thread_local Latest latest;
    GMAC_TRY(latest.find(function, type, count));
    if (options != nullptr) {
      GMAC_TRY(checkOptions(function, *options));
    }
    const bool alone = !devicesInUse();
    Engine* engine = nullptr;
    if (!alone) {
      auto made = Engine::get();
      if (!made.ok()) {
        return made.status();
      }
      engine = *made;
    }
    auto prepared = latest.prepared(alone ? cpuCache() : engine->prepared());
    if (!prepared.ok()) {
      return prepared.status();
    }
    Operation operation;
    operation.direction = direction;
    operation.prepared = *prepared;
    GMAC_TRY(takePart(function, options, operation.layout().bytes(), &operation));
    Outcome outcome;
    if (operation.bytes > 0) {
      if (target == nullptr || source == nullptr) {
        return fail(adsmErrorInvalidValue, "{}: {} is NULL, and {} bytes are to be moved", function,
                    target == nullptr ? "target" : "source", operation.bytes);
      }
      const bool pack = direction == Direction::kPack;
      operation.strided = static_cast<std::byte*>(pack ? const_cast<void*>(source) : target);
      operation.packed = static_cast<std::byte*>(pack ? target : const_cast<void*>(source));
      operation.bounds = operation.layout().boundsOf(operation.offset, operation.bytes);
      if (overlap(operation)) {
        return fail(adsmErrorInvalidValue, "{}: target {} and source {} overlap", function, target,
                    source);
      }
      if (options != nullptr) {
        operation.method = options->method;
        operation.blocks = static_cast<std::uint32_t>(options->blocks);
        if (options->stream != nullptr) {
          operation.stream =
              gmac::accel::NativeStream{reinterpret_cast<std::uintptr_t>(options->stream)};
        }
        operation.wait = options->event == nullptr;
      }
      if (alone && (operation.stream ||
                    (operation.method != adsmMethodAny && operation.method != adsmMethodCpu))) {
        return fail(adsmErrorNotSupported,
                    "{}: {}: no device is in use, {} and {} are the CPU's memory", function,
                    operation.stream ? "options.stream" : adsmMethodName(operation.method), target,
                    source);
      }
      if (alone) {
        outcome = runOnCpu(operation);
      } else {
        auto ran = engine->run(operation);
        if (!ran.ok()) {
          return ran.status();
        }
        outcome = *ran;
      }
    }
    if (options != nullptr && options->report != nullptr) {
      *options->report = outcome.report;
    }
    if (options != nullptr && options->event != nullptr) {
      *options->event = new adsmPackEvent_s{outcome.ticket};
    }
    return {};
  });
}

}  // namespace

extern "C" {

const char* adsmMethodName(adsmMethod_t method) {
  const auto index = static_cast<std::size_t>(method);
  return index < std::size(kMethodNames) ? kMethodNames[index] : "unknown";
}

adsmError_t adsmPack(void* target, const void* source, int64_t count, adsmType_t type) {
  return run("adsmPack", Direction::kPack, target, source, count, type, nullptr);
}

adsmError_t adsmUnpack(void* target, const void* source, int64_t count, adsmType_t type) {
  return run("adsmUnpack", Direction::kUnpack, target, source, count, type, nullptr);
}

adsmError_t adsmPackWith(void* target, const void* source, int64_t count, adsmType_t type,
                         const adsmPackOptions_t* options) {
  return run("adsmPackWith", Direction::kPack, target, source, count, type, options);
}

adsmError_t adsmUnpackWith(void* target, const void* source, int64_t count, adsmType_t type,
                           const adsmPackOptions_t* options) {
  return run("adsmUnpackWith", Direction::kUnpack, target, source, count, type, options);
}

int adsmPackDone(adsmPackEvent_t event) {
  if (event == nullptr || event->ticket.value == 0) {
    return 1;
  }
  auto accelerator = gmac::coherence::accelerator();
  return !accelerator.ok() || (*accelerator)->done(event->ticket) ? 1 : 0;
}

adsmError_t adsmPackWait(adsmPackEvent_t event) {
  return guarded("adsmPackWait", [&]() -> Status {
    if (event == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmPackWait: event is NULL");
    }
    const std::unique_ptr<adsmPackEvent_s> owned(event);
    if (owned->ticket.value == 0) {
      return {};
    }
    auto accelerator = gmac::coherence::accelerator();
    return accelerator.ok() ? (*accelerator)->wait(owned->ticket) : accelerator.status();
  });
}

}  // extern "C"
