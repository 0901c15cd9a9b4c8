// SPDX-License-Identifier: Apache-2.0
#include "gmac/observe/report_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gmac/base/descriptor.h"
#include "gmac/base/own_system_call.h"
#include "gmac/os/signal_mask.h"

namespace gmac {
namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;

}  // namespace

ReportFile::~ReportFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporaryPath_.empty()) ::unlink(temporaryPath_.c_str());
}

Status ReportFile::failHere(const char* operation) const {
  const int error = errno;
  return fail(adsmErrorSystem, "cannot {} {}: {}", operation,
              temporaryPath_.empty() ? path_ : temporaryPath_, std::strerror(error));
}

Status ReportFile::open(const std::string& path) {
  path_ = path;
  struct stat existing;
  if (::stat(path.c_str(), &existing) == 0) {
    if (!S_ISREG(existing.st_mode)) {
      descriptor_ = aboveStandard(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
      return descriptor_ < 0 ? failHere("open") : Status();
    }
    // A link stays a link: its target is replaced.
    if (char* const target = ::realpath(path.c_str(), nullptr); target != nullptr) {
      path_ = target;
      std::free(target);
    }
  }
  temporaryPath_ = fmt::format("{}.{}.tmp", path_, ::getpid());
  descriptor_ =
      aboveStandard(::open(temporaryPath_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (descriptor_ < 0) {
    const Status failed = failHere("create");
    temporaryPath_.clear();
    return failed;
  }
  return Status();
}

Status ReportFile::append(std::string_view text) {
  buffer_.append(text);
  return buffer_.size() < kBufferBytes ? Status() : writeOut();
}

Status ReportFile::writeOut() {
  const os::FileSizeSignalKept kept;
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const long written =
        ownSystemCall(SYS_write, descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failHere("write");
    done += static_cast<std::size_t>(written);
  }
  buffer_.clear();
  return Status();
}

Status ReportFile::commit() {
  GMAC_TRY(writeOut());
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0) return failHere("close");
  if (temporaryPath_.empty()) return Status();
  if (std::rename(temporaryPath_.c_str(), path_.c_str()) != 0) return failHere("rename");
  temporaryPath_.clear();
  return Status();
}

void appendJsonString(std::string& json, std::string_view text) {
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      json += c;
    }
  }
  json += '"';
}

}  // namespace gmac
