// SPDX-License-Identifier: Apache-2.0
//
// Packs and unpacks on the CPU.
#ifndef GMAC_DATATYPE_CPU_CPU_ENGINE_H_
#define GMAC_DATATYPE_CPU_CPU_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gmac/datatype/layout/layout.h"

namespace gmac::datatype {

struct CpuOptions {
  // The most threads, including the caller's; fewer for small amounts.
  std::size_t threads = 1;
  // Copies long pieces; not memcpy where that is interposed. Called by several threads at a time.
  void* (*copy)(void* to, const void* from, std::size_t bytes) = &std::memcpy;
};

// Copies the part [offset, offset + bytes) in packed order, which lies within the layout.
// Thread-safe; holds no lock while it copies; returns when all is copied. Not for the fault
// handler: with threads > 1 it may start helper threads, which then stay. Never fails: it copies
// alone if there are no helpers.
//
// pack: from the layout's bytes relative to `base` to `packed`, where the part begins.
void pack(const Layout& layout, std::byte* packed, const std::byte* base, std::int64_t offset,
          std::int64_t bytes, const CpuOptions& options = {});
// unpack: the reverse. Where pieces overlap, one of the values stays.
void unpack(const Layout& layout, std::byte* base, const std::byte* packed, std::int64_t offset,
            std::int64_t bytes, const CpuOptions& options = {});

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_CPU_CPU_ENGINE_H_
