// SPDX-License-Identifier: Apache-2.0
#include "tools/gmac/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/gmac/failure.h"

namespace gmac::command {
namespace {

#if defined(__x86_64__)
constexpr unsigned kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kThisMachine = EM_AARCH64;
#else
#error "which machine's programs can load the library?"
#endif

}  // namespace

ElfFile::ElfFile(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  const bool sized = descriptor >= 0 && ::fstat(descriptor, &status) == 0;
  size_ = sized ? static_cast<std::size_t>(status.st_size) : 0;
  void* const mapped =
      size_ > 0 ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0) : nullptr;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!sized || mapped == MAP_FAILED) {
    refuse(Ending::kCannotRun, "cannot read {}, to see whether a library can be loaded into it: {}",
           path, std::strerror(error));
  }
  bytes_ = static_cast<const char*>(mapped);
}

ElfFile::~ElfFile() {
  if (bytes_ != nullptr) ::munmap(const_cast<char*>(bytes_), size_);
}

template <typename T>
bool ElfFile::readAt(std::uint64_t offset, T& value) const {
  if (offset > size_ || size_ - offset < sizeof value) return false;
  std::memcpy(&value, bytes_ + offset, sizeof value);
  return true;
}

bool ElfFile::isElf() const {
  return size_ >= SELFMAG && std::memcmp(bytes_, ELFMAG, SELFMAG) == 0;
}

bool ElfFile::isOfThisMachine() const {
  Elf64_Ehdr header;
  return readAt(0, header) && header.e_ident[EI_CLASS] == ELFCLASS64 &&
         header.e_machine == kThisMachine;
}

template <typename Visit>
void ElfFile::forEachSegment(Visit visit) const {
  Elf64_Ehdr header;
  if (!isOfThisMachine() || !readAt(0, header)) return;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!readAt(header.e_phoff + std::uint64_t{i} * header.e_phentsize, segment)) return;
    visit(segment);
  }
}

std::string ElfFile::missingPart() const {
  Elf64_Ehdr header;
  if (!readAt(0, header)) {
    return fmt::format("it has {} bytes, and its header {}", size_, sizeof header);
  }
  if (!isOfThisMachine()) return {};
  const std::uint64_t tableBytes = std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  if (header.e_phnum > 0 && header.e_phentsize != sizeof(Elf64_Phdr)) {
    return fmt::format("the entries of its table of segments have {} bytes, not {}",
                       header.e_phentsize, sizeof(Elf64_Phdr));
  }
  if (header.e_phoff > size_ || tableBytes > size_ - header.e_phoff) {
    return fmt::format("it has {} bytes, and its table of segments {} at offset {}", size_,
                       tableBytes, header.e_phoff);
  }
  std::string missing;
  forEachSegment([&](const Elf64_Phdr& segment) {
    const bool isRead =
        segment.p_type == PT_LOAD || segment.p_type == PT_INTERP || segment.p_type == PT_DYNAMIC;
    if (missing.empty() && isRead &&
        (segment.p_offset > size_ || segment.p_filesz > size_ - segment.p_offset)) {
      missing = fmt::format("it has {} bytes, and a segment of {} at offset {}", size_,
                            segment.p_filesz, segment.p_offset);
    }
  });
  return missing;
}

bool ElfFile::hasDynamicLinker() const {
  bool found = false;
  forEachSegment([&](const Elf64_Phdr& segment) { found = found || segment.p_type == PT_INTERP; });
  return found;
}

std::uint64_t ElfFile::offsetOf(std::uint64_t address) const {
  std::uint64_t offset = size_;
  forEachSegment([&](const Elf64_Phdr& segment) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz) {
      offset = segment.p_offset + (address - segment.p_vaddr);
    }
  });
  return offset;
}

std::string_view ElfFile::stringAt(std::uint64_t offset) const {
  if (offset >= size_) return {};
  const char* const first = bytes_ + offset;
  return {first, static_cast<std::size_t>(std::find(first, bytes_ + size_, '\0') - first)};
}

std::vector<std::string> ElfFile::neededLibraries() const {
  std::vector<std::uint64_t> nameOffsets;
  std::uint64_t strings = size_;
  forEachSegment([&](const Elf64_Phdr& segment) {
    if (segment.p_type != PT_DYNAMIC) return;
    for (std::uint64_t at = 0; at < segment.p_filesz; at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn entry;
      if (!readAt(segment.p_offset + at, entry) || entry.d_tag == DT_NULL) return;
      if (entry.d_tag == DT_NEEDED) nameOffsets.push_back(entry.d_un.d_val);
      if (entry.d_tag == DT_STRTAB) strings = offsetOf(entry.d_un.d_ptr);
    }
  });
  std::vector<std::string> names;
  if (strings >= size_) return names;
  for (const std::uint64_t offset : nameOffsets) {
    if (offset < size_) names.emplace_back(stringAt(strings + offset));
  }
  return names;
}

std::string_view ElfFile::interpreterLine() const {
  // The kernel reads so many bytes of a script.
  constexpr std::size_t kMostBytes = 256;
  const std::string_view start(bytes_, std::min(size_, kMostBytes));
  if (!start.starts_with("#!")) return {};
  const std::string_view line = start.substr(2);
  return line.substr(0, line.find('\n'));
}

}  // namespace gmac::command
