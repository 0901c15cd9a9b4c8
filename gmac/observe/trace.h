// SPDX-License-Identifier: Apache-2.0
//
// A trace of the runtime's work for Perfetto (Chrome trace JSON).
//
// Events go into a buffer mapped by startTrace(): appending allocates nothing and takes no lock, so
// the fault handler may trace. A full buffer counts what it drops and the file says so. Off, a span
// or an instant costs one predicted branch. All functions are thread-safe but startTrace(), which
// is called once, when the runtime starts.
//
// Names, categories and argument names are string literals: only their addresses are kept.
//
// Every thread with events is a track, of the name that it has at its first one; the process's
// first thread is "main thread". After kNamedTracks of them, tracks are numbers.
#ifndef GMAC_OBSERVE_TRACE_H_
#define GMAC_OBSERVE_TRACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "gmac/base/status.h"

namespace gmac {

// A number that goes with an event, e.g. {"bytes", 4096}.
struct TraceArg {
  const char* name = nullptr;
  std::uint64_t value = 0;
};

namespace internal {
inline constinit std::atomic<bool> tracing{false};
std::uint64_t traceNow() noexcept;
void appendTraceEvent(const char* category, const char* name, std::uint64_t start,
                      std::uint64_t duration, TraceArg first, TraceArg second) noexcept;
inline constexpr std::uint64_t kInstant =
    ~std::uint64_t{0};  // the duration of an event that has none
inline constexpr std::size_t kNamedTracks = 4096;
}  // namespace internal

inline bool tracing() noexcept { return internal::tracing.load(std::memory_order_acquire); }

// An event at one moment.
inline void traceInstant(const char* category, const char* name, TraceArg first = {},
                         TraceArg second = {}) noexcept {
  if (tracing()) [[unlikely]] {
    internal::appendTraceEvent(category, name, internal::traceNow(), internal::kInstant, first,
                               second);
  }
}

// An event that lasts for its scope. For the stack of one thread.
class [[nodiscard]] TraceSpan {
 public:
  TraceSpan(const char* category, const char* name, TraceArg first = {},
            TraceArg second = {}) noexcept {
    if (tracing()) [[unlikely]] {
      category_ = category;
      name_ = name;
      first_ = first;
      second_ = second;
      start_ = internal::traceNow();
    }
  }
  ~TraceSpan() {
    if (name_ != nullptr) [[unlikely]] {
      internal::appendTraceEvent(category_, name_, start_, internal::traceNow() - start_, first_,
                                 second_);
    }
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  // Replaces the second argument by a number that is known only at the end.
  void setSecond(TraceArg second) noexcept {
    if (name_ != nullptr) [[unlikely]]
      second_ = second;
  }

 private:
  const char* name_ = nullptr;
  const char* category_;
  TraceArg first_;
  TraceArg second_;
  std::uint64_t start_;
};

inline constexpr std::size_t kTraceEvents = std::size_t{1} << 20;

// Maps a buffer for `capacity` events (the kernel makes pages as they fill) and starts tracing. The
// trace is written to `path` when the process ends (not in children of fork); a failure is logged.
// adsmErrorHostMemory.
Status startTrace(const std::string& path, std::size_t capacity = kTraceEvents);

// Stops tracing and writes the events so far. The file appears whole or not at all. adsmErrorSystem
// names the path.
Status writeTrace(const std::string& path);

}  // namespace gmac

#endif  // GMAC_OBSERVE_TRACE_H_
