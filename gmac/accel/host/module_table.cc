// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/module_table.h"

#include <link.h>

#include <cstring>

namespace gmac::accel::host {
namespace {

struct PlaceSearch {
  std::uintptr_t address;
  SegmentUse use;
  std::optional<ModulePlace> found;
};

int visitForPlace(dl_phdr_info* info, std::size_t /*size*/, void* data) {
  auto& search = *static_cast<PlaceSearch*>(data);
  bool inside = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const std::uintptr_t start = info->dlpi_addr + header.p_vaddr;
    if (search.address < start || search.address - start >= header.p_memsz) {
      continue;
    }
    const ElfW(Word) right = search.use == SegmentUse::kExecute ? PF_X : PF_W;
    inside = inside || (header.p_type == PT_LOAD && (header.p_flags & right) != 0);
    if (header.p_type == PT_GNU_RELRO && search.use == SegmentUse::kWrite) {
      return 1;  // read-only since the module was loaded
    }
  }
  if (!inside) {
    return 0;
  }
  const std::size_t length = std::strlen(info->dlpi_name);
  if (length < PATH_MAX) {
    search.found.emplace();
    std::memcpy(search.found->module.data(), info->dlpi_name, length + 1);
    search.found->offset = static_cast<std::intptr_t>(search.address - info->dlpi_addr);
  }
  return 1;
}

struct NameSearch {
  const char* name;
  std::optional<std::uintptr_t> found;
};

int visitForName(dl_phdr_info* info, std::size_t /*size*/, void* data) {
  auto& search = *static_cast<NameSearch*>(data);
  if (std::strcmp(info->dlpi_name, search.name) != 0) {
    return 0;
  }
  search.found = info->dlpi_addr;
  return 1;
}

}  // namespace

std::optional<ModulePlace> placeOf(const void* address, SegmentUse use) {
  PlaceSearch search{reinterpret_cast<std::uintptr_t>(address), use, std::nullopt};
  dl_iterate_phdr(visitForPlace, &search);
  return search.found;
}

std::optional<std::uintptr_t> loadAddressOf(const char* module) {
  NameSearch search{module, std::nullopt};
  dl_iterate_phdr(visitForName, &search);
  return search.found;
}

}  // namespace gmac::accel::host
