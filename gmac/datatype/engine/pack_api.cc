// SPDX-License-Identifier: Apache-2.0
//
// The functions of adsm_datatype.h that pack, unpack and transfer: they check arguments and call
// the engine.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "gmac/api/adsm_datatype.h"
#include "gmac/base/api_call.h"
#include "gmac/base/cancellation.h"
#include "gmac/base/handles.h"
#include "gmac/base/loaded_library.h"
#include "gmac/coherence/work_port.h"
#include "gmac/datatype/engine/cpu_may_use.h"
#include "gmac/datatype/engine/engine.h"
#include "gmac/datatype/engine/launch_cache.h"
#include "gmac/datatype/layout/touched.h"
#include "gmac/datatype/types/registry.h"

namespace {

using gmac::fail;
using gmac::Result;
using gmac::Status;
using gmac::api::guarded;
using namespace gmac::datatype;

// The ticket of the operation under way that an adsmPackEvent_t stands for.
gmac::HandleTable<gmac::accel::Ticket>& events() {
  return gmac::HandleTable<gmac::accel::Ticket>::instance();
}

// When the library is loaded: a child of a fork in the middle of that would wait for ever.
[[gnu::constructor]] void makeEvents() { (void)events(); }

Status noEvent(const char* function, adsmPackEvent_t event) {
  return event == nullptr ? fail(adsmErrorInvalidValue, "{}: event is NULL", function)
                          : fail(adsmErrorInvalidValue,
                                 "{}: event is {}, which is no event, or has been waited for",
                                 function, static_cast<const void*>(event));
}

constexpr const char* kMethodNames[] = {"any", "kernel", "copy2d", "copy", "staged", "cpu"};

// True if the process may have memory that a device accesses.
bool devicesInUse() {
  static std::atomic<bool> seen{false};
  if (seen.load(std::memory_order_relaxed)) {
    return true;
  }
  static constinit gmac::LoadedLibrary driver("libcuda.so.1");
  if (!gmac::coherence::anythingShared() && driver.find() == nullptr) {
    return false;
  }
  seen = true;
  return true;
}

PreparedCache& cpuCache() {
  static auto* const cache = new PreparedCache;  // also for exit handlers
  return *cache;
}

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

// Fills in the part that the options name; 0 bytes: nothing to do.
template <typename AnyOperation>
Status takePart(const char* function, const adsmPackOptions_t* options, std::int64_t whole,
                AnyOperation* operation) {
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

// Whether the part of the layout at `base`, whose bytes lie within `bounds`, has one in the range.
// Others may lie in its gaps: a type of several allocations spans whatever is between them.
bool covers(const Layout& layout, std::int64_t offset, std::int64_t bytes, const std::byte* base,
            Bounds bounds, const std::byte* first, std::int64_t length) {
  return first < base + bounds.last && base + bounds.first < first + length &&
         touches(layout, offset, bytes, {first - base, first - base + length});
}

bool overlap(const Operation& operation) {
  return covers(operation.layout(), operation.offset, operation.bytes, operation.strided,
                operation.bounds, operation.packed, operation.bytes);
}

// Each side has bytes between the first and the last of the other.
bool overlap(const Transfer& transfer) {
  const auto reaches = [&](const Transfer::Side& side, const Transfer::Side& other) {
    return covers(side.layout(), transfer.offset, transfer.bytes, side.base, side.bounds,
                  other.first(), other.span());
  };
  return reaches(transfer.target, transfer.source) && reaches(transfer.source, transfer.target);
}

// Whether the CPU can copy at once: it may use the strided bytes as they are, and the packed ones
// are its own memory.
bool cpuHasAll(const Operation& operation, const gmac::accel::Accelerator& accelerator) {
  const auto span = static_cast<std::size_t>(operation.bounds.last - operation.bounds.first);
  return span <= kMostUnheldBytes && !operation.stream && operation.method == adsmMethodAny &&
         !gmac::coherence::mayBeShared(operation.packed,
                                       static_cast<std::size_t>(operation.bytes)) &&
         cpuMayUse(operation.strided + operation.bounds.first, span, !operation.packs()) &&
         accelerator.memoryOf(operation.packed) != gmac::accel::Memory::kDevice;
}

void answer(const adsmPackOptions_t* options, const adsmPackReport_t& report,
            gmac::accel::Ticket ticket) {
  if (options == nullptr) {
    return;
  }
  if (options->report != nullptr) {
    *options->report = report;
  }
  if (options->event != nullptr) {
    *options->event = static_cast<adsmPackEvent_t>(events().add(ticket));
  }
}

std::optional<gmac::accel::NativeStream> streamOf(const Request& request) {
  if (request.stream == nullptr) {
    return std::nullopt;
  }
  return gmac::accel::NativeStream{reinterpret_cast<std::uintptr_t>(request.stream)};
}

// NULL: no device is in use, and the CPU works alone.
Result<Engine*> engineInUse() { return devicesInUse() ? Engine::get() : Result<Engine*>(nullptr); }

// Slow path: the thread's launch cache missed.
[[gnu::noinline]] Status runUncached(const char* function, const Request& request,
                                     const adsmPackOptions_t* options, LaunchCache& cache) {
  if (request.count < 0) {
    return fail(adsmErrorInvalidValue, "{}: count is {}; 0 or more is allowed", function,
                request.count);
  }
  const std::uint64_t freed = freedTypes();
  GMAC_TRY(cache.lastType().find(function, request.type, request.count));
  if (options != nullptr) {
    GMAC_TRY(checkOptions(function, *options));
  }
  const Result<Engine*> inUse = engineInUse();
  GMAC_TRY(inUse.status());
  Engine* const engine = *inUse;
  const bool alone = engine == nullptr;
  auto prepared = cache.lastType().prepared(alone ? cpuCache() : engine->prepared());
  if (!prepared.ok()) {
    return prepared.status();
  }
  const auto stream = streamOf(request);
  if (stream && engine != nullptr) {
    GMAC_TRY(engine->device().checkStream(*stream));
  }
  Operation operation;
  operation.direction = request.direction;
  operation.prepared = *prepared;
  GMAC_TRY(takePart(function, options, operation.layout().bytes(), &operation));
  Outcome outcome;
  if (operation.bytes > 0) {
    void* const target = request.target;
    const void* const source = request.source;
    if (target == nullptr || source == nullptr) {
      return fail(adsmErrorInvalidValue, "{}: {} is NULL, and {} bytes are to be moved", function,
                  target == nullptr ? "target" : "source", operation.bytes);
    }
    const bool pack = request.direction == Direction::kPack;
    operation.strided = static_cast<std::byte*>(pack ? const_cast<void*>(source) : target);
    operation.packed = static_cast<std::byte*>(pack ? target : const_cast<void*>(source));
    operation.bounds = operation.layout().boundsOf(operation.offset, operation.bytes);
    if (overlap(operation)) {
      return fail(adsmErrorInvalidValue, "{}: target {} and source {} overlap", function, target,
                  source);
    }
    operation.method = request.method;
    operation.blocks = static_cast<std::uint32_t>(request.blocks);
    operation.stream = stream;
    operation.wait = options == nullptr || options->event == nullptr;
    if (alone && (operation.stream ||
                  (operation.method != adsmMethodAny && operation.method != adsmMethodCpu))) {
      return fail(adsmErrorNotSupported,
                  "{}: {}: no device is in use, {} and {} are the CPU's memory", function,
                  operation.stream ? "options.stream" : adsmMethodName(operation.method), target,
                  source);
    }
    if (alone || cpuHasAll(operation, engine->device().accelerator())) {
      outcome = runOnCpu(operation);
    } else {
      auto ran = engine->run(operation, cache.slot(request).replace(request, freed));
      if (!ran.ok()) {
        return ran.status();
      }
      outcome = *ran;
    }
  }
  answer(options, outcome.report, outcome.ticket);
  return {};
}

// A function of the API.
struct Function {
  const char* name;
  Direction direction;
};
constexpr Function kPack{"adsmPack", Direction::kPack};
constexpr Function kUnpack{"adsmUnpack", Direction::kUnpack};
constexpr Function kPackWith{"adsmPackWith", Direction::kPack};
constexpr Function kUnpackWith{"adsmUnpackWith", Direction::kUnpack};

// (Not inlined into four functions; its arguments fit into registers.)
[[gnu::noinline]] adsmError_t run(const Function& function, void* target, const void* source,
                                  std::int64_t count, adsmType_t type,
                                  const adsmPackOptions_t* options) {
  return guarded(function.name, [&]() -> Status {
    Request request{function.direction, target, source, count, type};
    bool plain = options == nullptr;
    if (options != nullptr && options->size == sizeof *options) {
      request.offset = options->offset;
      request.bytes = options->bytes;
      request.method = options->method;
      request.blocks = options->blocks;
      request.stream = options->stream;
      // An operation with an event on a stream must record it each time.
      plain = options->event == nullptr || options->stream == nullptr;
    }
    LaunchCache& cache = LaunchCache::ofThread();
    Engine* const engine = Engine::current();
    const CachedLaunch* const cached = plain && engine != nullptr ? cache.find(request) : nullptr;
    if (cached != nullptr) [[likely]] {
      gmac::accel::Ticket ticket;
      auto done = engine->relaunch(*cached, streamOf(request), &ticket);
      if (!done.ok()) [[unlikely]] {
        return done.status();
      }
      if (*done) [[likely]] {
        answer(options, cached->report, ticket);
        return {};
      }
    }
    return runUncached(function.name, request, options, cache);
  });
}

// One side of a transfer, with its type and count looked up. `kept` outlives it.
Status prepareSide(const char* function, const char* typeName, const char* countName,
                   adsmType_t type, std::int64_t count, PreparedCache& cache, PreparedPtr* kept,
                   Transfer::Side* side) {
  if (count < 0) {
    return fail(adsmErrorInvalidValue, "{}: {} is {}; 0 or more is allowed", function, countName,
                count);
  }
  auto form = committed(type, function, typeName);
  if (!form.ok()) {
    return form.status();
  }
  auto prepared = cache.get(*form, count);
  if (!prepared.ok()) {
    return prepared.status();
  }
  *kept = std::move(*prepared);
  side->prepared = kept->get();
  return {};
}

struct TransferRequest {
  void* target;
  std::int64_t targetCount;
  adsmType_t targetType;
  const void* source;
  std::int64_t sourceCount;
  adsmType_t sourceType;
};

Status transferBytes(const char* function, const TransferRequest& request,
                     const adsmPackOptions_t* options) {
  if (options != nullptr) {
    GMAC_TRY(checkOptions(function, *options));
  }
  const Result<Engine*> inUse = engineInUse();
  GMAC_TRY(inUse.status());
  Engine* const engine = *inUse;
  const bool alone = engine == nullptr;
  PreparedCache& cache = alone ? cpuCache() : engine->prepared();
  PreparedPtr targetKept;
  PreparedPtr sourceKept;
  Transfer transfer;
  transfer.function = function;
  GMAC_TRY(prepareSide(function, "targetType", "targetCount", request.targetType,
                       request.targetCount, cache, &targetKept, &transfer.target));
  GMAC_TRY(prepareSide(function, "sourceType", "sourceCount", request.sourceType,
                       request.sourceCount, cache, &sourceKept, &transfer.source));
  const std::int64_t there = transfer.target.layout().bytes();
  const std::int64_t here = transfer.source.layout().bytes();
  if (there != here && (options == nullptr || options->bytes == 0)) {
    return fail(adsmErrorInvalidValue,
                "{}: {} elements of targetType have {} bytes, and {} of sourceType have {}; both "
                "must have the same where options.bytes does not say how many",
                function, request.targetCount, there, request.sourceCount, here);
  }
  if (options != nullptr) {
    transfer.method = options->method;
    transfer.blocks = static_cast<std::uint32_t>(options->blocks);
    transfer.wait = options->event == nullptr;
    if (options->stream != nullptr) {
      transfer.stream =
          gmac::accel::NativeStream{reinterpret_cast<std::uintptr_t>(options->stream)};
      if (engine != nullptr) {
        GMAC_TRY(engine->device().checkStream(*transfer.stream));
      }
    }
  }
  GMAC_TRY(takePart(function, options, std::min(there, here), &transfer));
  Outcome outcome;
  if (transfer.bytes > 0) {
    if (request.target == nullptr || request.source == nullptr) {
      return fail(adsmErrorInvalidValue, "{}: {} is NULL, and {} bytes are to be moved", function,
                  request.target == nullptr ? "target" : "source", transfer.bytes);
    }
    const auto place = [&](Transfer::Side& side, const void* base) {
      side.base = static_cast<std::byte*>(const_cast<void*>(base));
      side.bounds = side.layout().boundsOf(transfer.offset, transfer.bytes);
    };
    place(transfer.target, request.target);
    place(transfer.source, request.source);
    if (overlap(transfer)) {
      return fail(adsmErrorInvalidValue,
                  "{}: target {} and source {} overlap: each has bytes between the first and the "
                  "last of the other",
                  function, request.target, request.source);
    }
    if (alone && (transfer.stream ||
                  (transfer.method != adsmMethodAny && transfer.method != adsmMethodCpu))) {
      return fail(adsmErrorNotSupported,
                  "{}: {}: no device is in use, {} and {} are the CPU's memory", function,
                  transfer.stream ? "options.stream" : adsmMethodName(transfer.method),
                  request.target, request.source);
    }
    if (alone) {
      outcome = transferOnCpu(transfer);
    } else {
      auto ran = engine->transfer(transfer);
      if (!ran.ok()) {
        return ran.status();
      }
      outcome = *ran;
    }
  }
  answer(options, outcome.report, outcome.ticket);
  return {};
}

}  // namespace

extern "C" {

const char* adsmMethodName(adsmMethod_t method) {
  const auto index = static_cast<std::size_t>(method);
  return index < std::size(kMethodNames) ? kMethodNames[index] : "unknown";
}

adsmError_t adsmPack(void* target, const void* source, int64_t count, adsmType_t type) {
  return run(kPack, target, source, count, type, nullptr);
}

adsmError_t adsmUnpack(void* target, const void* source, int64_t count, adsmType_t type) {
  return run(kUnpack, target, source, count, type, nullptr);
}

adsmError_t adsmPackWith(void* target, const void* source, int64_t count, adsmType_t type,
                         const adsmPackOptions_t* options) {
  return run(kPackWith, target, source, count, type, options);
}

adsmError_t adsmUnpackWith(void* target, const void* source, int64_t count, adsmType_t type,
                           const adsmPackOptions_t* options) {
  return run(kUnpackWith, target, source, count, type, options);
}

adsmError_t adsmTransfer(void* target, int64_t targetCount, adsmType_t targetType,
                         const void* source, int64_t sourceCount, adsmType_t sourceType) {
  return guarded("adsmTransfer", [&] {
    return transferBytes("adsmTransfer",
                         {target, targetCount, targetType, source, sourceCount, sourceType},
                         nullptr);
  });
}

adsmError_t adsmTransferWith(void* target, int64_t targetCount, adsmType_t targetType,
                             const void* source, int64_t sourceCount, adsmType_t sourceType,
                             const adsmPackOptions_t* options) {
  return guarded("adsmTransferWith", [&] {
    return transferBytes("adsmTransferWith",
                         {target, targetCount, targetType, source, sourceCount, sourceType},
                         options);
  });
}

int adsmPackDone(adsmPackEvent_t event) {
  const auto ticket = event != nullptr ? events().find(event) : gmac::accel::Ticket{};
  if (!ticket) {
    // Not under way; the reason is in adsmLastErrorString().
    (void)noEvent("adsmPackDone", event);
    return 1;
  }
  if (ticket->value == 0) {
    return 1;
  }
  return gmac::uncancelled([&] {
    auto accelerator = gmac::coherence::work().ensureAccelerator();
    if (!accelerator.ok()) {
      return 1;
    }
    return (*accelerator)->done(*ticket) ? 1 : 0;
  });
}

adsmError_t adsmPackWait(adsmPackEvent_t event) {
  return guarded("adsmPackWait", [&]() -> Status {
    const auto ticket = events().take(event);
    if (!ticket) {
      return noEvent("adsmPackWait", event);
    }
    if (ticket->value == 0) {
      return {};
    }
    auto accelerator = gmac::coherence::work().ensureAccelerator();
    return accelerator.ok() ? (*accelerator)->wait(*ticket) : accelerator.status();
  });
}

}  // extern "C"
