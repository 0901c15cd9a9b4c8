// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/cpu_bytes.h"

#include "gmac/datatype/engine/cpu_may_use.h"
#include "gmac/datatype/engine/plain_copy.h"

namespace {

bool mayCopy(const void* shared, std::size_t bytes, bool writes) {
  return bytes > 0 && bytes <= gmac::datatype::kMostUnheldBytes &&
         gmac::datatype::cpuMayUse(shared, bytes, writes);
}

}  // namespace

int gmacReadOnCpu(void* to, const void* shared, size_t bytes) {
  if (!mayCopy(shared, bytes, false)) return 0;
  (void)gmac::datatype::plainCopy(to, shared, bytes);
  return 1;
}

int gmacWriteOnCpu(void* shared, const void* from, size_t bytes) {
  if (!mayCopy(shared, bytes, true)) return 0;
  (void)gmac::datatype::plainCopy(shared, from, bytes);
  return 1;
}
