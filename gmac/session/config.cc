// SPDX-License-Identifier: Apache-2.0
#include "gmac/session/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>

#include "gmac/accel/devices.h"
#include "gmac/base/cores.h"
#include "gmac/base/memory_limit.h"

namespace gmac {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;

constexpr auto kProtocolNames = [] {
  std::array<std::string_view, std::size(kProtocols)> names;
  std::transform(std::begin(kProtocols), std::end(kProtocols), names.begin(),
                 [](const NamedProtocol& protocol) { return protocol.name; });
  return names;
}();
// In the order of the enumerators.
constexpr std::string_view kAccelerators[] = {"auto", "cuda", "cudart", "host", "cuda+host"};
constexpr std::string_view kMirrors[] = {"auto", "file", "moved"};
constexpr std::string_view kSchedulers[] = {"current", "data", "history"};
constexpr std::string_view kMpiOrders[] = {"default", "streams"};
constexpr std::string_view kManaged[] = {"0", "1", "trust"};
constexpr std::string_view kNoYes[] = {"0", "1"};
constexpr std::string_view kLogLevels[] = {"off", "error", "info", "debug"};

constexpr std::uint64_t kLeastHostMemory = 2 * kMiB;
constexpr std::uint64_t kMostHostMemory = 64 * 1024 * kGiB;

enum class Kind { kChoice, kCount, kBytes, kPath };

// A word that `:N` may follow, 1 to `most`.
struct CountedWord {
  std::string_view word;
  std::uint64_t most;
};
constexpr CountedWord kCountedAccelerators[] = {{"host", accel::kMaxDevices},
                                                {"cuda+host", accel::kMaxDevices - 1}};

// The values that a variable of each kind allows. Only the members of its kind have a meaning.
struct Allowed {
  std::span<const std::string_view> words{};  // kChoice
  std::span<const CountedWord> counted{};     // kChoice; some of the words
  std::uint64_t least = 0;                    // kCount, kBytes
  std::uint64_t most = 0;
  bool powerOfTwo = false;
  std::string_view zeroMeans{};  // not empty: 0 is also allowed and means this
};

struct Variable {
  std::string_view name;
  Kind kind;
  std::string_view
      defaultText;  // parsed like a value; for the page only where `defaultNumber` is there
  std::uint64_t (*defaultNumber)();  // NULL unless the default depends on the machine
  Allowed allowed;
  std::string_view unit;  // kCount, kBytes
  void (*store)(Config& config, std::uint64_t number, std::string_view text);
  std::string_view help;
};

std::optional<std::uint64_t> parseNumber(std::string_view text, bool suffixes) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  // from_chars takes no sign, no space and no locale, and reports overflow.
  const auto [rest, error] = std::from_chars(text.data(), end, number, 10);
  if (error != std::errc{}) return std::nullopt;
  if (rest == end) return number;
  if (!suffixes || rest + 1 != end) return std::nullopt;
  std::uint64_t unit = 0;
  switch (*rest) {
    case 'K':
    case 'k':
      unit = kKiB;
      break;
    case 'M':
    case 'm':
      unit = kMiB;
      break;
    case 'G':
    case 'g':
      unit = kGiB;
      break;
    default:
      return std::nullopt;
  }
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(number, unit, &bytes)) return std::nullopt;
  return bytes;
}

// The member that a variable sets, as a function that stores a parsed value there.
template <auto Member>
void store(Config& config, std::uint64_t number, std::string_view text) {
  using Value = std::remove_reference_t<decltype(config.*Member)>;
  if constexpr (std::is_same_v<Value, std::string>) {
    config.*Member = std::string(text);
  } else {
    config.*Member = static_cast<Value>(number);
  }
}

void storeAccelerator(Config& config, std::uint64_t number, std::string_view count) {
  config.accelerator = static_cast<AcceleratorKind>(number);
  config.hostDevices = parseNumber(count, false).value_or(1);
}

