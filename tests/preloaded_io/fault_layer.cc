// SPDX-License-Identifier: Apache-2.0
#include "tests/preloaded_io/fault_layer.h"

#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>

#define LAYER __attribute__((visibility("default")))

namespace {

std::atomic<int> armedDescriptor{-1};
std::atomic<int> armedError{0};
std::atomic<unsigned> armedCall{0};
std::atomic<unsigned> calls{0};
std::atomic<bool> fired{false};

enum class Fate { kAsIs, kHalf, kFails };

Fate fateOf(int descriptor) {
  if (descriptor < 0 || descriptor != armedDescriptor.load()) return Fate::kAsIs;
  if (calls.fetch_add(1) != armedCall.load()) return Fate::kAsIs;
  fired = true;
  if (armedError.load() == 0) return Fate::kHalf;
  errno = armedError.load();
  return Fate::kFails;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// A vector with half of the bytes.
struct HalfVector {
  iovec parts[IOV_MAX];
  int count = 0;

  HalfVector(const iovec* given, int givenCount) {
    std::size_t left = 0;
    for (int i = 0; i < givenCount; ++i) left += given[i].iov_len;
    left /= 2;
    for (int i = 0; i < givenCount && left > 0; ++i) {
      parts[count] = {given[i].iov_base, std::min(given[i].iov_len, left)};
      left -= parts[count++].iov_len;
    }
  }
};

template <typename Call>
ssize_t onBuffer(int descriptor, std::size_t bytes, const Call& call) {
  switch (fateOf(descriptor)) {
    case Fate::kFails:
      return -1;
    case Fate::kHalf:
      return call(bytes / 2);
    case Fate::kAsIs:
      break;
  }
  return call(bytes);
}

template <typename Call>
ssize_t onVector(int descriptor, const iovec* parts, int count, const Call& call) {
  switch (fateOf(descriptor)) {
    case Fate::kFails:
      return -1;
    case Fate::kHalf: {
      const HalfVector half(parts, count);
      return call(half.parts, half.count);
    }
    case Fate::kAsIs:
      break;
  }
  return call(parts, count);
}

}  // namespace

extern "C" {

LAYER void faultLayerArm(int descriptor, int error, unsigned call) {
  armedDescriptor = -1;
  armedError = error;
  armedCall = call;
  calls = 0;
  fired = false;
  armedDescriptor = descriptor;
}
LAYER unsigned faultLayerCalls() { return calls; }
LAYER int faultLayerFired() { return fired ? 1 : 0; }

LAYER ssize_t read(int descriptor, void* buffer, size_t bytes) {
  static auto* const real = next<ssize_t(int, void*, size_t)>("read");
  return onBuffer(descriptor, bytes, [&](size_t n) { return real(descriptor, buffer, n); });
}
LAYER ssize_t write(int descriptor, const void* buffer, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  return onBuffer(descriptor, bytes, [&](size_t n) { return real(descriptor, buffer, n); });
}
LAYER ssize_t pread64(int descriptor, void* buffer, size_t bytes, off64_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off64_t)>("pread64");
  return onBuffer(descriptor, bytes, [&](size_t n) { return real(descriptor, buffer, n, offset); });
}
LAYER ssize_t pwrite64(int descriptor, const void* buffer, size_t bytes, off64_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  return onBuffer(descriptor, bytes, [&](size_t n) { return real(descriptor, buffer, n, offset); });
}
LAYER ssize_t readv(int descriptor, const iovec* parts, int count) {
  static auto* const real = next<ssize_t(int, const iovec*, int)>("readv");
  return onVector(descriptor, parts, count,
                  [&](const iovec* half, int n) { return real(descriptor, half, n); });
}
LAYER ssize_t writev(int descriptor, const iovec* parts, int count) {
  static auto* const real = next<ssize_t(int, const iovec*, int)>("writev");
  return onVector(descriptor, parts, count,
                  [&](const iovec* half, int n) { return real(descriptor, half, n); });
}
LAYER ssize_t preadv64(int descriptor, const iovec* parts, int count, off64_t offset) {
  static auto* const real = next<ssize_t(int, const iovec*, int, off64_t)>("preadv64");
  return onVector(descriptor, parts, count,
                  [&](const iovec* half, int n) { return real(descriptor, half, n, offset); });
}
LAYER ssize_t pwritev64(int descriptor, const iovec* parts, int count, off64_t offset) {
  static auto* const real = next<ssize_t(int, const iovec*, int, off64_t)>("pwritev64");
  return onVector(descriptor, parts, count,
                  [&](const iovec* half, int n) { return real(descriptor, half, n, offset); });
}
LAYER ssize_t recvfrom(int socket, void* buffer, size_t bytes, int flags, sockaddr* address,
                       socklen_t* addressBytes) {
  static auto* const real =
      next<ssize_t(int, void*, size_t, int, sockaddr*, socklen_t*)>("recvfrom");
  return onBuffer(socket, bytes,
                  [&](size_t n) { return real(socket, buffer, n, flags, address, addressBytes); });
}
LAYER ssize_t sendto(int socket, const void* buffer, size_t bytes, int flags,
                     const sockaddr* address, socklen_t addressBytes) {
  static auto* const real =
      next<ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t)>("sendto");
  return onBuffer(socket, bytes,
                  [&](size_t n) { return real(socket, buffer, n, flags, address, addressBytes); });
}
LAYER ssize_t recvmsg(int socket, msghdr* header, int flags) {
  static auto* const real = next<ssize_t(int, msghdr*, int)>("recvmsg");
  return onVector(socket, header->msg_iov, static_cast<int>(header->msg_iovlen),
                  [&](const iovec* half, int n) {
                    msghdr changed = *header;
                    changed.msg_iov = const_cast<iovec*>(half);
                    changed.msg_iovlen = static_cast<size_t>(n);
                    const ssize_t count = real(socket, &changed, flags);
                    changed.msg_iov = header->msg_iov;
                    changed.msg_iovlen = header->msg_iovlen;
                    *header = changed;
                    return count;
                  });
}
LAYER ssize_t sendmsg(int socket, const msghdr* header, int flags) {
  static auto* const real = next<ssize_t(int, const msghdr*, int)>("sendmsg");
  return onVector(socket, header->msg_iov, static_cast<int>(header->msg_iovlen),
                  [&](const iovec* half, int n) {
                    msghdr changed = *header;
                    changed.msg_iov = const_cast<iovec*>(half);
                    changed.msg_iovlen = static_cast<size_t>(n);
                    return real(socket, &changed, flags);
                  });
}

}  // extern "C"
