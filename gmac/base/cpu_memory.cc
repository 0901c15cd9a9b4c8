// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/cpu_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

// The C library's: the program's break. Not by sbrk(0), which MPI libraries replace (UCX does) by
// functions that take some hundred nanoseconds.
extern "C" void* __curbrk;  // NOLINT(bugprone-reserved-identifier)

namespace gmac {
namespace {

std::uintptr_t numberOf(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

// Where the heap begins, as the system knows it. The break of now where it does not tell: what the
// heap has already is not known then.
std::uintptr_t askForHeap() noexcept {
  std::array<char, 1024> text{};
  const int file = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = file >= 0 ? ::read(file, text.data(), text.size() - 1) : -1;
  if (file >= 0) {
    (void)::close(file);
  }
  // "PID (NAME) STATE ...": the name may contain anything, field 47 is start_brk.
  constexpr int kState = 3;
  constexpr int kStartBrk = 47;
  const char* at = bytes > 0 ? std::strrchr(text.data(), ')') : nullptr;
  for (int field = kState; at != nullptr && field <= kStartBrk; ++field) {
    at = std::strchr(at + 1, ' ');
  }
  const std::uintptr_t start = at != nullptr ? std::strtoull(at + 1, nullptr, 10) : 0;
  return start != 0 ? start : numberOf(__curbrk);
}

struct Range {
  std::uintptr_t first = 0;
  std::uintptr_t last = 0;
  bool contains(std::uintptr_t address) const { return address >= first && address < last; }
};

Range askForStack() noexcept {
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) {
    return {};
  }
  void* lowest = nullptr;
  std::size_t bytes = 0;
  (void)::pthread_attr_getstack(&attributes, &lowest, &bytes);
  (void)::pthread_attr_destroy(&attributes);
  return {numberOf(lowest), numberOf(lowest) + bytes};
}

}  // namespace

bool onHeapOrStack(const void* address) noexcept {
  const std::uintptr_t number = numberOf(address);
  static const std::uintptr_t heap = askForHeap();
  if (number >= heap && number < numberOf(__curbrk) && heap != 0) {
    return true;
  }
  // The stack is in use from its beginning to the deepest frame. Further down, other memory may
  // lie; and a coroutine's frame is on another stack.
  static thread_local const Range stack = askForStack();
  const std::uintptr_t here = numberOf(__builtin_frame_address(0));
  return stack.contains(here) && stack.contains(number) && number >= here;
}

}  // namespace gmac
