// SPDX-License-Identifier: Apache-2.0
//
// read, write, pread and pwrite on shared memory: these stand in for libc's functions in a program
// that is linked with the library or preloads it. What involves no shared memory goes to the real
// function at once.

// The fortified inline forms of the functions that are defined here, and their renamed large-file
// forms, are not wanted.
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <unistd.h>

#include <cstddef>

#include "interpose/real.h"
#include "interpose/transfer.h"

// libc's headers say that read only writes to its buffer, so that asking whether the buffer is
// shared looks like reading what is not initialised.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

extern "C" [[noreturn]] void __chk_fail();

namespace gmac::interpose {
namespace {

constinit Real<ssize_t(int, void*, size_t)> realRead("read");
constinit Real<ssize_t(int, const void*, size_t)> realWrite("write");
constinit Real<ssize_t(int, void*, size_t, off64_t)> realPread("pread64");
constinit Real<ssize_t(int, const void*, size_t, off64_t)> realPwrite("pwrite64");

[[gnu::constructor]] void resolveFiles() {
  resolveAtLoad(realRead, realWrite, realPread, realPwrite);
}

ssize_t transferAtPosition(Direction direction, int descriptor, const void* buffer,
                           std::size_t bytes, const RealCall& call) {
  return transfer({direction, descriptor, static_cast<std::byte*>(const_cast<void*>(buffer)), bytes,
                   false, 0, call});
}

ssize_t transferAtOffset(Direction direction, int descriptor, const void* buffer, std::size_t bytes,
                         off64_t offset, const RealCall& call) {
  return transfer({direction, descriptor, static_cast<std::byte*>(const_cast<void*>(buffer)), bytes,
                   true, offset, call});
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace io = gmac::interpose;
using io::Direction;

extern "C" {

GMAC_INTERPOSED ssize_t read(int descriptor, void* buffer, size_t bytes) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realRead(descriptor, buffer, bytes);
  return io::transferAtPosition(Direction::kRead, descriptor, buffer, bytes,
                                [&](void* piece, std::size_t length, std::size_t) {
                                  return io::realRead(descriptor, piece, length);
                                });
}

GMAC_INTERPOSED ssize_t write(int descriptor, const void* buffer, size_t bytes) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realWrite(descriptor, buffer, bytes);
  return io::transferAtPosition(Direction::kWrite, descriptor, buffer, bytes,
                                [&](const void* piece, std::size_t length, std::size_t) {
                                  return io::realWrite(descriptor, piece, length);
                                });
}

GMAC_INTERPOSED ssize_t pread64(int descriptor, void* buffer, size_t bytes, off64_t offset) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realPread(descriptor, buffer, bytes, offset);
  return io::transferAtOffset(Direction::kRead, descriptor, buffer, bytes, offset,
                              [&](void* piece, std::size_t length, std::size_t done) {
                                return io::realPread(descriptor, piece, length,
                                                     offset + static_cast<off64_t>(done));
                              });
}

GMAC_INTERPOSED ssize_t pwrite64(int descriptor, const void* buffer, size_t bytes, off64_t offset) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realPwrite(descriptor, buffer, bytes, offset);
  return io::transferAtOffset(Direction::kWrite, descriptor, buffer, bytes, offset,
                              [&](const void* piece, std::size_t length, std::size_t done) {
                                return io::realPwrite(descriptor, piece, length,
                                                      offset + static_cast<off64_t>(done));
                              });
}

// off_t and off64_t are the same on the architectures that the runtime knows.
static_assert(sizeof(off_t) == sizeof(off64_t));

GMAC_INTERPOSED ssize_t pread(int descriptor, void* buffer, size_t bytes, off_t offset) {
  return pread64(descriptor, buffer, bytes, offset);
}

GMAC_INTERPOSED ssize_t pwrite(int descriptor, const void* buffer, size_t bytes, off_t offset) {
  return pwrite64(descriptor, buffer, bytes, offset);
}

// What a compiler makes of the calls above where it knows the buffer's size (_FORTIFY_SOURCE).

GMAC_INTERPOSED ssize_t __read_chk(int descriptor, void* buffer, size_t bytes, size_t room) {
  if (bytes > room) __chk_fail();
  return read(descriptor, buffer, bytes);
}

GMAC_INTERPOSED ssize_t __pread_chk(int descriptor, void* buffer, size_t bytes, off_t offset,
                                    size_t room) {
  if (bytes > room) __chk_fail();
  return pread64(descriptor, buffer, bytes, offset);
}

GMAC_INTERPOSED ssize_t __pread64_chk(int descriptor, void* buffer, size_t bytes, off64_t offset,
                                      size_t room) {
  if (bytes > room) __chk_fail();
  return pread64(descriptor, buffer, bytes, offset);
}

}  // extern "C"
