// SPDX-License-Identifier: Apache-2.0
#include "tools/gmac/program.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "tools/gmac/elf_file.h"
#include "tools/gmac/failure.h"

namespace gmac::command {
namespace {

// Why `path` cannot be executed: an error of access(), or EISDIR. 0 when it can.
int whyNotExecutable(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

bool meansNotThere(int error) { return error == ENOENT || error == ENOTDIR; }

[[noreturn]] void refuseToExecute(const std::string& path, int error) {
  if (meansNotThere(error)) refuse(Ending::kNotFound, "{}: no such program", path);
  if (error == EACCES) refuse(Ending::kCannotRun, "{} is not executable", path);
  refuse(Ending::kCannotRun, "cannot run {}: {}", path, std::strerror(error));
}

std::string defaultSearchPath() {
  std::string path(::confstr(_CS_PATH, nullptr, 0), '\0');
  ::confstr(_CS_PATH, path.data(), path.size());
  path.resize(std::strlen(path.c_str()));
  return path;
}

// The program that the kernel starts for a script, as its first line names it; nothing for a file
// that is no script.
std::optional<std::string> interpreterOf(const ElfFile& file) {
  constexpr std::string_view kBlanks = " \t\r";
  std::string_view line = file.interpreterLine();
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  line = line.substr(0, line.find_first_of(kBlanks));
  if (line.empty()) return std::nullopt;
  return std::string(line);
}

// The end of the chain that starts at the script `path`: what the kernel really starts.
std::string whatIsStarted(std::string path) {
  // The kernel gives up after as many.
  constexpr int kMostInterpreters = 5;
  for (int i = 0; i < kMostInterpreters; ++i) {
    const ElfFile file(path);
    const auto interpreter = interpreterOf(file);
    // A file that is neither is handed to the shell, as execvp does.
    if (!interpreter) return file.isElf() ? path : "/bin/sh";
    if (const int error = whyNotExecutable(*interpreter); error != 0) {
      refuse(Ending::kCannotRun, "cannot run {}: its interpreter {}: {}", path, *interpreter,
             std::strerror(error));
    }
    path = *interpreter;
  }
  refuse(Ending::kCannotRun, "cannot run {}: interpreters of interpreters without end", path);
}

// The dynamic linker ignores what a user preloads into a program that has rights the user lacks.
std::optional<std::string_view> foreignRights(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid()) return "is set-user-ID";
  if ((status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 &&
      status.st_gid != ::getgid()) {
    return "is set-group-ID";
  }
  if (::getuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) {
    return "has file capabilities";
  }
  return std::nullopt;
}

}  // namespace

std::string findProgram(const std::string& name, const char* searchPath) {
  if (name.empty()) refuse(Ending::kNotFound, "the program's name is empty");
  if (name.find('/') != std::string::npos) {
    if (const int error = whyNotExecutable(name); error != 0) refuseToExecute(name, error);
    return name;
  }
  const std::string folders = searchPath != nullptr ? searchPath : defaultSearchPath();
  std::string found;  // and may not be executed
  int whyNot = 0;
  for (std::size_t first = 0; first <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', first), folders.size());
    // An empty folder is the current one.
    std::string path =
        (end == first ? std::string(".") : folders.substr(first, end - first)) + "/" + name;
    const int error = whyNotExecutable(path);
    if (error == 0) return path;
    if (found.empty() && !meansNotThere(error)) {
      found = path;
      whyNot = error;
    }
    first = end + 1;
  }
  if (!found.empty()) refuseToExecute(found, whyNot);
  refuse(Ending::kNotFound, "{}: no such program in the folders of PATH", name);
}

void checkCanPreload(const std::string& path) {
  const std::string started = whatIsStarted(path);
  const std::string what =
      started == path ? path : fmt::format("{} (which runs {})", started, path);
  const ElfFile file(started);
  if (const std::string missing = file.missingPart(); !missing.empty()) {
    refuse(Ending::kCannotRun, "{} is cut short or damaged: {}", what, missing);
  }
  if (!file.isOfThisMachine()) {
    refuse(Ending::kCannotRun,
           "{} is no program of this machine: libgmac.so cannot be loaded into it", what);
  }
  if (!file.hasDynamicLinker()) {
    refuse(Ending::kCannotRun,
           "{} is statically linked: no library can be preloaded into it. Link it dynamically (its "
           "CUDA runtime may stay static)",
           what);
  }
  if (const auto rights = foreignRights(started)) {
    refuse(Ending::kCannotRun,
           "{} {}: the dynamic linker does not preload libraries into it. Run a copy without that "
           "mark",
           what, *rights);
  }
}

std::vector<std::string> librariesOf(const std::string& path) {
  return ElfFile(whatIsStarted(path)).neededLibraries();
}

}  // namespace gmac::command
