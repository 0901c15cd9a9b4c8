// SPDX-License-Identifier: Apache-2.0
#include "gmac/observe/trace.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <string_view>
#include <vector>

#include "gmac/base/cancellation.h"
#include "gmac/base/log.h"
#include "gmac/observe/report_file.h"

namespace gmac {
namespace {

struct Event {
  const char* category;
  const char* name;
  std::uint64_t start;  // ns since the library was loaded
  std::uint64_t duration;
  TraceArg first;
  TraceArg second;
  std::uint32_t threadId;
  std::atomic<bool>
      complete;  // the last thing written: another thread may be writing while the file is
};

struct Buffer {
  Event* events = nullptr;
  std::size_t capacity = 0;
  std::atomic<std::size_t> taken{0};  // keeps counting past the capacity
};
constinit Buffer buffer;

// A thread with events. Keeps its name, because it may have ended when the file is written.
struct Track {
  char name[16];                  // as long as the kernel has them
  std::atomic<std::uint32_t> id;  // the last thing written; 0 before
};
constinit std::array<Track, internal::kNamedTracks> tracks{};
constinit std::atomic<std::size_t> tracksTaken{0};  // keeps counting past the end

std::uint64_t clockNow() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(time.tv_nsec);
}

// When the library was loaded, or first used by a constructor that runs before this library's.
constinit std::atomic<std::uint64_t> loaded{0};

std::uint64_t loadedAt() noexcept {
  std::uint64_t at = loaded.load(std::memory_order_relaxed);
  if (at != 0) return at;
  const std::uint64_t time = clockNow();
  return loaded.compare_exchange_strong(at, time, std::memory_order_relaxed) ? time : at;
}

[[gnu::constructor]] void noteLoad() { loadedAt(); }

// Initial-exec: the first access of a thread must not allocate, because it may be in the fault
// handler.
constinit thread_local std::uint32_t threadId __attribute__((tls_model("initial-exec"))) = 0;

// The calling thread's number. The name comes from the kernel, because nothing here may allocate.
std::uint32_t beginTrack() noexcept {
  const auto id = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  const std::size_t index = tracksTaken.fetch_add(1, std::memory_order_relaxed);
  if (index < tracks.size()) {
    Track& track = tracks[index];
    (void)::prctl(PR_GET_NAME, track.name);
    track.id.store(id, std::memory_order_release);
  }
  return id;
}

struct ExitReport {
  std::string path;
  pid_t owner;
};
std::atomic<ExitReport*> exitReport{nullptr};

[[gnu::destructor]] void writeAtExit() {
  const ExitReport* const report = exitReport.load(std::memory_order_acquire);
  if (report == nullptr || report->owner != ::getpid()) return;
  if (!uncancelled([&] { return writeTrace(report->path); }).ok()) {
    log(LogLevel::kError, "the trace is lost: {}", lastErrorText());
  }
}

// Chrome traces use microseconds; the fraction keeps the nanoseconds.
std::string microseconds(std::uint64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

// The name that a viewer shows instead of a number.
void appendName(std::string& json, const char* what, pid_t process, std::uint32_t track,
                std::string_view name) {
  json += fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":)", what, process,
                      track);
  appendJsonString(json, name);
  json += "}}";
}

// A thread's name may be any bytes. Those outside ASCII may not be UTF-8, which the file must be.
std::string nameOf(const Track& track) {
  std::string name = track.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) > 0x7F; }, '?');
  return name;
}

// Keyed by number; where the system has reused one, the later thread's name counts.
std::map<std::uint32_t, std::string> trackNames(pid_t process) {
  std::map<std::uint32_t, std::string> names;
  const std::size_t present = std::min(tracksTaken.load(std::memory_order_acquire), tracks.size());
  for (std::size_t index = 0; index < present; ++index) {
    const std::uint32_t id = tracks[index].id.load(std::memory_order_acquire);
    if (id == 0) continue;
    names[id] = id == static_cast<std::uint32_t>(process) ? "main thread" : nameOf(tracks[index]);
  }
  return names;
}