void storeProtocol(Config& config, std::uint64_t number, std::string_view) {
  config.protocol = &kProtocols[number];
}

void storeManaged(Config& config, std::uint64_t number, std::string_view) {
  config.managed = number > 0;
  config.trustHints = number > 1;
}

std::uint64_t halfOfMemory() {
  const std::uint64_t half = usableMemory() / 2;
  return std::clamp(half / (2 * kMiB) * (2 * kMiB), kLeastHostMemory, kMostHostMemory);
}

// Several threads read a file through private memory, which takes twice the memory's bandwidth: two
// threads gain nothing over one that reads into place.
std::uint64_t usualIoThreads() {
  constexpr unsigned kMost = 4;
  const unsigned cores = usableCores();
  return cores < 3 ? 1 : std::min(cores, kMost);
}

// Constant-initialised: the runtime may start in a constructor that runs before this library's.
constexpr Variable kVariables[] = {
    {"GMAC_PROTOCOL",
     Kind::kChoice,
     "rolling",
     nullptr,
     {.words = kProtocolNames},
     "",
     storeProtocol,
     "The coherence protocol: what moves between the two copies, and when."},
    {"GMAC_ACCEL",
     Kind::kChoice,
     "auto",
     nullptr,
     {.words = kAccelerators, .counted = kCountedAccelerators},
     "devices",
     storeAccelerator,
     "The accelerator; `auto` takes an NVIDIA GPU if there is one, else `host`. `host:4` has four "
     "devices; `cuda+host:2` a GPU, device 0, and two of `host`."},
    {"GMAC_BLOCK_SIZE",
     Kind::kBytes,
     "2M",
     nullptr,
     {.least = 4 * kKiB, .most = kGiB, .powerOfTwo = true},
     "bytes",
     store<&Config::blockBytes>,
     "The unit of coherence of the rolling protocol. Objects of which the CPU touches a few places "
     "get smaller ones by themselves (`splits` in the statistics)."},
    {"GMAC_ROLLING_SIZE",
     Kind::kCount,
     "0",
     nullptr,
     // (A store may reach into two blocks.)
     {.least = 2, .most = 1ULL << 30, .zeroMeans = "adaptive"},
     "blocks",
     store<&Config::rollingSize>,
     "How many blocks may be dirty at once, whatever their sizes."},
    {"GMAC_STATS",
     Kind::kPath,
     "",
     nullptr,
     {},
     "",
     store<&Config::statsPath>,
     "Where statistics are written as JSON when the program ends. In the path, `%p` stands for the "
     "process's id, `%r` for its MPI rank, `%%` for a `%`."},
    {"GMAC_TRACE",
     Kind::kPath,
     "",
     nullptr,
     {},
     "",
     store<&Config::tracePath>,
     "Where a trace for Perfetto (Chrome trace JSON) is written when the program ends. The path is "
     "as "
     "that of `GMAC_STATS`."},
    {"GMAC_HOST_MEMORY",
     Kind::kBytes,
     "half of the memory that the process may have",
     halfOfMemory,
     {.least = kLeastHostMemory, .most = kMostHostMemory},
     "bytes",
     store<&Config::hostMemoryBytes>,
     "How much memory the `host` accelerator has; its devices share it equally. The process may "
     "have what the machine has and its control groups allow."},
    {"GMAC_HOST_THREADS",
     Kind::kCount,
     "0",
     nullptr,
     {.least = 1, .most = 1024, .zeroMeans = "one per core"},
     "threads",
     store<&Config::hostThreads>,
     "How many threads run the kernels of the `host` accelerator."},
    {"GMAC_DEVICE",
     Kind::kCount,
     "0; in MPI programs the local rank's",
     [] { return std::uint64_t{0}; },
     {.least = 0, .most = 1023},
     "",
     // Read where it is needed, which may be before the runtime starts.
     [](Config&, std::uint64_t, std::string_view) {},
     "The number of the CUDA device that is used, of those that the driver shows, by the runtime "
     "and by a program that chooses none itself (`cudaSetDevice`, a current context). In MPI "
     "programs (`gmac run --mpi`) the processes of a host have its devices in turn."},
    {"GMAC_SCHEDULER",
     Kind::kChoice,
     "current",
     nullptr,
     {.words = kSchedulers},
     "",
     store<&Config::scheduler>,
     "Where a call runs that lists what it uses and names no device: `current`, device 0; `data`, "
     "where most of those bytes are current; `history`, where it is predicted to end first."},
    {"GMAC_SPILL",
     Kind::kChoice,
     "1",
     nullptr,
     {.words = kNoYes},
     "",
     store<&Config::spill>,
     "`1`: when a device's memory is full, the objects that were used least lately get memory of "
     "another device in its place, or of the CPU's, which kernels reach over the bus. `0`: an "
     "allocation that does not fit fails, and so does a call whose objects do not fit beside "
     "others."},
    {"GMAC_MANAGED",
     Kind::kChoice,
     "0",
     nullptr,
     {.words = kManaged},
     "",
     storeManaged,
     "`1`: CUDA's managed-memory calls give shared objects, so that a program written for managed "
     "memory runs on this library unmodified. `trust`: besides, the program's hints are promises, "
     "and nobody checks: kernels never write what is advised as read-mostly, and only a stream's "
     "own kernels use what is attached to it."},
    {"GMAC_LOG",
     Kind::kChoice,
     "error",
     nullptr,
     {.words = kLogLevels},
     "",
     store<&Config::log>,
     "What is said on standard error: nothing, errors and warnings, or more."},
    {"GMAC_WAIT_LIMIT",
     Kind::kCount,
     "10",
     nullptr,
     {.least = 1, .most = 86400, .zeroMeans = "no limit"},
     "seconds",
     store<&Config::waitLimit>,
     "How long one CPU access of a managed-memory program waits for kernels that still run, before "
     "the program is ended with a message."},
    {"GMAC_MPI_ORDER",
     Kind::kChoice,
     "default",
     nullptr,
     {.words = kMpiOrders},
     "",
     store<&Config::mpiOrder>,
     "What an MPI call on device memory that is no shared object waits for before it reads or "
     "writes it: the default streams (the thread's own, and the one of all), and no others, so "
     "that "
     "the program synchronises those, as with a CUDA-aware MPI; or all work on the streams of that "
     "memory's context."},
    {"GMAC_MPI_TICKETS",
     Kind::kChoice,
     "1",
     nullptr,
     {.words = kNoYes},
     "",
     store<&Config::mpiTickets>,
     "`1`: a large MPI message to a process of the same host goes through memory that the two "
     "processes share, or is copied from plain memory by the receiver, and a ticket goes through "
     "MPI; one to another host may go in fragments. `0`: none does."},
    // For this library's own tests: neither the page nor the messages list them.
    {"GMAC_TEST_MIRROR",
     Kind::kChoice,
     "auto",
     nullptr,
     {.words = kMirrors},
     "",
     store<&Config::mirror>,
     "The CPU side of objects: a memory file with two views, or pinned pages moved into place; "
     "`auto` takes `moved` where a self-test shows that it works."},
    {"GMAC_TEST_IO_THREADS",
     Kind::kCount,
     "4, or fewer on a small machine",
     usualIoThreads,
     {.least = 1, .most = 64},
     "threads",
     store<&Config::ioThreads>,
     "How many threads read one file into shared memory at a time, the caller's included."},
    {"GMAC_TEST_TICKET_BYTES",
     Kind::kBytes,
     "64K",
     nullptr,
     // The payload covers its ticket (mpi/tickets.h).
     {.least = 512, .most = kGiB},
     "bytes",
     store<&Config::leastTicketBytes>,
     "MPI messages of fewer bytes are not sent as tickets."},
    {"GMAC_TEST_FRAGMENTED_BYTES",
     Kind::kBytes,
     "32M",
     nullptr,
     // The payload covers its ticket.
     {.least = 512, .most = kGiB},
     "bytes",
     store<&Config::leastFragmentedBytes>,
     "MPI messages of fewer bytes are not sent in fragments."},
    {"GMAC_TEST_ANSWER_WAIT",
     Kind::kCount,
     "10",
     nullptr,
     {.least = 1, .most = 86'400'000},
     "milliseconds",
     store<&Config::answerWait>,
     "How long the sender of a message in fragments waits for a receiver that does not answer, "
     "besides the time that a wire of 1 GB/s takes."},
    {"GMAC_TEST_TICKET_ROOM",
     Kind::kBytes,
     "256M",
     nullptr,
     {.least = 2 * kMiB, .most = kGiB},
     "bytes",
     store<&Config::ticketRoomBytes>,
     "The room for payloads of tickets that are under way, of one process."},
};

