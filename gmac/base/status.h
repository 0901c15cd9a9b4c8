// SPDX-License-Identifier: Apache-2.0
//
// Errors inside the runtime: a code, and a text kept per thread.
//
// `fail` formats the text into a fixed buffer of the calling thread, so it can be used where
// nothing may be allocated (the fault path). Code that ignores a Status does not compile.
#ifndef GMAC_BASE_STATUS_H_
#define GMAC_BASE_STATUS_H_

#include <fmt/core.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "gmac/api/adsm.h"

namespace gmac {

// Success, or an error code whose text is the calling thread's last error.
class [[nodiscard]] Status {
 public:
  constexpr Status() = default;
  constexpr explicit Status(adsmError_t code) : code_(code) {}
  constexpr bool ok() const { return code_ == adsmSuccess; }
  constexpr adsmError_t code() const { return code_; }

 private:
  adsmError_t code_ = adsmSuccess;
};

// A value, or a Status that is not ok.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(status) {}     // NOLINT(google-explicit-constructor)
  bool ok() const { return status_.ok(); }
  Status status() const { return status_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  // Of a temporary: a reference would end with it.
  T operator*() && { return *std::move(value_); }
  T operator*() const&& = delete;
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// The calling thread's last error. Thread-local; the text lives until the next recordError of the
// same thread.
inline constexpr std::size_t kErrorTextBytes = 1024;
void recordError(adsmError_t code, std::string_view text) noexcept;
adsmError_t lastErrorCode() noexcept;
// The number that the accelerator's own layer (CUDA) has for the thread's last error; 0: none. Kept
// until the next recordError.
void recordErrorNumber(int number) noexcept;
int lastErrorNumber() noexcept;
const char* lastErrorText() noexcept;
const char* errorName(adsmError_t code) noexcept;

// Records "text" (fmt syntax, cut at kErrorTextBytes) as the thread's last error and returns its
// code. Allocates nothing. Cold, so that the compiler moves error paths away from the others.
template <typename... Args>
[[gnu::cold, gnu::noinline]] Status fail(adsmError_t code, fmt::format_string<Args...> format,
                                         Args&&... args) noexcept {
  char text[kErrorTextBytes];
  const auto end = fmt::format_to_n(text, sizeof text, format, std::forward<Args>(args)...);
  recordError(code, std::string_view(text, end.size < sizeof text ? end.size : sizeof text));
  return Status(code);
}

// An address as an argument of fail() and log(). (fmt::ptr is the same, and needs fmt/format.h,
// with which g++ takes up to three times as long for a file.)
inline const void* shown(const void* address) noexcept { return address; }

}  // namespace gmac

// Returns from the enclosing function when `expression` (a Status) is not ok.
#define GMAC_TRY(expression)                                                    \
  do {                                                                          \
    if (::gmac::Status gmac_try_status = (expression); !gmac_try_status.ok()) { \
      return gmac_try_status;                                                   \
    }                                                                           \
  } while (false)

#endif  // GMAC_BASE_STATUS_H_
