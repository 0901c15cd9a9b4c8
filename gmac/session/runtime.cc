// SPDX-License-Identifier: Apache-2.0
#include "gmac/session/runtime.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmac/accel/devices.h"
#include "gmac/accel/group/group.h"
#include "gmac/accel/host/host_accelerator.h"
#if GMAC_HAVE_CUDA
#include "gmac/accel/cuda/cuda_accelerator.h"
#include "gmac/accel/cuda/cudart_accelerator.h"
#endif
#include "gmac/base/cancellation.h"
#include "gmac/base/fork_lock.h"
#include "gmac/base/log.h"
#include "gmac/coherence/coherent_memory.h"
#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/port.h"
#include "gmac/coherence/shared_ranges.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"
#include "gmac/os/fault.h"
#include "gmac/os/handlers.h"
#include "gmac/protocols/protocol.h"
#include "gmac/session/config.h"
#include "gmac/session/file_names.h"

namespace gmac {
namespace {

using namespace std::string_view_literals;
using AcceleratorResult = Result<std::unique_ptr<accel::Accelerator>>;

std::atomic<Runtime*> theRuntime{nullptr};

// Held by the thread that starts the runtime. Not across forks, since the start forks itself; a
// child whose parent was starting a runtime starts its own.
constinit ForkLock startLock;

// A bad value of any variable is told when the runtime starts.
bool managedMode() noexcept {
  static const bool managed = [] {
    const auto config = readConfig(
        [](const char* name) { return name == "GMAC_MANAGED"sv ? std::getenv(name) : nullptr; });
    return !config.ok() || config->managed;
  }();
  return managed;
}

// Of managed-memory programs. A bad value is told when the runtime starts.
unsigned waitLimit() noexcept {
  static const unsigned seconds = [] {
    const auto config = readConfig(
        [](const char* name) { return name == "GMAC_WAIT_LIMIT"sv ? std::getenv(name) : nullptr; });
    return config.ok() ? static_cast<unsigned>(config->waitLimit) : 0;
  }();
  return managedMode() ? seconds : 0;
}

// The ports until the runtime has started. Nothing is shared, but some calls start it.
class MemoryBeforeStart final : public coherence::MemoryPort {
 public:
  constexpr MemoryBeforeStart() noexcept = default;
};
class WorkBeforeStart final : public coherence::WorkPort {
 public:
  constexpr WorkBeforeStart() noexcept = default;
  Result<accel::Accelerator*> ensureAccelerator() override {
    auto runtime = Runtime::get();
    if (!runtime.ok()) {
      return runtime.status();
    }
    return &(*runtime)->memory().accelerator();
  }
};
class DeviceMemoryBeforeStart final : public coherence::DeviceMemoryPort {
 public:
  constexpr DeviceMemoryBeforeStart() noexcept = default;
  bool managedMode() const noexcept override { return gmac::managedMode(); }
  unsigned waitLimit() const noexcept override { return gmac::waitLimit(); }
};
constinit MemoryBeforeStart memoryBeforeStart;
constinit WorkBeforeStart workBeforeStart;
constinit DeviceMemoryBeforeStart deviceMemoryBeforeStart;
constinit const coherence::Ports kBeforeStart{memoryBeforeStart, workBeforeStart,
                                              deviceMemoryBeforeStart};

// Before ordinary constructors, which may call the library. Those of a library that is initialised
// earlier may have started the runtime already.
[[gnu::constructor(101)]] void openPorts() {
  if (Runtime::started() == nullptr) coherence::open(kBeforeStart);
}

using Members = std::vector<std::unique_ptr<accel::Accelerator>>;

AcceleratorResult makeGroupOf(Members members) {
  log(LogLevel::kInfo,
      "{} devices that do not reach each other's memory: an object moves to the device whose call "
      "uses it, and none spills to the CPU, is striped over devices, or has one copy for device "
      "and CPU",
      members.size());
  return accel::makeGroup(std::move(members));
}

accel::HostOptions hostOptions(const Config& config) {
  return {.memoryBytes = config.hostMemoryBytes,
          .threads = static_cast<unsigned>(config.hostThreads)};
}

AcceleratorResult makeHost(const Config& config) {
  if (config.hostDevices <= 1) {
    return accel::makeHostAccelerator(hostOptions(config));
  }
  auto members = accel::makeHostAccelerators(hostOptions(config), config.hostDevices);
  return members.ok() ? makeGroupOf(std::move(*members)) : members.status();
}

#if GMAC_HAVE_CUDA
// The GPU first, since its driver says which addresses its memory can have.
AcceleratorResult makeCudaAndHost(const Config& config) {
  auto gpu = accel::makeSharingCudaAccelerator(config.hostMemoryBytes);
  if (!gpu.ok()) {
    return gpu.status();
  }
  accel::HostOptions options = hostOptions(config);
  options.windows = gpu->windows;
  auto others = accel::makeHostAccelerators(options, config.hostDevices);
  if (!others.ok()) {
    return others.status();
  }
  Members members;
  members.push_back(std::move(gpu->accelerator));
  std::move(others->begin(), others->end(), std::back_inserter(members));
  return makeGroupOf(std::move(members));
}
#endif

AcceleratorResult makeAccelerator(const Config& config) {
  switch (config.accelerator) {
    case AcceleratorKind::kHost:
      return makeHost(config);
#if GMAC_HAVE_CUDA
    case AcceleratorKind::kCuda:
      return accel::makeCudaAccelerator();
    case AcceleratorKind::kCudart:
      return accel::makeCudartAccelerator();
    case AcceleratorKind::kCudaAndHost:
      return makeCudaAndHost(config);
    case AcceleratorKind::kAuto: {
      auto cuda = accel::makeCudaAccelerator();
      if (cuda.ok() || cuda.status().code() != adsmErrorNoAccelerator) {
        return cuda;
      }
      log(LogLevel::kInfo, "no CUDA accelerator ({}); using host", lastErrorText());
      return makeHost(config);
    }
#else
    case AcceleratorKind::kCuda:
    case AcceleratorKind::kCudart:
    case AcceleratorKind::kCudaAndHost:
      return fail(
          adsmErrorNoAccelerator,
          "GMAC_ACCEL={}: this library was built without the CUDA toolkit; available is host",
          acceleratorName(config.accelerator));
    case AcceleratorKind::kAuto:
      return makeHost(config);
#endif
  }
  __builtin_unreachable();
}

SchedulingRule ruleOf(SchedulerKind kind) {
  switch (kind) {
    case SchedulerKind::kCurrent:
      return SchedulingRule::kCurrent;
    case SchedulerKind::kData:
      return SchedulingRule::kData;
    case SchedulerKind::kHistory:
      return SchedulingRule::kHistory;
  }
  __builtin_unreachable();
}

// Moved pages where they are wanted and the self-test passes, memory files everywhere else.
Result<std::unique_ptr<CoherentMemory>> makeMemory(accel::Accelerator& accelerator,
                                                   const Config& config) {
  CoherenceOptions options;
  options.blockBytes = config.blockBytes;
  options.managed = managedMode();
  options.trustHints = config.trustHints;
  options.ioThreads = config.ioThreads;
  // Enough for a loop that allocates and frees, and little beside what a device or a machine has.
  // It takes memory from nobody in this process: all of it is given back when any runs out.
  options.keptBytes = std::size_t{256} << 20;
  // Over a bus, more than that arrives sooner than the CPU clears it. (The CPU makes the copies of
  // `host`, too.)
  constexpr std::size_t kClearedBesideBus = std::size_t{64} << 10;
  options.mostClearedBytes = accelerator.name() == "host" ? SIZE_MAX : kClearedBesideBus;
  options.spill.allowed = config.spill;
  options.scheduling = ruleOf(config.scheduler);
  // The wait limit is for managed-memory programs. Others know that their kernels use shared
  // objects, and may wait as long as they like.
  options.waitLimitSeconds = config.managed ? static_cast<unsigned>(config.waitLimit) : 0;
  if (config.mirror != MirrorKind::kFile &&
      (config.mirror == MirrorKind::kMoved || accelerator.copiesReachMovedPages())) {
    options.movedPages = true;
    auto memory = CoherentMemory::make(
        accelerator, config.protocol->make({.fixed = config.rollingSize}), options);
    if (memory.ok() || config.mirror == MirrorKind::kMoved) {
      return memory;
    }
    log(LogLevel::kInfo, "memory-file mirrors, because: {}", lastErrorText());
    options.movedPages = false;
  }
  return CoherentMemory::make(accelerator, config.protocol->make({.fixed = config.rollingSize}),
                              options);
}

bool onFault(void* address, bool write) noexcept {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr && runtime->memory().onFault(address, write);
}

bool mayOwn(const void* address) noexcept { return shared_ranges::mayBeShared(address, 1); }

// While one lives, the thread starts the runtime. The start forks, and a fork runs the program's
// handlers, in this thread and in the child.
struct StartsHere {
  StartsHere() noexcept { now = true; }
  ~StartsHere() { now = false; }
  StartsHere(const StartsHere&) = delete;
  StartsHere& operator=(const StartsHere&) = delete;

