// SPDX-License-Identifier: Apache-2.0
#include "gmac/observe/stats.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <ctime>

#include "gmac/base/cancellation.h"
#include "gmac/base/log.h"
#include "gmac/observe/report_file.h"

namespace gmac {
namespace {

std::uint64_t now() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(time.tv_nsec);
}

const std::uint64_t kLoadedAt = now();

// In the order of the enumerators.
constexpr std::array<std::string_view, kPhaseCount> kPhaseNames = {
    "copy",       "malloc",   "free",       "launch", "sync",   "signal",
    "cudaMalloc", "cudaFree", "cudaLaunch", "gpu",    "ioRead", "ioWrite"};

constexpr struct {
  std::string_view name;
  Counter Stats::*counter;
} kCounters[] = {
    {"bytesToAccelerator", &Stats::bytesToAccelerator},
    {"bytesToHost", &Stats::bytesToHost},
    {"readFaults", &Stats::readFaults},
    {"writeFaults", &Stats::writeFaults},
    {"fetches", &Stats::fetches},
    {"readBacks", &Stats::readBacks},
    {"flushes", &Stats::flushes},
    {"evictions", &Stats::evictions},
    {"evictionsWasted", &Stats::evictionsWasted},
    {"calls", &Stats::calls},
    {"syncs", &Stats::syncs},
    {"allocations", &Stats::allocations},
    {"frees", &Stats::frees},
    {"reusedAllocations", &Stats::reusedAllocations},
    {"driverAllocations", &Stats::driverAllocations},
    {"stripedAllocations", &Stats::stripedAllocations},
    {"spills", &Stats::spills},
    {"spilledBytes", &Stats::spilledBytes},
    {"peerSpills", &Stats::peerSpills},
    {"peerSpilledBytes", &Stats::peerSpilledBytes},
    {"broughtBack", &Stats::broughtBack},
    {"zeroCopies", &Stats::zeroCopies},
    {"zeroCopiesEnded", &Stats::zeroCopiesEnded},
    {"awaitedCalls", &Stats::awaitedCalls},
    {"repeatedCalls", &Stats::repeatedCalls},
    {"listedCalls", &Stats::listedCalls},
    {"migrations", &Stats::migrations},
    {"migratedBytes", &Stats::migratedBytes},
    {"windows", &Stats::windows},
    {"windowsOutgrown", &Stats::windowsOutgrown},
    {"coarsenings", &Stats::coarsenings},
    {"splits", &Stats::splits},
    {"populatedBytes", &Stats::populatedBytes},
};
static_assert((std::size(kCounters) + Stats::kMaxDevices) * sizeof(Counter) == sizeof(Stats),
              "every counter is in the table");

constinit std::array<Counter, kPhaseCount> allThreads;
// The first thread's times, from which `cpu` is computed.
constinit std::array<Counter, kPhaseCount> firstThread;

enum class Which : std::uint8_t { kUnknown, kFirst, kOther };

// Initial-exec: the first access of a thread must not allocate, because it may be in the fault
// handler.
struct ThreadState {
  Timed* innermost = nullptr;
  Which which = Which::kUnknown;
};
constinit thread_local ThreadState thread __attribute__((tls_model("initial-exec")));

void count(Phase phase, std::uint64_t nanoseconds) noexcept {
  if (thread.which == Which::kUnknown) {
    thread.which = ::syscall(SYS_gettid) == ::getpid() ? Which::kFirst : Which::kOther;
  }
  const auto index = static_cast<std::size_t>(phase);
  allThreads[index].add(nanoseconds);
  if (thread.which == Which::kFirst) firstThread[index].add(nanoseconds);
}

// A signal between reading the clock and using the time may have moved `since` past `until`.
std::uint64_t elapsed(std::uint64_t since, std::uint64_t until) noexcept {
  return until > since ? until - since : 0;
}

double seconds(std::uint64_t nanoseconds) noexcept {
  return static_cast<double>(nanoseconds) * 1e-9;
}

struct ExitReport {
  std::string path;
  RunDescription run;
  pid_t owner;
};
std::atomic<ExitReport*> exitReport{nullptr};

// A library destructor runs after all exit handlers, so their work is counted too.
[[gnu::destructor]] void writeAtExit() {
  const ExitReport* const report = exitReport.load(std::memory_order_acquire);
  if (report == nullptr || report->owner != ::getpid()) return;
  if (!uncancelled([&] { return writeStats(report->path, report->run); }).ok()) {
    log(LogLevel::kError, "the statistics are lost: {}", lastErrorText());
  }
}

}  // namespace

