// SPDX-License-Identifier: Apache-2.0
//
// Messages to the person who runs the program: one line on standard error, "gmac: ...".
//
// Usable on the fault path and in the child of a fork: a line is formatted into a fixed buffer on
// the stack and written with one system call of its own (not through write(), which the interposer
// stands in for). It allocates nothing and takes no lock. Thread-safe; lines of different threads
// do not mix.
#ifndef GMAC_LOG_H_
#define GMAC_LOG_H_

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

namespace gmac {

enum class LogLevel { kOff, kError, kInfo, kDebug };

// What is written: this level and the more important ones. Set from GMAC_LOG when the runtime
// starts.
inline std::atomic<LogLevel> logThreshold{LogLevel::kError};

inline bool logs(LogLevel level) noexcept {
  return level <= logThreshold.load(std::memory_order_relaxed);
}

// Longest line, the prefix and the newline included; the rest of a longer one is cut.
inline constexpr std::size_t kLogLineBytes = 1280;

// Writes "gmac: <text>\n" to standard error whatever the threshold. Keeps errno.
inline void writeLogLine(std::string_view text) noexcept {
  constexpr std::string_view kPrefix = "gmac: ";
  const int savedErrno = errno;
  char line[kLogLineBytes];
  std::memcpy(line, kPrefix.data(), kPrefix.size());
  const std::size_t room = sizeof line - kPrefix.size() - 1;
  const std::size_t length = text.size() < room ? text.size() : room;
  std::memcpy(line + kPrefix.size(), text.data(), length);
  line[kPrefix.size() + length] = '\n';
  const char* next = line;
  std::size_t left = kPrefix.size() + length + 1;
  while (left > 0) {
    const long written = syscall(SYS_write, STDERR_FILENO, next, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // there is nobody left to tell
    next += written;
    left -= static_cast<std::size_t>(written);
  }
  errno = savedErrno;
}

// Formats (fmt syntax) and writes one line when `level` is wanted.
template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!logs(level)) return;
  char text[kLogLineBytes];
  const auto end = fmt::format_to_n(text, sizeof text, format, std::forward<Args>(args)...);
  writeLogLine(std::string_view(text, end.size < sizeof text ? end.size : sizeof text));
}

}  // namespace gmac

#endif  // GMAC_LOG_H_
