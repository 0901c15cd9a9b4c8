// SPDX-License-Identifier: Apache-2.0
//
// Packs and unpacks on the CPU, where the bytes are current there.
#ifndef GMAC_DATATYPE_CPU_ENGINE_H_
#define GMAC_DATATYPE_CPU_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gmac/datatype/layout.h"

namespace gmac::datatype {

struct CpuOptions {
  // At most, the caller's included; fewer where the amount does not pay for more.
  std::size_t threads = 1;
  // What copies long pieces: the C library's own where memcpy is somebody else's by now. Called by
  // several threads at a time.
  void* (*copy)(void* to, const void* from, std::size_t bytes) = &std::memcpy;
};

// Copies the part [offset, offset + bytes) in packed order, which lies in the layout; any part.
// Thread-safe, and takes no lock that it holds while it copies; on return all is copied. Not for
// the fault handler: with threads > 1 it may start some, which then stay. Never fails: without
// threads to be had it copies alone, and so it does while another caller has them.
//
// pack: from the places that the layout names, `base` being its origin, to where the part begins.
void pack(const Layout& layout, std::byte* packed, const std::byte* base, std::int64_t offset,
          std::int64_t bytes, const CpuOptions& options = {});
// unpack: from where the part begins to those places. Where pieces overlap, one of the values
// stays.
void unpack(const Layout& layout, std::byte* base, const std::byte* packed, std::int64_t offset,
            std::int64_t bytes, const CpuOptions& options = {});

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_CPU_ENGINE_H_
