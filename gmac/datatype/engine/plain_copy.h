// SPDX-License-Identifier: Apache-2.0
//
// memcpy that bypasses our interposer.
#ifndef GMAC_DATATYPE_ENGINE_PLAIN_COPY_H_
#define GMAC_DATATYPE_ENGINE_PLAIN_COPY_H_

#include <cstddef>

namespace gmac::datatype {

// memcpy. Thread-safe.
void* plainCopy(void* to, const void* from, std::size_t bytes);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_PLAIN_COPY_H_