constexpr std::string_view kForTests = "GMAC_TEST_";
bool isForTests(const Variable& variable) { return variable.name.starts_with(kForTests); }

// Formats a number of bytes: "2M" for a whole number of MiB, and so on.
std::string shortBytes(std::uint64_t bytes) {
  if (bytes != 0 && bytes % kGiB == 0) return fmt::format("{}G", bytes / kGiB);
  if (bytes != 0 && bytes % kMiB == 0) return fmt::format("{}M", bytes / kMiB);
  if (bytes != 0 && bytes % kKiB == 0) return fmt::format("{}K", bytes / kKiB);
  return fmt::format("{}", bytes);
}

std::string describeAllowed(const Variable& variable) {
  const Allowed& allowed = variable.allowed;
  switch (variable.kind) {
    case Kind::kChoice: {
      std::string text;
      for (const auto& word : allowed.words) {
        text += fmt::format("{}{}", text.empty() ? "" : ", ", word);
      }
      for (const auto& [word, most] : allowed.counted) {
        text += fmt::format(", {}:1 to {}:{} {}", word, word, most, variable.unit);
      }
      return text;
    }
    case Kind::kPath:
      return "the path of a file";
    case Kind::kCount:
    case Kind::kBytes:
      break;
  }
  const bool bytes = variable.kind == Kind::kBytes;
  std::string text =
      fmt::format("{} from {} to {}{}{}", allowed.powerOfTwo ? "a power of two" : "a whole number",
                  bytes ? shortBytes(allowed.least) : fmt::format("{}", allowed.least),
                  bytes ? shortBytes(allowed.most) : fmt::format("{}", allowed.most),
                  variable.unit.empty() ? "" : " ", variable.unit);
  if (bytes) text += " (K, M and G are understood)";
  if (!allowed.zeroMeans.empty()) text += fmt::format(", or 0: {}", allowed.zeroMeans);
  return text;
}

