// SPDX-License-Identifier: Apache-2.0
//
// memcpy, memmove, memset and their kin (with the forms that fortified programs call): these stand
// in for libc's functions in a program that is linked with the library or preloads it. An operation
// on shared memory is done where the bytes are current, without a fault per block.
//
// These are the most called functions there are, so nearly every call must reach libc after one
// comparison:
//
//  - Short calls go to libc, on shared memory too: they fault like any other access, and what
//    follows them costs far more than one fault.
//  - Longer ones go to libc unless one end is near shared memory.
//
// They are also called before anything else works: before this library is relocated or its
// constructors have run, in the dynamic linker's callbacks, in malloc, in signal handlers and,
// where it is linked statically, in the runtime itself. So until libc's functions are known a few
// instructions do their work, nothing here allocates, and no thread-local variable is read unless
// one end is near shared memory.
//
// All functions are thread-safe. Builds with the address or the thread sanitizer leave them out:
// the sanitizer has its own, and shared memory then faults block by block.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// The fortified inline forms of the functions that are defined here are not wanted.
#undef _FORTIFY_SOURCE

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cwchar>

#include "gmac/base/cancellation.h"
#include "gmac/coherence/memory_port.h"
#if GMAC_HAVE_CUDA
#include "gmac/accel/cuda/reentry.h"
#endif

extern "C" [[noreturn]] void __chk_fail();

namespace gmac::interpose {
namespace {

#define GMAC_UNLIKELY(condition) __builtin_expect((condition), 0)

// Shorter calls go straight to libc, which copies them in the time that the check takes.
constexpr std::size_t kLeastBulkBytes = std::size_t{32} << 10;

// ---- The real functions ----

// noexcept, so that a call of one can be a jump.
using Move = void*(void* to, const void* from, std::size_t bytes) noexcept;
using Set = void*(void* to, int value, std::size_t bytes) noexcept;
using WideSet = wchar_t*(wchar_t* to, wchar_t value, std::size_t count) noexcept;

// libc's, or NULL until the constructor below has run. Nothing else may be needed to read them:
// they are read before this library is relocated.
constinit std::atomic<Move*> realMemcpy{nullptr};
constinit std::atomic<Move*> realMemmove{nullptr};
constinit std::atomic<Move*> realMempcpy{nullptr};
constinit std::atomic<Set*> realMemset{nullptr};
constinit std::atomic<WideSet*> realWmemset{nullptr};

#if defined(__x86_64__)
constexpr const char* kLibcVersion = "GLIBC_2.2.5";
constexpr const char* kMemcpyVersion = "GLIBC_2.14";  // the older memcpy is memmove
#elif defined(__aarch64__)
constexpr const char* kLibcVersion = "GLIBC_2.17";
constexpr const char* kMemcpyVersion = "GLIBC_2.17";
#else
#error "name this architecture's oldest glibc version"
#endif

template <typename Function>
void resolve(std::atomic<Function*>& real, const char* name, const char* version) {
  real.store(reinterpret_cast<Function*>(::dlvsym(RTLD_NEXT, name, version)),
             std::memory_order_relaxed);
}

// Versioned look-ups bypass the dlsym that the library itself replaces. Where one finds nothing,
// the functions below keep doing the work.
[[gnu::constructor(101)]] void resolveAll() {
  resolve(realMemmove, "memmove", kLibcVersion);
  resolve(realMemset, "memset", kLibcVersion);
  resolve(realWmemset, "wmemset", kLibcVersion);
  resolve(realMempcpy, "mempcpy", kLibcVersion);
  resolve(realMemcpy, "memcpy", kMemcpyVersion);
}

// ---- Before that ----

// Written so that the compiler cannot turn them into calls of memcpy and memset.
#if defined(__x86_64__)
void* earlyMemmove(void* to, const void* from, std::size_t bytes) {
  void* target = to;
  if (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from) >= bytes) {
    asm volatile("rep movsb" : "+D"(target), "+S"(from), "+c"(bytes) : : "memory");
    return to;
  }
  target = static_cast<char*>(to) + bytes - 1;
  from = static_cast<const char*>(from) + bytes - 1;
  asm volatile("std\n\trep movsb\n\tcld" : "+D"(target), "+S"(from), "+c"(bytes) : : "memory");
  return to;
}

void* earlyMemset(void* to, int value, std::size_t bytes) {
  void* target = to;
  asm volatile("rep stosb" : "+D"(target), "+c"(bytes) : "a"(value) : "memory");
  return to;
}
#else
void* earlyMemmove(void* to, const void* from, std::size_t bytes) {
  auto* const target = static_cast<volatile unsigned char*>(to);
  const auto* const source = static_cast<const volatile unsigned char*>(from);
  const bool forward =
      reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from) >= bytes;
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::size_t at = forward ? i : bytes - 1 - i;
    target[at] = source[at];
  }
  return to;
}

void* earlyMemset(void* to, int value, std::size_t bytes) {
  auto* const target = static_cast<volatile unsigned char*>(to);
  for (std::size_t i = 0; i < bytes; ++i) {
    target[i] = static_cast<unsigned char>(value);
  }
  return to;
}
#endif

