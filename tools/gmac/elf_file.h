// SPDX-License-Identifier: Apache-2.0
//
// The words of an executable file about how it is started.
#ifndef GMAC_TOOLS_GMAC_ELF_FILE_H_
#define GMAC_TOOLS_GMAC_ELF_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gmac::command {

// An executable file, mapped. Nothing in it is trusted: whatever lies outside the file reads as not
// there. Owns the mapping; not thread-safe.
class ElfFile {
 public:
  // Throws Failure (kCannotRun) when the file cannot be read.
  explicit ElfFile(const std::string& path);
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  bool isElf() const;
  // A program of the machine that this command was built for.
  bool isOfThisMachine() const;
  // Which part of a program of this machine the file says it has and has not, as half a sentence;
  // empty for a whole one.
  std::string missingPart() const;
  // It names a dynamic linker, which is what preloads libraries.
  bool hasDynamicLinker() const;
  // The libraries it names, in its order; empty for a program without a dynamic linker.
  std::vector<std::string> neededLibraries() const;

  // The first line less "#!" for a script, else empty.
  std::string_view interpreterLine() const;

 private:
  // `count` bytes at `offset` as a T, where the file has them.
  template <typename T>
  bool readAt(std::uint64_t offset, T& value) const;
  template <typename Visit>
  void forEachSegment(Visit visit) const;
  // Where in the file the byte lies that the program finds at `address`; the file's size when
  // nowhere.
  std::uint64_t offsetOf(std::uint64_t address) const;
  std::string_view stringAt(std::uint64_t offset) const;

  const char* bytes_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gmac::command

#endif  // GMAC_TOOLS_GMAC_ELF_FILE_H_
