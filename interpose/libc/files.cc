// SPDX-License-Identifier: Apache-2.0
//
// read, write, pread and pwrite on shared memory: these stand in for libc's functions in a program
// that is linked with the library or preloads it. Calls that involve no shared memory go to the
// real function at once.

// The fortified inline forms of the functions that are defined here, and their renamed large-file
// forms, are not wanted.
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <unistd.h>

#include <cstddef>

#include "interpose/base/real.h"
#include "interpose/libc/transfer.h"

// libc's headers declare that read only writes to its buffer, so asking whether the buffer is
// shared looks like reading uninitialised memory.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

extern "C" [[noreturn]] void __chk_fail();

namespace gmac::interpose {
namespace {

constinit Real<ssize_t(int, void*, size_t)> realRead("read");
constinit Real<ssize_t(int, const void*, size_t)> realWrite("write");
constinit Real<ssize_t(int, void*, size_t, off64_t)> realPread("pread64");
constinit Real<ssize_t(int, const void*, size_t, off64_t)> realPwrite("pwrite64");
// For buffers that are shared in part.
constinit Real<ssize_t(int, const iovec*, int)> realReadv("readv");
constinit Real<ssize_t(int, const iovec*, int)> realWritev("writev");
constinit Real<ssize_t(int, const iovec*, int, off64_t)> realPreadv("preadv64");
constinit Real<ssize_t(int, const iovec*, int, off64_t)> realPwritev("pwritev64");

[[gnu::constructor]] void resolveFiles() {
  resolveAtLoad(realRead, realWrite, realPread, realPwrite, realReadv, realWritev, realPreadv,
                realPwritev);
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
  return io::transfer({Direction::kRead, descriptor, static_cast<std::byte*>(buffer), bytes, false,
                       0,
                       [&](void* piece, std::size_t length, std::size_t) {
                         return io::realRead(descriptor, piece, length);
                       },
                       [&](const iovec* parts, int count, std::size_t) {
                         return io::realReadv(descriptor, parts, count);
                       }});
}

GMAC_INTERPOSED ssize_t write(int descriptor, const void* buffer, size_t bytes) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realWrite(descriptor, buffer, bytes);
  return io::transfer({Direction::kWrite, descriptor,
                       static_cast<std::byte*>(const_cast<void*>(buffer)), bytes, false, 0,
                       [&](void* piece, std::size_t length, std::size_t) {
                         return io::realWrite(descriptor, piece, length);
                       },
                       [&](const iovec* parts, int count, std::size_t) {
                         return io::realWritev(descriptor, parts, count);
                       }});
}

GMAC_INTERPOSED ssize_t pread64(int descriptor, void* buffer, size_t bytes, off64_t offset) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realPread(descriptor, buffer, bytes, offset);
  return io::transfer(
      {Direction::kRead, descriptor, static_cast<std::byte*>(buffer), bytes, true, offset,
       [&](void* piece, std::size_t length, std::size_t done) {
         return io::realPread(descriptor, piece, length, offset + static_cast<off64_t>(done));
       },
       [&](const iovec* parts, int count, std::size_t done) {
         return io::realPreadv(descriptor, parts, count, offset + static_cast<off64_t>(done));
       }});
}

GMAC_INTERPOSED ssize_t pwrite64(int descriptor, const void* buffer, size_t bytes, off64_t offset) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realPwrite(descriptor, buffer, bytes, offset);
  return io::transfer(
      {Direction::kWrite, descriptor, static_cast<std::byte*>(const_cast<void*>(buffer)), bytes,
       true, offset,
       [&](void* piece, std::size_t length, std::size_t done) {
         return io::realPwrite(descriptor, piece, length, offset + static_cast<off64_t>(done));
       },
       [&](const iovec* parts, int count, std::size_t done) {
         return io::realPwritev(descriptor, parts, count, offset + static_cast<off64_t>(done));
       }});
}

// off_t and off64_t are the same on the architectures that the runtime knows.
static_assert(sizeof(off_t) == sizeof(off64_t));

GMAC_INTERPOSED ssize_t pread(int descriptor, void* buffer, size_t bytes, off_t offset) {
  return pread64(descriptor, buffer, bytes, offset);
}

GMAC_INTERPOSED ssize_t pwrite(int descriptor, const void* buffer, size_t bytes, off_t offset) {
  return pwrite64(descriptor, buffer, bytes, offset);
}

// The forms that a compiler calls instead where it knows the buffer's size (_FORTIFY_SOURCE).

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
