// SPDX-License-Identifier: Apache-2.0
//
// setvbuf, setbuffer and setbuf with a shared buffer: these stand in for libc's functions in a
// program that is linked with the library or preloads it. The C library fills and empties a
// stream's buffer by system calls of its own that nothing can come before; the standard lets it use
// a buffer of its own instead of the one that it is given, and that is what it is told to do.
#include <stdio.h>

#include <cstddef>

#include "gmac/coherence/port.h"
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
