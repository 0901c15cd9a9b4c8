// SPDX-License-Identifier: Apache-2.0
//
// The GMAC_* environment variables. Each is declared once, in the table of config.cc: its name,
// default, what is allowed and its help text; parsing, the message for a bad value and the
// reference page all come from that table.
#ifndef GMAC_SESSION_CONFIG_H_
#define GMAC_SESSION_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gmac/base/log.h"
#include "gmac/base/status.h"
#include "gmac/protocols/protocol.h"

namespace gmac {

enum class AcceleratorKind { kAuto, kCuda, kCudart, kHost };
enum class MirrorKind { kAuto, kFile, kMoved };

// The words that the variables use, e.g. "host".
std::string_view acceleratorName(AcceleratorKind kind) noexcept;
std::string_view mirrorName(MirrorKind kind) noexcept;

// What the user asked for. A plain value without thread-safety of its own; read once when the
// runtime starts. A default-constructed one is empty, not the defaults: those are in the table, see
// defaultConfig().
struct Config {
  const NamedProtocol* protocol{};
  AcceleratorKind accelerator{};
  std::size_t blockBytes{};   // power of two
  std::size_t rollingSize{};  // blocks; 0: adaptive
  MirrorKind mirror{};
  std::string statsPath;          // empty: no statistics file
  std::string tracePath;          // empty: no trace
  std::size_t hostMemoryBytes{};  // the host accelerator's memory
  std::size_t hostThreads{};      // the host accelerator's kernel threads; 0: one per core
  bool managed{};                 // managed-memory calls of CUDA give shared objects
  std::size_t ioThreads{};        // that read one file at a time, the caller's included
  LogLevel log{};
  std::size_t keptBytes{};  // of freed objects' memory; 0: none
  bool trustHints{};        // hints of managed-memory programs are promises
  std::size_t waitLimit{};  // seconds; 0: none
};

// Answers like getenv: the value of a variable, or NULL when it is not set.
using ReadVariable = std::function<const char*(const char* name)>;

// Reads all variables. A variable that is not set, or set to nothing, has its default.
// adsmErrorConfiguration names the variable, the value and what is allowed; the first bad one in
// the table's order is reported.
Result<Config> readConfig(const ReadVariable& read);

// The defaults alone, whatever the environment.
Config defaultConfig();

// One sentence for each GMAC_* variable in `environment` ("NAME=value" strings, ended by NULL) that
// is none of ours, naming the closest one that is. Names that start with GMAC_TEST_ belong to the
// tests and are left alone.
std::vector<std::string> unknownVariables(const char* const* environment);

// For whoever sets a variable on a user's behalf: whether readConfig takes the value (an empty one
// is none), and the words that its message would say are allowed. `name` must be in the table.
bool isAllowedValue(std::string_view name, std::string_view value);
std::string allowedValues(std::string_view name);

// Says those sentences on standard error, once per process, so that a mistyped name is seen.
void warnOfUnknownVariables(const char* const* environment);

// The reference page's part: a Markdown table of all variables.
std::string describeConfig();

}  // namespace gmac

#endif  // GMAC_SESSION_CONFIG_H_
