// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/measured_values.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "gmac/base/descriptor.h"
#include "gmac/os/signal_mask.h"

namespace gmac::datatype {
namespace {

// "" where there is none.
std::string cacheDirectory() {
  std::string directory;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    directory = cache;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    directory = std::string(home) + "/.cache";
    (void)::mkdir(directory.c_str(), 0755);
  } else {
    return "";
  }
  directory += "/gmac";
  (void)::mkdir(directory.c_str(), 0755);
  return directory;
}

}  // namespace

MeasuredFile::MeasuredFile(std::string_view device, std::string_view kind,
                           std::string_view firstLine)
    : path_(cacheDirectory()), firstLine_(firstLine) {
  if (path_.empty()) {
    return;
  }
  path_.append("/").append(kind).append("_");
  for (const char c : device) {
    path_ += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
}

bool MeasuredFile::read(std::span<const MeasuredValue> values) const {
  const std::optional<std::string> text = path_.empty() ? std::nullopt : readWholeFile(path_);
  if (!text) {
    return false;
  }
  std::istringstream file(*text);
  std::string line;
  if (!std::getline(file, line) || line != firstLine_) {
    return false;
  }
  std::size_t found = 0;
  std::string name;
  double value = 0;
  while (file >> name >> value) {
    for (const MeasuredValue& wanted : values) {
      if (name == wanted.name && value >= 0) {
        *wanted.value = value;
        ++found;
      }
    }
  }
  return found == values.size();
}

void MeasuredFile::write(std::span<const MeasuredValue> values) const {
  if (path_.empty()) {
    return;
  }
  std::ostringstream text;
  text << firstLine_ << "\n";
  for (const MeasuredValue& value : values) {
    text << value.name << " " << *value.value << "\n";
  }
  const std::string draft = path_ + "." + std::to_string(::getpid());
  const os::FileSizeSignalKept kept;
  if (!writeWholeFile(draft, text.str())) {
    (void)::unlink(draft.c_str());
    return;
  }
  if (std::rename(draft.c_str(), path_.c_str()) != 0) {
    (void)::unlink(draft.c_str());
  }
}

}  // namespace gmac::datatype