// ---- Calls that are not short ----

// Whether the calling thread is in the driver on the runtime's behalf.
bool insideDriver() {
#if GMAC_HAVE_CUDA
  return accel::cuda::Reentry::inside();
#else
  return false;
#endif
}

// Not inlined, so that not every memcpy pays for the stack that these need.
[[gnu::noinline, gnu::cold]] bool copyShared(void* to, const void* from, std::size_t bytes) {
  if (insideDriver()) {
    return false;
  }
  const int savedErrno = errno;
  uncancelled([&]() noexcept {
    coherence::memory().copy(to, from, bytes, realMemmove.load(std::memory_order_relaxed));
  });
  errno = savedErrno;
  return true;
}

[[gnu::noinline, gnu::cold]] bool setShared(void* to, int value, std::size_t bytes) {
  if (insideDriver()) {
    return false;
  }
  const int savedErrno = errno;
  uncancelled([&]() noexcept {
    coherence::memory().fill(to, value, bytes, realMemset.load(std::memory_order_relaxed));
  });
  errno = savedErrno;
  return true;
}

// Copies with `real` when the copy is long or `real` is not known yet.
template <bool kReturnsEnd>
[[gnu::noinline]] void* longCopy(void* to, const void* from, std::size_t bytes,
                                 Move* real) noexcept {
  if (real == nullptr) {
    earlyMemmove(to, from, bytes);
  } else if (!(coherence::mayBeShared(to, bytes) || coherence::mayBeShared(from, bytes)) ||
             !copyShared(to, from, bytes)) {
    return real(to, from, bytes);
  }
  return kReturnsEnd ? static_cast<char*>(to) + bytes : to;
}

[[gnu::noinline]] void* longSet(void* to, int value, std::size_t bytes, Set* real) noexcept {
  if (real == nullptr) {
    return earlyMemset(to, value, bytes);
  }
  if (!coherence::mayBeShared(to, bytes) || !setShared(to, value, bytes)) {
    return real(to, value, bytes);
  }
  return to;
}

// ---- The library's own calls ----

void* ownMove(const std::atomic<Move*>& function, void* to, const void* from, std::size_t bytes) {
  Move* const real = function.load(std::memory_order_relaxed);
  return GMAC_UNLIKELY(real == nullptr) ? earlyMemmove(to, from, bytes) : real(to, from, bytes);
}

void* ownSet(void* to, int value, std::size_t bytes) {
  Set* const real = realMemset.load(std::memory_order_relaxed);
  return GMAC_UNLIKELY(real == nullptr) ? earlyMemset(to, value, bytes) : real(to, value, bytes);
}

// ---- All calls ----

template <bool kReturnsEnd>
[[gnu::always_inline]] inline void* copy(const std::atomic<Move*>& function, void* to,
                                         const void* from, std::size_t bytes) {
  Move* const real = function.load(std::memory_order_relaxed);
  if (GMAC_UNLIKELY(bytes >= kLeastBulkBytes || real == nullptr)) {
    return longCopy<kReturnsEnd>(to, from, bytes, real);
  }
  return real(to, from, bytes);
}

[[gnu::always_inline]] inline void* set(void* to, int value, std::size_t bytes) {
  Set* const real = realMemset.load(std::memory_order_relaxed);
  if (GMAC_UNLIKELY(bytes >= kLeastBulkBytes || real == nullptr)) {
    return longSet(to, value, bytes, real);
  }
  return real(to, value, bytes);
}

// A wide character whose bytes are all equal is filled bytewise; others go to libc, fault by fault.
[[gnu::always_inline]] inline wchar_t* wideSet(wchar_t* to, wchar_t value, std::size_t count) {
  WideSet* const real = realWmemset.load(std::memory_order_relaxed);
  const auto bits = static_cast<std::uint32_t>(value);
  if (real == nullptr ||
      (count >= kLeastBulkBytes / sizeof(wchar_t) && bits == (bits & 0xff) * 0x01010101U)) {
    if (bits == (bits & 0xff) * 0x01010101U) {
      return static_cast<wchar_t*>(set(to, static_cast<int>(bits & 0xff), count * sizeof(wchar_t)));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const_cast<volatile wchar_t*>(to)[i] = value;
    }
    return to;
  }
  return real(to, value, count);
}

// Fortified programs check first that the bytes fit the object's size, which the compiler knows.
[[gnu::always_inline]] inline void check(std::size_t needed, std::size_t there) {
  if (GMAC_UNLIKELY(needed > there)) {
    __chk_fail();
  }
}

}  // namespace
}  // namespace gmac::interpose

using gmac::interpose::check;
using gmac::interpose::realMemcpy;
using gmac::interpose::realMemmove;
using gmac::interpose::realMempcpy;

#define GMAC_LIBC __attribute__((visibility("default")))