void appendEvent(std::string& json, const Event& event, pid_t process) {
  json += ",\n{\"ph\":";
  if (event.duration == internal::kInstant) {
    json += "\"i\",\"s\":\"t\"";
  } else {
    json += fmt::format("\"X\",\"dur\":{}", microseconds(event.duration));
  }
  json += fmt::format(",\"ts\":{},\"pid\":{},\"tid\":{},\"cat\":", microseconds(event.start),
                      process, event.threadId);
  appendJsonString(json, event.category);
  json += ",\"name\":";
  appendJsonString(json, event.name);
  const char* separator = ",\"args\":{";
  for (const TraceArg& arg : {event.first, event.second}) {
    if (arg.name == nullptr) continue;
    json += separator;
    appendJsonString(json, arg.name);
    json += fmt::format(":{}", arg.value);
    separator = ",";
  }
  if (*separator == ',' && separator[1] == '\0') json += '}';
  json += '}';
}

// In the order in which viewers stack events: an enclosing event comes first, also where both begin
// at once.
std::vector<const Event*> completeEvents(std::size_t present) {
  std::vector<const Event*> events;
  events.reserve(present);
  for (std::size_t index = 0; index < present; ++index) {
    const Event& event = buffer.events[index];
    if (event.complete.load(std::memory_order_acquire)) events.push_back(&event);
  }
  const auto length = [](const Event& event) {
    return event.duration == internal::kInstant ? 0 : event.duration;
  };
  std::stable_sort(events.begin(), events.end(), [&](const Event* a, const Event* b) {
    return a->start != b->start ? a->start < b->start : length(*a) > length(*b);
  });
  return events;
}

}  // namespace

namespace internal {

std::uint64_t traceNow() noexcept {
  const std::uint64_t since = loadedAt();
  return clockNow() - since;
}

void appendTraceEvent(const char* category, const char* name, std::uint64_t start,
                      std::uint64_t duration, TraceArg first, TraceArg second) noexcept {
  const std::size_t index = buffer.taken.fetch_add(1, std::memory_order_relaxed);
  if (index >= buffer.capacity) return;  // dropped; `taken` has counted it
  if (threadId == 0) threadId = beginTrack();
  Event& event = buffer.events[index];
  event.category = category;
  event.name = name;
  event.start = start;
  event.duration = duration;
  event.first = first;
  event.second = second;
  event.threadId = threadId;
  event.complete.store(true, std::memory_order_release);
}

}  // namespace internal

Status startTrace(const std::string& path, std::size_t capacity) {
  void* const memory = ::mmap(nullptr, capacity * sizeof(Event), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(adsmErrorHostMemory, "mmap of {} bytes for the trace: {}", capacity * sizeof(Event),
                std::strerror(errno));
  }
  // Fresh pages are zero, and a zero event is not complete.
  buffer.events = static_cast<Event*>(memory);
  buffer.capacity = capacity;
  // Never freed: it is read when everything else has been destroyed.
  exitReport.store(new ExitReport{path, ::getpid()}, std::memory_order_release);
  internal::tracing.store(true, std::memory_order_release);
  return Status();
}

// The events come first, and no display unit is given: older versions of Perfetto stop reading at a
// key that they do not know, and take the display unit for the unit of the times.
Status writeTrace(const std::string& path) {
  internal::tracing.store(false, std::memory_order_relaxed);
  const std::size_t taken = buffer.taken.load(std::memory_order_acquire);
  const std::size_t present = std::min(taken, buffer.capacity);
  const pid_t process = ::getpid();
  const std::vector<const Event*> events = completeEvents(present);
  ReportFile file;
  GMAC_TRY(file.open(path));
  std::string json = "{\"traceEvents\":[\n";
  appendName(json, "process_name", process, static_cast<std::uint32_t>(process),
             program_invocation_short_name);
  // A thread gets a track if it has a complete event.
  for (const auto& [track, name] : trackNames(process)) {
    json += ",\n";
    appendName(json, "thread_name", process, track, name);
  }
  for (const Event* event : events) {
    appendEvent(json, *event, process);
    GMAC_TRY(file.append(json));
    json.clear();
  }
  GMAC_TRY(file.append(json));
  GMAC_TRY(
      file.append(fmt::format("\n],\"otherData\":{{\"droppedEvents\":{}}}}}\n", taken - present)));
  return file.commit();
}

}  // namespace gmac
