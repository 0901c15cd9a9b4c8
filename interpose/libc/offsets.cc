// SPDX-License-Identifier: Apache-2.0
//
// sendfile, copy_file_range and splice move bytes between descriptors and do not touch memory; only
// the offsets that they read and update may be shared. These stand in for libc's functions in a
// program that is linked with the library or preloads it.

// The renamed large-file forms of the functions that are defined here are not wanted.
#undef _FILE_OFFSET_BITS

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/types.h>

#include <cstddef>

#include "interpose/base/real.h"
#include "interpose/libc/arguments.h"

namespace gmac::interpose {
namespace {

constinit Real<ssize_t(int, int, off64_t*, size_t)> realSendfile("sendfile64");
using TwoOffsets = Real<ssize_t(int, off64_t*, int, off64_t*, size_t, unsigned)>;
constinit TwoOffsets realCopyFileRange("copy_file_range");
constinit TwoOffsets realSplice("splice");

[[gnu::constructor]] void resolveOffsets() {
  resolveAtLoad(realSendfile, realCopyFileRange, realSplice);
}

ssize_t withOwnOffsets(TwoOffsets& real, int from, off64_t* fromOffset, int to, off64_t* toOffset,
                       std::size_t bytes, unsigned flags) {
  Argument<off64_t> ownFrom(fromOffset);
  Argument<off64_t> ownTo(toOffset);
  const ssize_t count = real(from, ownFrom.get(), to, ownTo.get(), bytes, flags);
  ownFrom.putBack();
  ownTo.putBack();
  return count;
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace io = gmac::interpose;

extern "C" {

GMAC_INTERPOSED ssize_t sendfile64(int to, int from, off64_t* offset, size_t bytes) {
  io::Argument<off64_t> own(offset);
  const ssize_t count = io::realSendfile(to, from, own.get(), bytes);
  own.putBack();
  return count;
}

// off_t and off64_t are the same on the architectures that the runtime knows.
static_assert(sizeof(off_t) == sizeof(off64_t));

GMAC_INTERPOSED ssize_t sendfile(int to, int from, off_t* offset, size_t bytes) {
  return sendfile64(to, from, offset, bytes);
}

GMAC_INTERPOSED ssize_t copy_file_range(int from, off64_t* fromOffset, int to, off64_t* toOffset,
                                        size_t bytes, unsigned flags) {
  return io::withOwnOffsets(io::realCopyFileRange, from, fromOffset, to, toOffset, bytes, flags);
}

GMAC_INTERPOSED ssize_t splice(int from, off64_t* fromOffset, int to, off64_t* toOffset,
                               size_t bytes, unsigned flags) {
  return io::withOwnOffsets(io::realSplice, from, fromOffset, to, toOffset, bytes, flags);
}

}  // extern "C"