extern "C" {

GMAC_LIBC void* memcpy(void* to, const void* from, std::size_t bytes) noexcept {
  return gmac::interpose::copy<false>(realMemcpy, to, from, bytes);
}

GMAC_LIBC void* memmove(void* to, const void* from, std::size_t bytes) noexcept {
  return gmac::interpose::copy<false>(realMemmove, to, from, bytes);
}

GMAC_LIBC void* mempcpy(void* to, const void* from, std::size_t bytes) noexcept {
  return gmac::interpose::copy<true>(realMempcpy, to, from, bytes);
}

// What the library itself calls (the linker's --wrap, see gmac/BUILD) goes to libc at once, on
// shared memory too: it may hold the lock of all objects.
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) noexcept {
  return gmac::interpose::ownMove(realMemcpy, to, from, bytes);
}

void* __wrap_memmove(void* to, const void* from, std::size_t bytes) noexcept {
  return gmac::interpose::ownMove(realMemmove, to, from, bytes);
}

void* __wrap_memset(void* to, int value, std::size_t bytes) noexcept {
  return gmac::interpose::ownSet(to, value, bytes);
}

GMAC_LIBC void* __mempcpy(void* to, const void* from, std::size_t bytes) noexcept {
  return gmac::interpose::copy<true>(realMempcpy, to, from, bytes);
}

GMAC_LIBC void bcopy(const void* from, void* to, std::size_t bytes) noexcept {
  (void)gmac::interpose::copy<false>(realMemmove, to, from, bytes);
}

GMAC_LIBC void* memset(void* to, int value, std::size_t bytes) noexcept {
  return gmac::interpose::set(to, value, bytes);
}

GMAC_LIBC void bzero(void* to, std::size_t bytes) noexcept {
  (void)gmac::interpose::set(to, 0, bytes);
}

GMAC_LIBC void explicit_bzero(void* to, std::size_t bytes) noexcept {
  (void)gmac::interpose::set(to, 0, bytes);
}

GMAC_LIBC wchar_t* wmemcpy(wchar_t* to, const wchar_t* from, std::size_t count) noexcept {
  return static_cast<wchar_t*>(
      gmac::interpose::copy<false>(realMemcpy, to, from, count * sizeof(wchar_t)));
}

GMAC_LIBC wchar_t* wmemmove(wchar_t* to, const wchar_t* from, std::size_t count) noexcept {
  return static_cast<wchar_t*>(
      gmac::interpose::copy<false>(realMemmove, to, from, count * sizeof(wchar_t)));
}

GMAC_LIBC wchar_t* wmempcpy(wchar_t* to, const wchar_t* from, std::size_t count) noexcept {
  return static_cast<wchar_t*>(
      gmac::interpose::copy<true>(realMempcpy, to, from, count * sizeof(wchar_t)));
}

GMAC_LIBC wchar_t* wmemset(wchar_t* to, wchar_t value, std::size_t count) noexcept {
  return gmac::interpose::wideSet(to, value, count);
}

GMAC_LIBC void* __memcpy_chk(void* to, const void* from, std::size_t bytes, std::size_t there) {
  check(bytes, there);
  return gmac::interpose::copy<false>(realMemcpy, to, from, bytes);
}

GMAC_LIBC void* __memmove_chk(void* to, const void* from, std::size_t bytes, std::size_t there) {
  check(bytes, there);
  return gmac::interpose::copy<false>(realMemmove, to, from, bytes);
}

GMAC_LIBC void* __mempcpy_chk(void* to, const void* from, std::size_t bytes, std::size_t there) {
  check(bytes, there);
  return gmac::interpose::copy<true>(realMempcpy, to, from, bytes);
}

GMAC_LIBC void* __memset_chk(void* to, int value, std::size_t bytes, std::size_t there) {
  check(bytes, there);
  return gmac::interpose::set(to, value, bytes);
}

GMAC_LIBC void __explicit_bzero_chk(void* to, std::size_t bytes, std::size_t there) {
  check(bytes, there);
  (void)gmac::interpose::set(to, 0, bytes);
}

// In these, `there` counts wide characters.
GMAC_LIBC wchar_t* __wmemcpy_chk(wchar_t* to, const wchar_t* from, std::size_t count,
                                 std::size_t there) {
  check(count, there);
  return static_cast<wchar_t*>(
      gmac::interpose::copy<false>(realMemcpy, to, from, count * sizeof(wchar_t)));
}

GMAC_LIBC wchar_t* __wmemmove_chk(wchar_t* to, const wchar_t* from, std::size_t count,
                                  std::size_t there) {
  check(count, there);
  return static_cast<wchar_t*>(
      gmac::interpose::copy<false>(realMemmove, to, from, count * sizeof(wchar_t)));
}

GMAC_LIBC wchar_t* __wmempcpy_chk(wchar_t* to, const wchar_t* from, std::size_t count,
                                  std::size_t there) {
  check(count, there);
  return static_cast<wchar_t*>(
      gmac::interpose::copy<true>(realMempcpy, to, from, count * sizeof(wchar_t)));
}

GMAC_LIBC wchar_t* __wmemset_chk(wchar_t* to, wchar_t value, std::size_t count, std::size_t there) {
  check(count, there);
  return gmac::interpose::wideSet(to, value, count);
}

}  // extern "C"

#endif
