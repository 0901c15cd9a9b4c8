// SPDX-License-Identifier: Apache-2.0
#include "parboil/files.h"

#include <errno.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

namespace parboil {
namespace {

constexpr char kMagic[8] = {'P', 'A', 'R', 'B', 'O', 'I', 'L', '\n'};

struct FileHeader {
  char magic[8];
  char kind[16];
  std::uint32_t version;
  std::uint32_t size;
  std::uint64_t payloadBytes;
  char reserved[24];
};
static_assert(sizeof(FileHeader) == 64);

FileHeader makeHeader(const FileFormat& format, Size size, std::uint64_t payloadBytes) {
  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::strncpy(header.kind, format.kind, sizeof header.kind - 1);
  header.version = format.version;
  header.size = static_cast<std::uint32_t>(size);
  header.payloadBytes = payloadBytes;
  return header;
}

[[noreturn]] void failOn(const std::filesystem::path& path, const char* what, int error) {
  throw Failure(fmt::format("{} {}: {}", what, path.string(), strerror(error)));
}

// Payload bytes of an open file whose header matches and whose length is as the header says.
std::optional<std::uint64_t> currentPayload(std::FILE* file, const FileFormat& format, Size size) {
  FileHeader header;
  if (std::fread(&header, sizeof header, 1, file) != 1) return std::nullopt;
  const FileHeader wanted = makeHeader(format, size, header.payloadBytes);
  if (std::memcmp(&header, &wanted, sizeof header) != 0) return std::nullopt;
  struct stat info;
  if (fstat(fileno(file), &info) != 0) return std::nullopt;
  if (static_cast<std::uint64_t>(info.st_size) != sizeof header + header.payloadBytes)
    return std::nullopt;
  return header.payloadBytes;
}

}  // namespace

const char* sizeName(Size size) noexcept {
  switch (size) {
    case Size::kSmall:
      return "small";
    case Size::kMedium:
      return "medium";
    case Size::kLarge:
      return "large";
  }
  return "unknown";
}

std::filesystem::path dataPath(const Context& context, const char* benchmark, const char* kind) {
  return context.dir / fmt::format("{}-{}.{}", benchmark, sizeName(context.size), kind);
}

bool isCurrent(const std::filesystem::path& path, const FileFormat& format, Size size) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  return file != nullptr && currentPayload(file.get(), format, size).has_value();
}

bool isCurrent(const std::filesystem::path& path, const FileFormat& format, Size size,
               const std::filesystem::path& source) {
  std::error_code error;
  const auto mine = std::filesystem::last_write_time(path, error);
  if (error) return false;
  const auto theirs = std::filesystem::last_write_time(source, error);
  return !error && mine >= theirs && isCurrent(path, format, size);
}

InputFile::InputFile(const std::filesystem::path& path, const FileFormat& format, Size size)
    : path_(path), file_(std::fopen(path.c_str(), "rb"), &std::fclose) {
  if (file_ == nullptr) failOn(path, "cannot open", errno);
  const auto payload = currentPayload(file_.get(), format, size);
  if (!payload) {
    throw Failure(fmt::format("{} is no complete {} file of version {} and size {}", path.string(),
                              format.kind, format.version, sizeName(size)));
  }
  payloadBytes_ = *payload;
}

void InputFile::read(void* data, std::size_t bytes) {
  const std::size_t got = std::fread(data, 1, bytes, file_.get());
  if (got == bytes) return;
  if (std::ferror(file_.get())) failOn(path_, "cannot read", errno);
  throw Failure(fmt::format("{} ends {} bytes early", path_.string(), bytes - got));
}

OutputFile::OutputFile(const std::filesystem::path& path, const FileFormat& format, Size size)
    : path_(path),
      temporary_(path.string() + fmt::format(".{}.tmp", getpid())),
      format_(format),
      size_(size),
      file_(std::fopen(temporary_.c_str(), "wb"), &std::fclose) {
  if (file_ == nullptr) failOn(temporary_, "cannot create", errno);
  // Until commit() the header matches nothing.
  const FileHeader header{};
  write(&header, sizeof header);
}

OutputFile::~OutputFile() {
  if (file_ != nullptr) unlink(temporary_.c_str());
}

void OutputFile::write(const void* data, std::size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) != bytes) failOn(temporary_, "cannot write", errno);
}

void OutputFile::seek(std::uint64_t offset) {
  if (fseeko(file_.get(), static_cast<off_t>(sizeof(FileHeader) + offset), SEEK_SET) != 0) {
    failOn(temporary_, "cannot seek in", errno);
  }
}

void OutputFile::commit() {
  if (fseeko(file_.get(), 0, SEEK_END) != 0) failOn(temporary_, "cannot seek in", errno);
  const off_t end = ftello(file_.get());
  if (end < 0) failOn(temporary_, "cannot seek in", errno);
  const FileHeader header =
      makeHeader(format_, size_, static_cast<std::uint64_t>(end) - sizeof(FileHeader));
  if (fseeko(file_.get(), 0, SEEK_SET) != 0) failOn(temporary_, "cannot seek in", errno);
  write(&header, sizeof header);
  if (std::fflush(file_.get()) != 0) failOn(temporary_, "cannot write", errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) failOn(path_, "cannot rename to", errno);
  file_.reset();
}

}  // namespace parboil
