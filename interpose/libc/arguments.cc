// SPDX-License-Identifier: Apache-2.0
#include "interpose/libc/arguments.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

namespace gmac::interpose {
namespace {

constexpr std::uintptr_t kPage = 4096;
// The kernel reads so many bytes of a signal mask before it rejects the request as invalid.
constexpr std::uintptr_t kProbeBytes = 8;

bool probe(std::uintptr_t address) noexcept {
  const long result =
      ::syscall(SYS_rt_sigprocmask, ~0L, address & ~(kProbeBytes - 1), nullptr, kProbeBytes);
  return result == 0 || errno != EFAULT;
}

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

namespace {

// The bytes of a table that the kernel would read; 0 if it would read none.
std::size_t tableBytes(const iovec* parts, std::size_t count) {
  return parts == nullptr || count > IOV_MAX ? 0 : count * sizeof(iovec);
}

std::size_t sharedTableBytes(const iovec* parts, std::size_t count) {
  const std::size_t bytes = tableBytes(parts, count);
  return coherence::touchesShared(parts, bytes) ? bytes : 0;
}

}  // namespace

CallersVector::CallersVector(const iovec* parts, std::size_t count)
    : table_(sharedTableBytes(parts, count)), vector_{parts, count} {
  const std::size_t bytes = tableBytes(parts, count);
  if (bytes == 0 || !coherence::anythingShared()) return;
  if (coherence::touchesShared(parts, bytes)) {
    if (table_.data() == nullptr) return;
    std::memcpy(table_.data(), parts, bytes);  // in user mode, where closed blocks fault and open
    vector_.parts = reinterpret_cast<const iovec*>(table_.data());
    ours_ = true;
  } else if (!readable(parts, bytes)) {
    return;
  }
  ours_ = ours_ || vector_.touchesShared();
  if (std::any_of(vector_.parts, vector_.parts + count,
                  [](const iovec& part) { return part.iov_len > SSIZE_MAX; })) {
    ours_ = false;
  }
}

}  // namespace gmac::interpose
