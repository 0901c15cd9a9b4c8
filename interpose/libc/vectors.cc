// SPDX-License-Identifier: Apache-2.0
//
// readv, writev, their positioned forms and vmsplice on vectors with shared parts: these stand in
// for libc's functions in a program that is linked with the library or preloads it. Calls that
// involve no shared memory go to the real function at once.

// The renamed large-file forms of the functions that are defined here are not wanted.
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <fcntl.h>
#include <sys/uio.h>

#include <climits>
#include <cstddef>

#include "gmac/base/cancellation.h"
#include "interpose/base/real.h"
#include "interpose/libc/arguments.h"
#include "interpose/libc/transfer.h"

namespace gmac::interpose {
namespace {

constinit Real<ssize_t(int, const iovec*, int)> realReadv("readv");
constinit Real<ssize_t(int, const iovec*, int)> realWritev("writev");
using RealAt = Real<ssize_t(int, const iovec*, int, off64_t)>;
constinit RealAt realPreadv("preadv64");
constinit RealAt realPwritev("pwritev64");
using RealWithFlags = Real<ssize_t(int, const iovec*, int, off64_t, int)>;
constinit RealWithFlags realPreadv2("preadv64v2");
constinit RealWithFlags realPwritev2("pwritev64v2");

constinit Real<ssize_t(int, const iovec*, size_t, unsigned)> realVmsplice("vmsplice");

[[gnu::constructor]] void resolveVectors() {
  resolveAtLoad(realReadv, realWritev, realPreadv, realPwritev, realPreadv2, realPwritev2,
                realVmsplice);
}

// One call. Pieces aside, the real call decides where its bytes lie in the file.
struct Place {
  bool positioned;
  off64_t offset;
  bool mayBeCut;
};
constexpr Place kAtPosition = {false, 0, true};

constexpr Place placeAt(off64_t offset) { return {true, offset, true}; }

// -1 means the descriptor's own position. With flags, only the kernel knows what a call means.
constexpr Place placeAt(off64_t offset, int flags) {
  return offset == -1 ? Place{false, 0, flags == 0} : Place{true, offset, flags == 0};
}

ssize_t transferVector(Direction direction, int descriptor, const iovec* parts, int count,
                       const Place& place, const RealVectorCall& call) {
  const CallersVector given(parts, count < 0 ? 0 : static_cast<std::size_t>(count));
  if (!given.isOurs()) return call(given.parts(), count, 0);
  return transfer({direction, descriptor, given.vector(), place.positioned, place.offset,
                   place.mayBeCut, call});
}

ssize_t transferAt(Direction direction, RealAt& real, int descriptor, const iovec* parts, int count,
                   off64_t offset) {
  return transferVector(direction, descriptor, parts, count, placeAt(offset),
                        [&](const iovec* run, int runCount, std::size_t done) {
                          return real(descriptor, run, runCount,
                                      offset + static_cast<off64_t>(done));
                        });
}

ssize_t transferAt(Direction direction, RealWithFlags& real, int descriptor, const iovec* parts,
                   int count, off64_t offset, int flags) {
  const Place place = placeAt(offset, flags);
  return transferVector(direction, descriptor, parts, count, place,
                        [&](const iovec* run, int runCount, std::size_t done) {
                          const off64_t at =
                              place.positioned ? offset + static_cast<off64_t>(done) : offset;
                          return real(descriptor, run, runCount, at, flags);
                        });
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace io = gmac::interpose;
using io::Direction;

extern "C" {

GMAC_INTERPOSED ssize_t readv(int descriptor, const iovec* parts, int count) {
  return io::transferVector(Direction::kRead, descriptor, parts, count, io::kAtPosition,
                            [&](const iovec* run, int runCount, std::size_t) {
                              return io::realReadv(descriptor, run, runCount);
                            });
}

GMAC_INTERPOSED ssize_t writev(int descriptor, const iovec* parts, int count) {
  return io::transferVector(Direction::kWrite, descriptor, parts, count, io::kAtPosition,
                            [&](const iovec* run, int runCount, std::size_t) {
                              return io::realWritev(descriptor, run, runCount);
                            });
}

GMAC_INTERPOSED ssize_t preadv64(int descriptor, const iovec* parts, int count, off64_t offset) {
  return io::transferAt(Direction::kRead, io::realPreadv, descriptor, parts, count, offset);
}

GMAC_INTERPOSED ssize_t pwritev64(int descriptor, const iovec* parts, int count, off64_t offset) {
  return io::transferAt(Direction::kWrite, io::realPwritev, descriptor, parts, count, offset);
}

GMAC_INTERPOSED ssize_t preadv64v2(int descriptor, const iovec* parts, int count, off64_t offset,
                                   int flags) {
  return io::transferAt(Direction::kRead, io::realPreadv2, descriptor, parts, count, offset, flags);
}

GMAC_INTERPOSED ssize_t pwritev64v2(int descriptor, const iovec* parts, int count, off64_t offset,
                                    int flags) {
  return io::transferAt(Direction::kWrite, io::realPwritev2, descriptor, parts, count, offset,
                        flags);
}

// off_t and off64_t are the same on the architectures that the runtime knows.
static_assert(sizeof(off_t) == sizeof(off64_t));

GMAC_INTERPOSED ssize_t preadv(int descriptor, const iovec* parts, int count, off_t offset) {
  return preadv64(descriptor, parts, count, offset);
}

GMAC_INTERPOSED ssize_t pwritev(int descriptor, const iovec* parts, int count, off_t offset) {
  return pwritev64(descriptor, parts, count, offset);
}

GMAC_INTERPOSED ssize_t preadv2(int descriptor, const iovec* parts, int count, off_t offset,
                                int flags) {
  return preadv64v2(descriptor, parts, count, offset, flags);
}

GMAC_INTERPOSED ssize_t pwritev2(int descriptor, const iovec* parts, int count, off_t offset,
                                 int flags) {
  return pwritev64v2(descriptor, parts, count, offset, flags);
}

// The pipe gets private pages: it has the bytes as they were at the call.
GMAC_INTERPOSED ssize_t vmsplice(int descriptor, const iovec* parts, size_t count, unsigned flags) {
  const auto call = [&](const io::Vector& vector) {
    return io::realVmsplice(descriptor, vector.parts, vector.count, flags);
  };
  if (!gmac::coherence::anythingShared()) [[likely]]
    return call({parts, count});
  return gmac::cancellationPoint([&]() -> ssize_t {
    const io::CallersVector given(parts, count);
    if (!given.isOurs()) return gmac::cancellably([&] { return call({given.parts(), count}); });
    const int mode = fcntl(descriptor, F_GETFL) & O_ACCMODE;
    return io::transferOnPrivateMemory(mode == O_RDONLY ? Direction::kRead : Direction::kWrite,
                                       given.vector(), {.kernelKeeps = true}, call);
  });
}

}  // extern "C"