MessageCounts::Entry& MessageCounts::entryOf(const char* way) noexcept {
  for (std::size_t i = 0; i < kMaxWays; ++i) {
    const char* found = entries_[i].way.load(std::memory_order_acquire);
    if (found == nullptr && entries_[i].way.compare_exchange_strong(
                                found, way, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return entries_[i];
    }
    // (Else `found` is what another thread has set.)
    if (found == way || std::strcmp(found, way) == 0) {
      return entries_[i];
    }
  }
  entries_[kMaxWays].way.store(kOtherWays, std::memory_order_release);
  return entries_[kMaxWays];
}

void MessageCounts::add(const char* way, std::uint64_t bytes) noexcept {
  Entry& entry = entryOf(way);
  entry.messages.add();
  entry.bytes.add(bytes);
}

void Timed::begin(Phase phase) noexcept {
  phase_ = phase;
  since_ = now();
  outer_ = thread.innermost;
  if (outer_ != nullptr) {
    count(outer_->phase_, elapsed(outer_->since_, since_));
    // A signal here may open another scope, which must not count the same time again.
    outer_->since_ = since_;
  }
  began_ = true;
  thread.innermost = this;
}

void Timed::end() noexcept {
  const std::uint64_t ended = now();
  count(phase_, elapsed(since_, ended));
  if (outer_ != nullptr) outer_->since_ = ended;
  thread.innermost = outer_;
}

double phaseSeconds(Phase phase) noexcept {
  return seconds(allThreads[static_cast<std::size_t>(phase)].value());
}

double cpuSeconds() noexcept {
  std::uint64_t elsewhere = 0;
  for (const Counter& phase : firstThread) elsewhere += phase.value();
  return seconds(elapsed(elsewhere, now() - kLoadedAt));
}

std::string statsJson(const RunDescription& run) {
  std::string json = "{\n";
  const auto addText = [&](std::string_view name, std::string_view value) {
    json += fmt::format("  \"{}\": ", name);
    appendJsonString(json, value);
    json += ",\n";
  };
  addText("accelerator", run.accelerator);
  addText("device", run.device);
  addText("protocol", run.protocol);
  json += fmt::format("  \"blockBytes\": {},\n", run.blockBytes);
  addText("mirror", run.mirror);
  for (const auto& [name, counter] : kCounters) {
    json += fmt::format("  \"{}\": {},\n", name, (stats().*counter).value());
  }
  json += "  \"deviceCalls\": [";
  for (std::size_t device = 0; device < run.devices; ++device) {
    json += fmt::format("{}{}", device == 0 ? "" : ", ", stats().deviceCalls[device].value());
  }
  json += "],\n  \"messages\": {";
  const char* before = "";
  messageCounts().each([&](const char* way, std::uint64_t messages, std::uint64_t bytes) {
    json += fmt::format("{}\n    ", before);
    appendJsonString(json, way);
    json += fmt::format(": {{\"messages\": {}, \"bytes\": {}}}", messages, bytes);
    before = ",";
  });
  json += "},\n  \"time\": {\n";
  for (std::size_t index = 0; index < kPhaseCount; ++index) {
    json += fmt::format("    \"{}\": {:.9f},\n", kPhaseNames[index],
                        phaseSeconds(static_cast<Phase>(index)));
  }
  json += fmt::format("    \"cpu\": {:.9f}\n  }}\n}}\n", cpuSeconds());
  return json;
}

Status writeStats(const std::string& path, const RunDescription& run) {
  ReportFile file;
  GMAC_TRY(file.open(path));
  GMAC_TRY(file.append(statsJson(run)));
  return file.commit();
}

void startStats(const std::string& path, const RunDescription& run) {
  if (!path.empty()) {
    // Never freed: it is read when everything else has been destroyed.
    exitReport.store(new ExitReport{path, run, ::getpid()}, std::memory_order_release);
  }
  internal::timing.store(true, std::memory_order_relaxed);
}

}  // namespace gmac
