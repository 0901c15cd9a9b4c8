// SPDX-License-Identifier: Apache-2.0
//
// The GMAC_* environment variables. Each is declared once, in the table of config.cc, with its
// name, default, allowed values and help text. Parsing, the message for a bad value and the
// reference page all use that table.
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

enum class AcceleratorKind { kAuto, kCuda, kCudart, kHost, kCudaAndHost };
enum class MirrorKind { kAuto, kFile, kMoved };
enum class SchedulerKind { kCurrent, kData, kHistory };
// The work that an MPI call on the application's own device memory waits for first.
enum class MpiOrder { kDefaultStreams, kStreams };

// The words that the variables use, e.g. "host".
std::string_view acceleratorName(AcceleratorKind kind) noexcept;

// The user's settings. A plain value without thread-safety of its own; read once when the runtime
// starts. A default-constructed one is empty: it does not have the defaults.
struct Config {
  const NamedProtocol* protocol{};
  AcceleratorKind accelerator{};
  std::size_t blockBytes{};   // power of two
  std::size_t rollingSize{};  // blocks; 0: adaptive
  MirrorKind mirror{};
  std::string statsPath;          // empty: no statistics file
  std::string tracePath;          // empty: no trace
  std::size_t hostDevices{};      // the host accelerator's devices, beside a GPU or without
  std::size_t hostMemoryBytes{};  // the memory of all of them together
  std::size_t hostThreads{};      // their kernel threads, together; 0: one per core
  SchedulerKind scheduler{};      // of calls that name no device
  bool managed{};                 // managed-memory calls of CUDA give shared objects
  std::size_t ioThreads{};        // that read one file at a time, the caller's included
  LogLevel log{};
  bool spill{};             // objects that do not fit go to other memory
  bool trustHints{};        // hints of managed-memory programs are promises
  std::size_t waitLimit{};  // seconds; 0: none
  MpiOrder mpiOrder{};
  bool mpiTickets{};               // large messages on one host go through its memory
  std::size_t leastTicketBytes{};  // messages with smaller payloads do not
  std::size_t ticketRoomBytes{};   // so many bytes of payloads at a time
  // Between hosts: messages with smaller payloads are not sent in fragments.
  std::size_t leastFragmentedBytes{};
  std::size_t answerWait{};  // milliseconds that a sender of fragments waits for a late receiver
};

// Answers like getenv: the value of a variable, or NULL when it is not set.
using ReadVariable = std::function<const char*(const char* name)>;

// Reads all variables. A variable that is unset or empty has its default. adsmErrorConfiguration
// names the variable, the value and the allowed values; the first bad one in the table's order is
// reported.
Result<Config> readConfig(const ReadVariable& read);

// The level that GMAC_LOG names, whatever the other variables' values are; its default where its
// own is not allowed.
LogLevel logLevel(const ReadVariable& read);

// One sentence for each unknown GMAC_* variable in `environment` ("NAME=value" strings, ended by
// NULL), with the closest known name. Names that start with GMAC_TEST_ belong to the tests and are
// ignored.
std::vector<std::string> unknownVariables(const char* const* environment);

// For code that sets a variable on a user's behalf: whether readConfig accepts the value (an empty
// one is not accepted), and the allowed values as its message gives them. `name` must be in the
// table.
bool isAllowedValue(std::string_view name, std::string_view value);
std::string allowedValues(std::string_view name);

// Logs those sentences once per process, so that a mistyped name is seen.
void warnOfUnknownVariables(const char* const* environment);

// The table of all variables for the reference page, in Markdown.
std::string describeConfig();

}  // namespace gmac

#endif  // GMAC_SESSION_CONFIG_H_
