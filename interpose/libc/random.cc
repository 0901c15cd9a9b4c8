// SPDX-License-Identifier: Apache-2.0
//
// getrandom, getentropy and arc4random_buf into shared memory: these stand in for libc's functions
// in a program that is linked with the library or preloads it. Calls that involve no shared memory
// go to the real function at once.
#include <stdlib.h>
#include <sys/random.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "gmac/base/cancellation.h"
#include "gmac/coherence/memory_port.h"
#include "interpose/base/real.h"
#include "interpose/libc/stand_in.h"
#include "interpose/libc/transfer.h"

// libc's headers declare that these functions only write to their buffers, so asking whether a
// buffer is shared looks like reading uninitialised memory.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace gmac::interpose {
namespace {

constinit Real<ssize_t(void*, size_t, unsigned)> realGetrandom("getrandom");
constinit Real<int(void*, size_t)> realGetentropy("getentropy");
constinit Real<void(void*, size_t)> realArc4randomBuf("arc4random_buf");

[[gnu::constructor]] void resolveRandom() {
  resolveAtLoad(realGetrandom, realGetentropy, realArc4randomBuf);
}

// getentropy() returns at most so many bytes.
constexpr std::size_t kMostEntropy = 256;

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace io = gmac::interpose;

extern "C" {

// On private memory: the call waits until the machine has gathered entropy.
GMAC_INTERPOSED ssize_t getrandom(void* buffer, size_t bytes, unsigned flags) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realGetrandom(buffer, bytes, flags);
  const iovec whole = {buffer, bytes};
  const auto call = [&](const io::Vector& privately) -> ssize_t {
    ssize_t done = 0;
    // One part, or more if the buffer leaves its object; then it counts the bytes of parts that can
    // be written.
    for (std::size_t i = 0; i < privately.count; ++i) {
      const iovec& part = privately.parts[i];
      const ssize_t count = io::realGetrandom(part.iov_base, part.iov_len, flags);
      if (count < 0) return done > 0 ? done : -1;
      done += count;
      if (static_cast<std::size_t>(count) < part.iov_len) break;
    }
    return done;
  };
  return gmac::cancellationPoint([&] {
    return io::transferOnPrivateMemory(io::Direction::kRead, {&whole, 1}, {}, call);
  });
}

GMAC_INTERPOSED int getentropy(void* buffer, size_t bytes) {
  if (bytes > io::kMostEntropy || !gmac::coherence::touchesShared(buffer, bytes)) [[likely]]
    return io::realGetentropy(buffer, bytes);
  std::array<std::byte, io::kMostEntropy> own;
  const int result = io::realGetentropy(own.data(), bytes);
  if (result == 0 &&
      !gmac::uncancelled([&] { return io::copyToShared(buffer, own.data(), bytes); })) {
    return -1;
  }
  return result;
}

// With ordinary stores, which may fault: this function cannot fail.
GMAC_INTERPOSED void arc4random_buf(void* buffer, size_t bytes) {
  if (!gmac::coherence::touchesShared(buffer, bytes)) [[likely]] {
    io::realArc4randomBuf(buffer, bytes);
    return;
  }
  std::array<std::byte, 1024> own;
  auto* to = static_cast<std::byte*>(buffer);
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, own.size());
    io::realArc4randomBuf(own.data(), part);
    to = std::copy_n(own.data(), part, to);
    bytes -= part;
  }
}

}  // extern "C"
