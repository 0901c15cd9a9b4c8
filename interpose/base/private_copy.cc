// SPDX-License-Identifier: Apache-2.0
#include "interpose/base/private_copy.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "gmac/base/round_up.h"
#include "gmac/coherence/memory_port.h"
#include "interpose/base/system_call.h"

namespace gmac::interpose {
namespace {

constexpr std::uintptr_t kPage = 4096;
// The kernel reads so many bytes of a signal mask before it rejects the request as invalid.
constexpr std::uintptr_t kProbeBytes = 8;

// Not by syscall(), which asks this file about a request that fails.
bool probe(std::uintptr_t address) noexcept {
  const long result =
      gmacSystemCall(SYS_rt_sigprocmask, ~0L, address & ~(kProbeBytes - 1), nullptr, kProbeBytes);
  return result == 0 || errno != EFAULT;
}

std::size_t bytesLeftOfPage(const std::byte* address) noexcept {
  return kPage - reinterpret_cast<std::uintptr_t>(address) % kPage;
}

// How many of the bytes, from the first on, can be read.
std::size_t readablePrefix(const void* address, std::size_t bytes) noexcept {
  const auto* const begin = static_cast<const std::byte*>(address);
  std::size_t done = 0;
  while (done < bytes) {
    bool shared = false;
    std::size_t length = coherence::memory().sharedPrefix(begin + done, bytes - done, &shared);
    if (!shared) {
      length = std::min(length, bytesLeftOfPage(begin + done));
      if (!readable(begin + done, length)) break;
    }
    done += length;
  }
  return done;
}

// Opens what words point to. For the stack.
class Pointees {
 public:
  bool touchFrom(const void* address, int levels) noexcept {
    const auto* const begin = reinterpret_cast<const std::byte*>(
        roundUp(reinterpret_cast<std::uintptr_t>(address), sizeof(std::uintptr_t)));
    bool any = false;
    for (std::size_t done = 0; done < kLookedAtBytes;) {
      std::uintptr_t words[32];
      const std::size_t length =
          std::min({kLookedAtBytes - done, sizeof words, bytesLeftOfPage(begin + done)});
      if (!readable(begin + done, length)) break;
      std::memcpy(words, begin + done, length);
      for (std::size_t i = 0; i < length / sizeof *words && left_ > 0; ++i) {
        auto* const pointee = reinterpret_cast<void*>(words[i]);
        if (!touch(pointee)) continue;
        --left_;
        any = true;
        if (levels > 1) (void)touchFrom(pointee, levels - 1);
      }
      done += length;
    }
    return any;
  }

 private:
  // An array of structures may be longer, and lead to more: what is left closed fails the call.
  static constexpr std::size_t kLookedAtBytes = kPage;
  int left_ = 256;
};

// The room for a copy. What comes after a name that is too long is not read, but measured.
std::size_t copyBytes(std::size_t bytes) noexcept { return roundUp(bytes + 1, std::size_t{64}); }

}  // namespace

bool readable(const void* address, std::size_t bytes) noexcept {
  if (bytes == 0 || coherence::touchesShared(address, bytes)) return true;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  std::uintptr_t end = 0;
  if (__builtin_add_overflow(begin, bytes, &end)) return false;
  const int savedErrno = errno;
  bool all = true;
  for (std::uintptr_t at = begin; all && at < end; at = (at & ~(kPage - 1)) + kPage)
    all = probe(at);
  errno = savedErrno;
  return all;
}

std::size_t textBytes(const char* text) noexcept {
  const auto* const begin = reinterpret_cast<const std::byte*>(text);
  std::size_t done = 0;
  while (done < kMostTextBytes) {
    const std::size_t length = std::min(kMostTextBytes - done, bytesLeftOfPage(begin + done));
    if (!readable(begin + done, length)) return 0;
    if (const void* const end = std::memchr(begin + done, 0, length); end != nullptr) {
      return static_cast<std::size_t>(static_cast<const std::byte*>(end) - begin) + 1;
    }
    done += length;
  }
  return done;
}

PrivateCopy::PrivateCopy(const void* given, std::size_t bytes, bool written)
    : given_(const_cast<void*>(given)),
      bytes_(bytes),
      written_(written),
      shared_(given != nullptr && coherence::touchesShared(given, bytes)),
      reachable_(shared_ ? readablePrefix(given, bytes) : 0),
      scratch_(shared_ ? copyBytes(bytes) + (written ? reachable_ : 0) : 0) {
  if (!shared_) return;
  if (scratch_.data() == nullptr) {
    errno = ENOMEM;
    ok_ = false;
    return;
  }
  ok_ = copyFromShared(scratch_.data(), given, reachable_);
  if (ok_ && written_) {
    std::memcpy(scratch_.data() + copyBytes(bytes_), scratch_.data(), reachable_);
  }
  // Whatever is written after what can be reached is then seen.
  if (bytes_ > reachable_) {
    std::memset(scratch_.data() + reachable_, 0, std::min(bytes_ - reachable_, kPage));
  }
}

bool PrivateCopy::putBack() {
  if (!shared_ || !written_) return true;
  const std::byte* const now = scratch_.data();
  const std::byte* const before = now + copyBytes(bytes_);
  // Bytes that the call has left alone belong to other threads.
  const std::byte* const first = std::mismatch(now, now + reachable_, before).first;
  const std::byte* last = now + reachable_;
  while (last > first && last[-1] == before[last - now - 1]) --last;
  if (last > first && !copyToShared(static_cast<std::byte*>(given_) + (first - now), first,
                                    static_cast<std::size_t>(last - first))) {
    return false;
  }
  const std::byte* const end = now + std::min(bytes_, reachable_ + kPage);
  if (std::any_of(now + reachable_, end, [](std::byte byte) { return byte != std::byte{0}; })) {
    errno = EFAULT;
    return false;
  }
  return true;
}

bool touch(void* address) noexcept {
  if (address == nullptr || !coherence::touchesShared(address, kPage) ||
      coherence::memory().inChildOfFork()) {
    return false;
  }
  auto* const begin = static_cast<std::byte*>(address);
  // Structures that end in an array are seldom longer.
  constexpr std::size_t kTouchedBytes = 4 * kPage;
  for (std::size_t at = 0; at < kTouchedBytes; at += bytesLeftOfPage(begin + at)) {
    if (!coherence::touchesShared(begin + at, 1)) continue;
    // Writes the value that is there.
    asm volatile("lock orb $0, %0" : "+m"(begin[at]) : : "cc", "memory");
  }
  return true;
}

bool touchPointees(const void* address) noexcept {
  constexpr int kLevels = 2;
  return address != nullptr && coherence::anythingShared() &&
         !coherence::memory().inChildOfFork() && Pointees().touchFrom(address, kLevels);
}

}  // namespace gmac::interpose
