// SPDX-License-Identifier: Apache-2.0
//
// The benchmarks' files: a header that says what follows, then raw little-endian values. Written to
// a temporary name and renamed when complete, so that a file that exists under its own name is
// whole.
#ifndef GMAC_PARBOIL_FILES_H_
#define GMAC_PARBOIL_FILES_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "parboil/benchmark.h"

namespace parboil {

// The kind and version that a file must name to be used. Raise `version` whenever the same
// parameters produce something else: files of another version count as absent.
struct FileFormat {
  const char* kind;  // at most 15 characters, e.g. "cp.in"
  std::uint32_t version;
};

// Whether the file is there, of this format and size, and complete.
bool isCurrent(const std::filesystem::path& path, const FileFormat& format, Size size);

// The same for a file that was computed from `source`: also not older than it.
bool isCurrent(const std::filesystem::path& path, const FileFormat& format, Size size,
               const std::filesystem::path& source);

// Reads a file from its first value on. Owner of the stream; not thread-safe. Every failure, a
// stale or cut file included, is a Failure that names the file.
class InputFile {
 public:
  InputFile(const std::filesystem::path& path, const FileFormat& format, Size size);

  // One fread() of `bytes` bytes to `data`, which may be shared memory.
  void read(void* data, std::size_t bytes);
  // Bytes after the header.
  std::uint64_t payloadBytes() const { return payloadBytes_; }

 private:
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::uint64_t payloadBytes_ = 0;
};

// Writes a file. Owner of the stream and, until commit(), of the temporary file, which the
// destructor removes. Not thread-safe. Every failure is a Failure that names the file.
class OutputFile {
 public:
  OutputFile(const std::filesystem::path& path, const FileFormat& format, Size size);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // One fwrite() of `bytes` bytes from `data`, which may be shared memory.
  void write(const void* data, std::size_t bytes);
  // Goes back to `offset` bytes after the header; later writes overwrite from there.
  void seek(std::uint64_t offset);
  // Completes the header and gives the file its name.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  FileFormat format_;
  Size size_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace parboil

#endif  // GMAC_PARBOIL_FILES_H_
