// SPDX-License-Identifier: Apache-2.0
//
// The system's liblz4 and libzstd, which are loaded when they are first needed: nearly every system
// has them, and few programs need them here.
#ifndef GMAC_DEVICE_CODE_DECOMPRESSION_H_
#define GMAC_DEVICE_CODE_DECOMPRESSION_H_

#include <cstddef>
#include <span>

namespace gmac::device_code {

enum class Compression { kLz4, kZstd };  // a block of LZ4; frames of zstd

// Decompresses into `to`, which it fills exactly. False: the bytes are damaged or have another
// length, or the system has no such library, of which a line tells at GMAC_LOG=info. Thread-safe;
// waits for no other caller.
bool decompress(Compression compression, std::span<const std::byte> from, std::span<char> to);

}  // namespace gmac::device_code

#endif  // GMAC_DEVICE_CODE_DECOMPRESSION_H_
