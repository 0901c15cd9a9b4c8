// SPDX-License-Identifier: Apache-2.0
#include "interpose/base/scratch.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "gmac/coherence/memory_port.h"
#include "interpose/base/real.h"

namespace gmac::interpose {
namespace {

// libc's memcpy: this library's own asks where the bytes are current, and here they are held.
constinit Real<void*(void*, const void*, std::size_t)> realMemcpy("memcpy");

[[gnu::constructor]] void resolveMemcpy() { resolveAtLoad(realMemcpy); }

// Copies piece by piece. Holds each piece of the shared side, which is one of the two.
bool copyHeld(void* to, const void* from, std::size_t bytes, const void* shared,
              coherence::HoldFor purpose) {
  const std::size_t pieceBytes = coherence::memory().pieceBytes();
  const auto* const begin = static_cast<const std::byte*>(shared);
  const int errnoBefore = errno;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = nextPiece(begin + done, bytes - done, pieceBytes);
    const coherence::CpuHold hold(begin + done, piece, purpose);
    if (!hold.status().ok()) {
      errno = EIO;
      return false;
    }
    realMemcpy(static_cast<std::byte*>(to) + done, static_cast<const std::byte*>(from) + done,
               piece);
    done += piece;
  }
  errno = errnoBefore;
  return true;
}

}  // namespace

// ---- Scratch ----

Scratch::Scratch(std::size_t bytes, bool mapped) {
  if (bytes <= kInlineBytes && !mapped) {
    data_ = inline_.data();
    return;
  }
  const int savedErrno = errno;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  errno = savedErrno;
  data_ = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
  mappedBytes_ = memory == MAP_FAILED ? 0 : bytes;
}

Scratch::~Scratch() {
  if (mappedBytes_ > 0) ::munmap(data_, mappedBytes_);
}

// ---- Copies ----

bool copyToShared(void* to, const void* from, std::size_t bytes) {
  return copyHeld(to, from, bytes, to, coherence::HoldFor::kOverwrite);
}

bool copyFromShared(void* to, const void* from, std::size_t bytes) {
  return copyHeld(to, from, bytes, from, coherence::HoldFor::kRead);
}

std::size_t nextPiece(const void* address, std::size_t bytes, std::size_t pieceBytes) {
  const auto offset = reinterpret_cast<std::uintptr_t>(address) % pieceBytes;
  return std::min(bytes, pieceBytes - offset);
}

}  // namespace gmac::interpose
