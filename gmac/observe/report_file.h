// SPDX-License-Identifier: Apache-2.0
//
// Writes statistics and traces to their files.
#ifndef GMAC_OBSERVE_REPORT_FILE_H_
#define GMAC_OBSERVE_REPORT_FILE_H_

#include <string>
#include <string_view>

#include "gmac/base/status.h"

namespace gmac {

// A file that appears whole or not at all: written beside its place under a temporary name, renamed
// by commit(). An existing path that is no regular file (a pipe, a terminal) is written directly.
// Makes its own system calls, because the interposer replaces libc's write(). Not thread-safe; not
// for the fault path. Owned by the writer of the report; destroyed without commit() it leaves no
// file.
class ReportFile {
 public:
  ReportFile() = default;
  ~ReportFile();
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  // Each fails with adsmErrorSystem, the path and the system's words.
  Status open(const std::string& path);
  Status append(std::string_view text);
  Status commit();

 private:
  Status writeOut();
  Status failHere(const char* operation) const;

  int descriptor_ = -1;
  std::string path_;
  std::string temporaryPath_;  // empty when written directly
  std::string buffer_;
};

// Appends `text` as a JSON string, quotes included. Bytes outside ASCII are copied unchanged.
void appendJsonString(std::string& json, std::string_view text);

}  // namespace gmac

#endif  // GMAC_OBSERVE_REPORT_FILE_H_
