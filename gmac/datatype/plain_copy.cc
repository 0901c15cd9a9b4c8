// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/plain_copy.h"

#include <cstring>

namespace gmac::datatype {

void* plainCopy(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  void* end = to;
  asm volatile("rep movsb" : "+D"(end), "+S"(from), "+c"(bytes) : : "memory");
#else
  volatile char* out = static_cast<volatile char*>(to);
  for (const char* in = static_cast<const char*>(from), *last = in + bytes; in < last; ++in) {
    *out++ = *in;
  }
#endif
  return to;
}

}  // namespace gmac::datatype