  static constinit thread_local bool now __attribute__((tls_model("initial-exec")));
};
constinit thread_local bool StartsHere::now = false;

// The last start that failed, and how many calls take its error for theirs before the next one is
// made: a program whose allocator comes here would otherwise pay for a start each time. By count,
// not by time: what is missing comes by what the program does. Under the start's lock.
class FailedStart {
 public:
  bool covers() noexcept {
    if (callsLeft_ == 0) return false;
    --callsLeft_;
    return true;
  }
  // The thread's last error is the start's.
  void note() noexcept {
    code_ = lastErrorCode();
    number_ = lastErrorNumber();
    std::snprintf(text_, sizeof text_, "%s", lastErrorText());
    callsLeft_ = callsBetween_;
    callsBetween_ = std::min(2 * callsBetween_ + 1, kMaxCallsBetween);
  }
  Status again() const noexcept {
    const Status status =
        fail(code_, "{} (the runtime's last start; it is tried again in {} calls)",
             static_cast<const char*>(text_), callsLeft_ + 1);
    recordErrorNumber(number_);
    return status;
  }

 private:
  static constexpr unsigned kMaxCallsBetween = 1023;

  adsmError_t code_ = adsmSuccess;
  int number_ = 0;
  unsigned callsLeft_ = 0;
  unsigned callsBetween_ = 0;
  char text_[kErrorTextBytes] = "";
};
constinit FailedStart failedStart;

// One log line for a program that does not ask why its allocations fail, once for each reason.
// Under the start's lock.
void sayWhyNotStarted() {
  static char said[kErrorTextBytes] = "";
  if (std::strcmp(said, lastErrorText()) != 0) {
    std::snprintf(said, sizeof said, "%s", lastErrorText());
    log(LogLevel::kError, "the runtime does not start: {}", static_cast<const char*>(said));
  }
}

// Runs when the library is loaded, so that handlers of other libraries and the program, which may
// touch shared objects, run outside ours.
[[gnu::constructor]] void watchForks() {
  (void)pthread_atfork(
      [] {
        uncancelled([] {
          if (Runtime* r = Runtime::started()) r->memory().beforeFork();
        });
      },
      [] {
        uncancelled([] {
          if (Runtime* r = Runtime::started()) r->memory().afterFork();
        });
      },
      [] {
        startLock.renewInChild();
        if (Runtime* r = Runtime::started()) r->memory().afterFork();
      });
}

}  // namespace

Runtime* Runtime::started() noexcept { return theRuntime.load(std::memory_order_acquire); }

Result<Runtime*> Runtime::get() {
  if (Runtime* runtime = started()) [[likely]] {
    return runtime;
  }
  if (StartsHere::now) {
    return fail(
        adsmErrorSystem,
        "the runtime is starting, and a handler of pthread_atfork() has called the library");
  }
  const std::lock_guard guard(startLock);
  if (Runtime* runtime = started()) {
    return runtime;
  }
  const StartsHere starts;
  if (failedStart.covers()) return failedStart.again();
  auto runtime = start();
  if (!runtime.ok()) {
    failedStart.note();
    sayWhyNotStarted();
    return runtime.status();
  }
  theRuntime.store(runtime->get(), std::memory_order_release);
  coherence::open((*runtime)->memory().ports());
  return runtime->release();
}

Result<std::unique_ptr<Runtime>> Runtime::start() {
  constexpr auto kVariable = [](const char* name) -> const char* { return std::getenv(name); };
  auto config = readConfig(kVariable);
  if (!config.ok()) {
    logThreshold = logLevel(kVariable);
    return config.status();
  }
  warnOfUnknownVariables(environ);
  logThreshold = config->log;
  std::unique_ptr<Runtime> runtime(new Runtime);
  auto accelerator = makeAccelerator(*config);
  if (!accelerator.ok()) {
    return accelerator.status();
  }
  runtime->accelerator_ = std::move(*accelerator);
  auto memory = makeMemory(*runtime->accelerator_, *config);
  if (!memory.ok()) {
    return memory.status();
  }
  runtime->memory_ = std::move(*memory);
  static bool installed =
      false;  // once per process, also after a start that failed later than this
  if (!installed) {
    GMAC_TRY(os::installFaultHandler(&onFault, &mayOwn));
    os::lookForHandlers();
    // Runs before the exit handlers of a CUDA runtime that was in use before ours: none of our
    // threads may be in it then.
    std::atexit([] {
      uncancelled([] {
        if (Runtime* r = started()) r->memory().exits();
      });
    });
    installed = true;
  }
  if (!config->statsPath.empty()) {
    startStats(ownFileName(config->statsPath, kVariable),
               {.accelerator = std::string(runtime->accelerator_->name()),
                .device = std::string(runtime->accelerator_->deviceName()),
                .protocol = std::string(runtime->memory_->protocol().name()),
                .blockBytes = runtime->memory_->options().blockBytes,
                .mirror = runtime->memory_->options().movedPages ? "moved" : "file",
                .devices = accel::deviceCount(*runtime->accelerator_)});
  }
  if (!config->tracePath.empty()) {
    GMAC_TRY(startTrace(ownFileName(config->tracePath, kVariable)));
  }
  return runtime;
}

}  // namespace gmac