bool isAllowed(const Allowed& allowed, std::uint64_t number) {
  if (number == 0 && !allowed.zeroMeans.empty()) return true;
  if (number < allowed.least || number > allowed.most) return false;
  return !allowed.powerOfTwo || (number & (number - 1)) == 0;
}

// Parses `text` and stores it; false when it is not allowed.
bool parseInto(const Variable& variable, std::string_view text, Config& config) {
  switch (variable.kind) {
    case Kind::kPath:
      variable.store(config, 0, text);
      return true;
    case Kind::kChoice: {
      const auto& words = variable.allowed.words;
      const std::size_t colon = text.find(':');
      std::string_view count;
      const auto& counted = variable.allowed.counted;
      const auto of = std::find_if(counted.begin(), counted.end(), [&](const CountedWord& one) {
        return one.word == text.substr(0, colon);
      });
      if (of != counted.end() && colon != std::string_view::npos) {
        count = text.substr(colon + 1);
        text = text.substr(0, colon);
        const auto number = parseNumber(count, false);
        if (!number || *number == 0 || *number > of->most) return false;
      }
      const auto found = std::find(words.begin(), words.end(), text);
      if (found == words.end()) return false;
      variable.store(config, static_cast<std::uint64_t>(found - words.begin()), count);
      return true;
    }
    case Kind::kCount:
    case Kind::kBytes:
      break;
  }
  const auto number = parseNumber(text, variable.kind == Kind::kBytes);
  if (!number || !isAllowed(variable.allowed, *number)) return false;
  variable.store(config, *number, text);
  return true;
}

