// SPDX-License-Identifier: Apache-2.0
//
// setvbuf, setbuffer and setbuf with a shared buffer: these stand in for libc's functions in a
// program that is linked with the library or preloads it. libc fills and empties a stream's buffer
// with system calls of its own, which cannot be intercepted. The standard allows it to use a buffer
// of its own instead, so it is told to do that.
#include <stdio.h>

#include <cstddef>

#include "gmac/coherence/memory_port.h"
#include "interpose/base/real.h"

namespace gmac::interpose {
namespace {

constinit Real<int(FILE*, char*, int, size_t)> realSetvbuf("setvbuf");
constinit Real<void(FILE*, char*, size_t)> realSetbuffer("setbuffer");

[[gnu::constructor]] void resolveStreamBuffers() { resolveAtLoad(realSetvbuf, realSetbuffer); }

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace io = gmac::interpose;

extern "C" {

GMAC_INTERPOSED int setvbuf(FILE* stream, char* buffer, int mode, size_t bytes) {
  if (gmac::coherence::touchesShared(buffer, bytes)) buffer = nullptr;
  return io::realSetvbuf(stream, buffer, mode, bytes);
}

GMAC_INTERPOSED void setbuffer(FILE* stream, char* buffer, size_t bytes) {
  if (gmac::coherence::touchesShared(buffer, bytes)) {
    static_cast<void>(io::realSetvbuf(stream, nullptr, _IOFBF, bytes));
    return;
  }
  io::realSetbuffer(stream, buffer, bytes);
}

GMAC_INTERPOSED void setbuf(FILE* stream, char* buffer) { setbuffer(stream, buffer, BUFSIZ); }

}  // extern "C"
