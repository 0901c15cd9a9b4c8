// SPDX-License-Identifier: Apache-2.0
//
// sendfile, copy_file_range and splice move bytes between descriptors, past memory; only the
// offsets that they read and update may be shared. These stand in for libc's functions in a program
// that is linked with the library or preloads it.

// The renamed large-file forms of the functions that are defined here are not wanted.
#undef _FILE_OFFSET_BITS

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/types.h>

#include <cstddef>

#include "interpose/arguments.h"
#include "interpose/real.h"

namespace gmac::interpose {
namespace {

constinit Real<ssize_t(int, int, off64_t*, size_t)> realSendfile("sendfile64");
constinit Real<ssize_t(int, off64_t*, int, off64_t*, size_t, unsigned)> realCopyFileRange(
    "copy_file_range");
constinit Real<ssize_t(int, off64_t*, int, off64_t*, size_t, unsigned)> realSplice("splice");

[[gnu::constructor]] void resolveOffsets() {
  resolveAtLoad(realSendfile, realCopyFileRange, realSplice);
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
  io::Argument<off64_t> ownFrom(fromOffset);
  io::Argument<off64_t> ownTo(toOffset);
  const ssize_t count = io::realCopyFileRange(from, ownFrom.get(), to, ownTo.get(), bytes, flags);
  ownFrom.putBack();
  ownTo.putBack();
  return count;
}

GMAC_INTERPOSED ssize_t splice(int from, off64_t* fromOffset, int to, off64_t* toOffset,
                               size_t bytes, unsigned flags) {
  io::Argument<off64_t> ownFrom(fromOffset);
  io::Argument<off64_t> ownTo(toOffset);
  const ssize_t count = io::realSplice(from, ownFrom.get(), to, ownTo.get(), bytes, flags);
  ownFrom.putBack();
  ownTo.putBack();
  return count;
}

}  // extern "C"