void storeDefault(const Variable& variable, Config& config) {
  if (variable.defaultNumber != nullptr) {
    variable.store(config, variable.defaultNumber(), {});
  } else {
    parseInto(variable, variable.defaultText, config);
  }
}

const Variable& variableNamed(std::string_view name) {
  const auto found = std::find_if(std::begin(kVariables), std::end(kVariables),
                                  [&](const Variable& variable) { return variable.name == name; });
  if (found == std::end(kVariables)) {
    log(LogLevel::kError, "{} is asked about and not in the table of variables", name);
    std::abort();
  }
  return *found;
}

// Levenshtein distance: the number of letters that must be inserted, removed or changed.
std::size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view acceleratorName(AcceleratorKind kind) noexcept {
  return kAccelerators[static_cast<std::size_t>(kind)];
}

Result<Config> readConfig(const ReadVariable& read) {
  Config config;
  for (const Variable& variable : kVariables) {
    const char* const value = read(variable.name.data());
    if (value == nullptr || *value == '\0') {
      storeDefault(variable, config);
    } else if (!parseInto(variable, value, config)) {
      return fail(adsmErrorConfiguration, "{}=\"{}\" is not allowed; allowed: {}", variable.name,
                  value, describeAllowed(variable));
    }
  }
  return config;
}

LogLevel logLevel(const ReadVariable& read) {
  Config config;
  const Variable& variable = variableNamed("GMAC_LOG");
  const char* const value = read(variable.name.data());
  if (value == nullptr || *value == '\0' || !parseInto(variable, value, config)) {
    storeDefault(variable, config);
  }
  return config.log;
}

bool isAllowedValue(std::string_view name, std::string_view value) {
  Config ignored;
  return !value.empty() && parseInto(variableNamed(name), value, ignored);
}

std::string allowedValues(std::string_view name) { return describeAllowed(variableNamed(name)); }

std::vector<std::string> unknownVariables(const char* const* environment) {
  std::vector<std::string> sentences;
  if (environment == nullptr) return sentences;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    if (!entry.starts_with("GMAC_") || entry.starts_with(kForTests)) continue;
    const std::string_view name = entry.substr(0, entry.find('='));
    const Variable* closest = nullptr;
    std::size_t closestDistance = 0;
    for (const Variable& variable : kVariables) {
      if (isForTests(variable)) continue;
      const std::size_t distance = editDistance(name, variable.name);
      if (closest == nullptr || distance < closestDistance) {
        closest = &variable;
        closestDistance = distance;
      }
    }
    if (closestDistance == 0) continue;
    sentences.push_back(
        fmt::format("{} is no variable of this library and does nothing; did you mean {}?", name,
                    closest->name));
  }
  return sentences;
}

void warnOfUnknownVariables(const char* const* environment) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  for (const std::string& sentence : unknownVariables(environment)) {
    log(LogLevel::kError, "warning: {}", sentence);
  }
}

std::string describeConfig() {
  std::string page =
      "| variable | default | allowed | meaning |\n"
      "|---|---|---|---|\n";
  for (const Variable& variable : kVariables) {
    if (isForTests(variable)) continue;
    std::string defaultText = "none";
    if (variable.defaultNumber != nullptr) {
      defaultText = std::string(variable.defaultText);
    } else if (!variable.defaultText.empty()) {
      defaultText = fmt::format("`{}`", variable.defaultText);
    }
    page += fmt::format("| `{}` | {} | {} | {} |\n", variable.name, defaultText,
                        describeAllowed(variable), variable.help);
  }
  return page;
}

}  // namespace gmac
