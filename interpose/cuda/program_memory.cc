// SPDX-License-Identifier: Apache-2.0
#include "interpose/cuda/program_memory.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace gmac::interpose {

bool isConstantOfProgram(std::span<const std::byte> bytes) noexcept {
  dl_find_object found{};
  if (bytes.empty() || _dl_find_object(const_cast<std::byte*>(bytes.data()), &found) != 0) {
    return false;
  }
  // The file's headers are the first that is mapped of it.
  const auto* const map = static_cast<const std::byte*>(found.dlfo_map_start);
  const auto mapped =
      static_cast<std::size_t>(static_cast<const std::byte*>(found.dlfo_map_end) - map);
  ElfW(Ehdr) header;
  if (mapped < sizeof header) return false;
  std::memcpy(&header, map, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(ElfW(Phdr)) || header.e_phoff > mapped ||
      mapped - header.e_phoff < std::size_t{header.e_phnum} * sizeof(ElfW(Phdr))) {
    return false;
  }
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    std::memcpy(&segment, map + header.e_phoff + i * sizeof segment, sizeof segment);
    const std::uintptr_t begin = found.dlfo_link_map->l_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_W) == 0 && first >= begin &&
        bytes.size() <= segment.p_filesz && first - begin <= segment.p_filesz - bytes.size()) {
      return true;
    }
  }
  return false;
}

}  // namespace gmac::interpose
