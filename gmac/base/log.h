// SPDX-License-Identifier: Apache-2.0
//
// Messages to the person who runs the program: one line on standard error, "gmac: ...".
//
// For the fault path and the child of a fork too: a line is formatted into a fixed buffer on the
// stack, the only one, and written with one system call of its own (own_system_call.h). Allocates
// nothing and takes no lock. Thread-safe; lines of different threads do not mix.
#ifndef GMAC_BASE_LOG_H_
#define GMAC_BASE_LOG_H_

#include <fmt/core.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include "gmac/base/own_system_call.h"

namespace gmac {

enum class LogLevel { kOff, kError, kInfo, kDebug };

// The least important level that is written. Set from GMAC_LOG when the runtime starts.
inline std::atomic<LogLevel> logThreshold{LogLevel::kError};

inline bool logs(LogLevel level) noexcept {
  return level <= logThreshold.load(std::memory_order_relaxed);
}

// Longest line, the prefix and the newline included; the rest of a longer one is cut.
inline constexpr std::size_t kLogLineBytes = 1280;

// Writes "gmac: <text>\n" to standard error whatever the threshold. Keeps errno.
[[gnu::cold, gnu::noinline]] inline void writeLogLine(std::string_view text) noexcept {
  static constexpr std::string_view kPrefix = "gmac: ";
  static constexpr std::string_view kEnd = "\n";
  const auto partOf = [](std::string_view part) {
    return iovec{const_cast<char*>(part.data()), part.size()};
  };
  const int savedErrno = errno;
  iovec parts[] = {partOf(kPrefix),
                   partOf(text.substr(0, kLogLineBytes - kPrefix.size() - kEnd.size())),
                   partOf(kEnd)};
  iovec* next = std::begin(parts);
  while (next != std::end(parts)) {
    const long written = ownSystemCall(SYS_writev, STDERR_FILENO, next, std::end(parts) - next);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // standard error is closed
    auto left = static_cast<std::size_t>(written);
    while (next != std::end(parts) && left >= next->iov_len) left -= (next++)->iov_len;
    if (left > 0) *next = {static_cast<char*>(next->iov_base) + left, next->iov_len - left};
  }
  errno = savedErrno;
}

namespace internal {

// Out of line: callers on the fault path must not have the buffer in their own frames.
[[gnu::cold, gnu::noinline]] inline void formatLogLine(fmt::string_view format,
                                                       fmt::format_args args) noexcept {
  char text[kLogLineBytes];
  const std::size_t length = fmt::vformat_to_n(text, sizeof text, format, args).size;
  writeLogLine(std::string_view(text, std::min(length, sizeof text)));
}

}  // namespace internal

// Formats (fmt syntax) and writes one line when `level` is wanted.
template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!logs(level)) return;
  internal::formatLogLine(format, fmt::make_format_args(args...));
}

}  // namespace gmac

#endif  // GMAC_BASE_LOG_H_
