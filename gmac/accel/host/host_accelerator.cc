// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/host_accelerator.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmac/accel/address_windows.h"
#include "gmac/accel/commands.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/accel/host/control_block.h"
#include "gmac/accel/host/device_process.h"
#include "gmac/accel/host/mapping.h"
#include "gmac/accel/host/messages.h"
#include "gmac/accel/host/module_table.h"
#include "gmac/accel/host/spawn.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/accel/shared_addresses.h"
#include "gmac/base/cores.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/fork_mark.h"
#include "gmac/base/log.h"
#include "gmac/base/memory_limit.h"
#include "gmac/base/round_up.h"

namespace gmac::accel {
namespace host {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
// Of address space in the device process.
constexpr std::size_t kDefaultFileWindow = std::size_t{64} << 30;
// How often a sleeping wait looks whether the device process is alive.
constexpr auto kLookAfterDevice = std::chrono::milliseconds(20);
constexpr int kStartLimitMs = 10'000;
// How long the device process may take to end by itself.
constexpr int kStopLimitMs = 1000;
// Arguments up to this size are gathered on the stack.
constexpr std::size_t kSmallArguments = 2048;
constexpr std::size_t kArenaAlignment = 64;
static_assert(AddressWindows::kEdgeBytes >= kMarginBytes);

std::size_t pageBytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::string processorName() {
  std::istringstream information(readWholeFile("/proc/cpuinfo").value_or(""));
  for (std::string line; std::getline(information, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "host processor";
}

// A kernel's function and its constants' variables, at their addresses in the device process.
// Immutable.
class HostKernel final : public LoadedKernel {
 public:
  HostKernel(const adsmKernelDesc_t& desc, std::uintptr_t function,
             std::map<const void*, std::uintptr_t> constants)
      : desc_(desc), function_(function), constants_(std::move(constants)) {}

  const adsmKernelDesc_t& desc() const { return desc_; }
  std::uintptr_t function() const { return function_; }
  // 0: not one of this kernel's.
  std::uintptr_t constant(const void* host) const {
    const auto found = constants_.find(host);
    return found == constants_.end() ? 0 : found->second;
  }

 private:
  const adsmKernelDesc_t& desc_;
  const std::uintptr_t function_;
  const std::map<const void*, std::uintptr_t> constants_;  // application's address -> device's
};

// The application's side: hands out addresses, writes commands, reads completions, watches the
// device process. Thread-safe. Owned by the runtime. The fault handler may call copyIn, copyOut,
// wait and done.
class HostAccelerator final : public Accelerator,
                              public MovableMemory,
                              public SharedAddresses,
                              public ExportedMemory {
 public:
  explicit HostAccelerator(const HostOptions& options)
      : Accelerator({.movable = this, .shared = this, .exported = this}),
        memoryBytes_(
            roundUp(options.memoryBytes != 0 ? options.memoryBytes : usableMemory(), pageBytes())),
        threads_(options.threads != 0 ? options.threads : usableCores()),
        deviceName_(fmt::format("{}, {} threads", processorName(), threads_)),
        ofGroup_(options.windows != nullptr),
        windows_(options.windows) {}
  ~HostAccelerator() override;

  // Once, before anything else.
  Status start(std::size_t windowBytes);

  std::string_view name() const noexcept override { return "host"; }
  std::string_view deviceName() const noexcept override { return deviceName_; }
  bool copiesReachMovedPages() const noexcept override { return false; }

  Status usable() override;
  Result<MemoryRoom> memoryRoom() override;
  Result<DeviceAddress> allocate(std::size_t bytes, std::size_t alignment,
                                 Placement placement) override;
  Status free(DeviceAddress address, std::size_t bytes) override {
    return free(address, bytes, true);
  }
  // All of its memory is the CPU's: an allocation whose home is there does not count as the
  // device's.
  Result<DeviceAddress> allocateOnCpu(std::size_t bytes, std::size_t alignment,
                                      Placement placement) override {
    return allocate(bytes, alignment, placement, Home::kCpu);
  }
  Status move(DeviceAddress address, std::size_t bytes, Home home) override;
  Status allocateAt(DeviceAddress address, std::size_t bytes, Placement placement) override;
  Status leave(DeviceAddress address, std::size_t bytes) override {
    return free(address, bytes, false);
  }
  Result<SharedAllocation> sharedAllocation(DeviceAddress address) override;
  Result<std::vector<MemoryFile>> filesOf(const SharedAllocation& allocation) override;
  Result<DeviceAddress> importFiles(std::span<const MemoryFile> files) override;
  Status releaseImport(DeviceAddress address) override;
  Memory memoryOf(const void* address) const noexcept override;
  Status pin(const HostMemory& memory) override;
  Status unpin(const HostMemory& memory) override;
  Result<void*> allocatePinned(std::size_t bytes) override;
  void freePinned(void* address, std::size_t bytes) noexcept override;
  Result<Ticket> copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                        Ticket after) override;
  Result<Ticket> copyOut(void* to, DeviceAddress from, std::size_t bytes, Ticket after) override;
  Result<Ticket> copyWithin(DeviceAddress to, DeviceAddress from, std::size_t bytes) override;
  Result<Ticket> fill(DeviceAddress to, std::byte value, std::size_t bytes) override;
  bool done(Ticket ticket) noexcept override;
  Status wait(Ticket ticket) override;
  Result<std::unique_ptr<LoadedKernel>> load(const adsmKernelDesc_t& desc) override;
  Result<Ticket> launch(LoadedKernel& kernel, const LaunchShape& shape, void** args) override {
    return launchAfter({}, kernel, shape, args);
  }
  Status setConstant(LoadedKernel& kernel, const adsmConstant_t& constant, const void* data,
                     std::size_t bytes) override;
  std::unique_ptr<LoadedKernels> loadBuiltIn(const BuiltInKernels& kernels) override;
  Result<Ticket> submit(Work& work) override;

 private:
  class Kernels;
  class InOrder;
  // Changed only by the holder of a queue's lock. No thread touches shared objects while it holds
  // one.
  struct Submission {
    std::mutex mutex;
    std::uint64_t arenaHead = 0;  // bytes of the arena ever used; kernel queue only
    std::array<std::uint64_t, kSlots> arenaHeadAfter{};  // of the command in that slot
  };
  struct PinnedFile {
    std::uint32_t number;
    std::size_t pins;
  };
  using FileKey = std::pair<dev_t, ino_t>;
  struct Pin {
    std::size_t bytes;
    FileKey file;
  };
  struct Allocation {
    std::size_t bytes;
    Placement placement;
    Home home;
    std::uint64_t number = 0;  // of its pages in memoryFile_; 0: they are anonymous
    bool handedOut = false;    // its file was
  };

  Result<DeviceAddress> allocate(std::size_t bytes, std::size_t alignment, Placement placement,
                                 Home home);
  // Maps memory under an address that is the allocation's, and counts it.
  Status mapAt(std::uintptr_t address, Allocation allocation);
  // The memory file, with those bytes; the memory's lock is held.
  Result<int> fileUpTo(std::int64_t end);
  Status free(DeviceAddress address, std::size_t bytes, bool withItsAddress);
  // The bytes of allocations with that home, and whether it has room for more. The memory's lock is
  // held.
  std::size_t& usedIn(Home home) { return home == Home::kDevice ? usedBytes_ : cpuBytes_; }
  Status roomFor(std::size_t bytes, Home home);

  Status forkDevice(int deviceSocket);
  Status receiveHello();

  bool forked() const { return forkMark_.inChild(); }
  void reapDevice() const noexcept;
  // Looks whether the device process is there; a system call.
  bool lost() noexcept;
  // The same, and whether the program has closed what the device is watched and asked through.
  bool lostOrClosed() noexcept;
  bool pidfdOurs() const noexcept;
  Status failForked() const;
  Status failLost() const;
  Status failLostInWait();
  // The reply's value. The strings are those that the request announces.
  Result<std::uint64_t> ask(const Request& request, int fd = -1, std::string_view module = {},
                            std::string_view path = {});
  Status control(const Request& request, int fd = -1);

  Submission& submission(QueueId id) { return submissions_[static_cast<std::size_t>(id)]; }
  std::uint64_t newestCopyIn() const { return control_->queue(QueueId::kIn).submitted.value(); }
  Status reach(Queue& queue, std::uint64_t place);
  Status checkTicket(Ticket ticket);
  Status takeError(Queue& queue, std::uint64_t place);
  Result<std::uint64_t> arenaSpace(Submission& submission, Queue& queue, std::size_t bytes);
  // Sends `command`, with `data` in the arena when `dataBytes` is not 0.
  Result<Ticket> send(QueueId id, Command command, const void* data = nullptr,
                      std::size_t dataBytes = 0);
  Result<Ticket> launchAfter(Ticket after, LoadedKernel& kernel, const LaunchShape& shape,
                             void** args);
  Result<std::uintptr_t> resolve(const void* address, SegmentUse use, const char* kind,
                                 const char* what);

  const std::size_t memoryBytes_;
  const unsigned threads_;
  const std::string deviceName_;
  const bool ofGroup_;  // its addresses are other accelerators', too

  std::shared_ptr<AddressWindows> windows_;  // perhaps of other accelerators, too
  ForkMark forkMark_;
  Mapping controlMemory_;
  ControlBlock* control_ = nullptr;
  Descriptor socket_;
  Descriptor devicePidfd_;  // empty where the system has none; the socket's hang-up tells then
  pid_t devicePid_ = 0;
  std::atomic<bool> lost_{false};
  std::atomic<bool> crashReported_{false};

  std::mutex socketMutex_;  // held from a request to its reply
  Reply reply_;             // guarded by it; too large for the stack of a fault

  mutable std::mutex memoryMutex_;  // guards what follows
  std::map<std::uintptr_t, Allocation> allocations_;
  // The file of allocations that other processes can be given: a sparse file as long as the
  // windows, so that neighbours are one mapping of the device process, as anonymous ones are.
  Descriptor memoryFile_;
  std::int64_t fileBytes_ = 0;
  bool fileRefused_ = false;
  std::uint64_t numbers_ = 0;
  std::map<std::uintptr_t, std::size_t> imports_;  // addresses, bytes
  std::atomic<bool> anyImports_{false};            // ever; read without the lock
  std::size_t usedBytes_ = 0;                      // of the device's memory
  std::size_t cpuBytes_ = 0;                       // of allocations with the CPU's

  std::mutex pinMutex_;  // guards what follows
  std::map<std::uintptr_t, Pin> pins_;
  std::map<FileKey, PinnedFile> files_;
  std::uint32_t nextFile_ = 1;

  std::array<Submission, kQueueCount> submissions_;
  std::mutex errorMutex_;  // guards taking errors out of the queues
};

// ---- Start and end

Status HostAccelerator::start(std::size_t windowBytes) {
  if (windows_ == nullptr) {
    auto windows = AddressWindows::make({.bytes = windowBytes, .memoryBytes = memoryBytes_});
    if (!windows.ok()) {
      return windows.status();
    }
    windows_ = std::move(*windows);
  }
  controlMemory_ = map(roundUp(sizeof(ControlBlock), pageBytes()), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_NORESERVE);
  if (!controlMemory_) {
    return fail(adsmErrorHostMemory, "the host accelerator cannot map its control block: {}",
                std::strerror(errno));
  }
  // Default initialisation: fresh pages are zero already, and writing them all would populate them.
  control_ = new (controlMemory_.address()) ControlBlock;
  GMAC_TRY(forkMark_.make());

  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return fail(adsmErrorSystem, "socketpair() for the host accelerator: {}", std::strerror(errno));
  }
  socket_ = Descriptor(sockets[0]);
  Descriptor deviceSocket(sockets[1]);
  if (!socket_ || !deviceSocket) {
    return fail(adsmErrorSystem, "no descriptors for the host accelerator's socket: {}",
                std::strerror(errno));
  }
  GMAC_TRY(forkDevice(deviceSocket.get()));
  deviceSocket.reset();  // so that the device's end closes with the device
  return receiveHello();
}

Status HostAccelerator::forkDevice(int deviceSocket) {
  // Opened here, where the number cannot yet belong to another process. Without one (an old kernel,
  // valgrind, a sandbox) the device watches the socket's other end, which children that the
  // application forks keep open, too.
  const Descriptor self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  // Each of the windows in the application leaves a part of a limited address space; so does this.
  const std::size_t fileWindow = std::min(kDefaultFileWindow, windowLimit() / 2);
  // No handler of the application may run in the device process.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto rangeOf = [&](Placement placement) {
    const ReservedAddresses& addresses = windows_->of(placement);
    return AddressRange{addresses.begin(), addresses.bytes()};
  };
  const Status spawned =
      spawnDeviceProcess({control_,
                          deviceSocket,
                          self.get(),
                          threads_,
                          fileWindow,
                          {rangeOf(Placement::kSameAddress), rangeOf(Placement::kAnywhere)}});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return spawned;
}

// The reason that keeps the device process from starting threads, if there is one: the thread
// sanitizer, which ends a fork of a program that has threads when it starts one.
std::string whyNoThreads() {
  Dl_info starter;
  Dl_info libc;
  if (dladdr(reinterpret_cast<void*>(&pthread_create), &starter) == 0 ||
      dladdr(reinterpret_cast<void*>(&gnu_get_libc_version), &libc) == 0 ||
      starter.dli_fbase == libc.dli_fbase) {
    return {};
  }
  return fmt::format(
      " ({} stands in for pthread_create: in a program with the thread sanitizer, set "
      "TSAN_OPTIONS=die_after_fork=0:report_signal_unsafe=0)",
      starter.dli_fname);
}

Status HostAccelerator::receiveHello() {
  pollfd watched{socket_.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&watched, 1, kStartLimitMs);
  } while (ready < 0 && errno == EINTR);
  Reply hello{};
  if (ready == 0) {
    return fail(adsmErrorSystem,
                "the host accelerator's device process did not report within {} s of its start",
                kStartLimitMs / 1000);
  }
  if (ready < 0 || receiveMessage(socket_.get(), &hello, sizeof hello, &devicePidfd_) !=
                       static_cast<ssize_t>(sizeof hello)) {
    const CrashReport& crash = control_->crash;
    return crash.state.load(std::memory_order_acquire) == 2
               ? fail(adsmErrorSystem,
                      "the host accelerator's device process died of SIG{} at address {:#x} while "
                      "it started",
                      sigabbrev_np(crash.signal), crash.address)
               : fail(adsmErrorSystem,
                      "the host accelerator's device process ended while it started{}",
                      whyNoThreads());
  }
  if (hello.failure.code != adsmSuccess) {
    return fail(hello.failure.code, "{}", hello.failure.text.data());
  }
  devicePid_ = static_cast<pid_t>(hello.value);
  return Status();
}

HostAccelerator::~HostAccelerator() {
  if (forked()) {
    // The device process and the addresses are the parent's.
    windows_->forget();
    controlMemory_.forget();
    return;
  }
  // Not close(): a child that the application forked may hold the socket too.
  if (socket_.ours()) {
    shutdown(socket_.get(), SHUT_RDWR);
  }
  if (!devicePidfd_ || !pidfdOurs()) {
    return;
  }
  pollfd watched{devicePidfd_.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&watched, 1, kStopLimitMs);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) {
    syscall(SYS_pidfd_send_signal, devicePidfd_.get(), SIGKILL, nullptr, 0);
  }
  reapDevice();
}

// Of a device process that is a child of this one (see spawn.cc) nothing is left. No wait of the
// application's gets it.
void HostAccelerator::reapDevice() const noexcept {
  if (devicePid_ != 0) {
    (void)syscall(SYS_wait4, devicePid_, nullptr, WNOHANG | __WCLONE, nullptr);
  }
}

// ---- Loss

bool HostAccelerator::lost() noexcept {
  if (lost_.load(std::memory_order_acquire)) {
    return true;
  }
  if (control_->crash.state.load(std::memory_order_acquire) != 2) {
    // A hang-up is told without being asked for.
    pollfd watched =
        devicePidfd_ ? pollfd{devicePidfd_.get(), POLLIN, 0} : pollfd{socket_.get(), 0, 0};
    if (poll(&watched, 1, 0) <= 0) {
      return false;
    }
  }
  lost_.store(true, std::memory_order_release);
  reapDevice();
  return true;
}

bool HostAccelerator::lostOrClosed() noexcept {
  if (!lost() && (!socket_.ours() || (devicePidfd_ && !pidfdOurs()))) {
    lost_.store(true, std::memory_order_release);
  }
  return lost_.load(std::memory_order_acquire);
}

// Older kernels have one inode for all pidfds, and for more.
bool HostAccelerator::pidfdOurs() const noexcept {
  return devicePidfd_.ours() &&
         (syscall(SYS_pidfd_send_signal, devicePidfd_.get(), 0, nullptr, 0) == 0 || errno != EBADF);
}

Status HostAccelerator::failForked() const {
  return fail(adsmErrorForked,
              "the host accelerator belongs to the process that this one was forked from");
}

Status HostAccelerator::failLost() const {
  const CrashReport& crash = control_->crash;
  if (crash.state.load(std::memory_order_acquire) != 2) {
    if (!socket_.use("the socket to the device process").ok() ||
        (devicePidfd_ && !devicePidfd_.use("the pidfd of the device process").ok())) {
      return fail(adsmErrorAcceleratorLost, "the host accelerator is gone: {}", lastErrorText());
    }
    return fail(adsmErrorAcceleratorLost,
                "the host accelerator is gone: its device process {} has ended", devicePid_);
  }
  if (crash.inKernel) {
    return fail(adsmErrorAcceleratorLost,
                "the host accelerator is gone: its device process {} died of SIG{} at address "
                "{:#x} in kernel '{}'",
                devicePid_, sigabbrev_np(crash.signal), crash.address, crash.name.data());
  }
  return fail(adsmErrorAcceleratorLost,
              "the host accelerator is gone: its device process {} died of SIG{} at address {:#x}",
              devicePid_, sigabbrev_np(crash.signal), crash.address);
}

Status HostAccelerator::failLostInWait() {
  const CrashReport& crash = control_->crash;
  if (crash.state.load(std::memory_order_acquire) == 2 && crash.inKernel &&
      !crashReported_.exchange(true, std::memory_order_relaxed)) {
    return fail(adsmErrorKernel,
                "kernel '{}' crashed with SIG{} at address {:#x}, and the host accelerator's "
                "device process {} with it",
                crash.name.data(), sigabbrev_np(crash.signal), crash.address, devicePid_);
  }
  return failLost();
}

Status HostAccelerator::usable() {
  if (forked()) {
    return failForked();
  }
  return lost() ? failLost() : Status();
}

Result<std::uint64_t> HostAccelerator::ask(const Request& request, int fd, std::string_view module,
                                           std::string_view path) {
  GMAC_TRY(usable());
  std::lock_guard lock(socketMutex_);
  if (lostOrClosed()) {
    return failLost();
  }
  if (!sendRequest(socket_.get(), request, module, path, fd)) {
    const int error = errno;
    if (lost() || error == EPIPE || error == ECONNRESET) {
      lost_.store(true, std::memory_order_release);
      return failLost();
    }
    return fail(adsmErrorSystem, "sendmsg() to the host accelerator's device process {}: {}",
                devicePid_, std::strerror(error));
  }
  // An empty pidfd is -1, which poll() leaves out.
  std::array<pollfd, 2> watched{{{socket_.get(), POLLIN, 0}, {devicePidfd_.get(), POLLIN, 0}}};
  while (poll(watched.data(), watched.size(), -1) < 0 && errno == EINTR) {
  }
  Descriptor none;
  if (watched[0].revents == 0 || receiveMessage(socket_.get(), &reply_, sizeof reply_, &none) !=
                                     static_cast<ssize_t>(sizeof reply_)) {
    lost_.store(true, std::memory_order_release);
    return failLost();
  }
  if (reply_.failure.code != adsmSuccess) {
    recordError(reply_.failure.code, reply_.failure.text.data());
    return Status(reply_.failure.code);
  }
  return reply_.value;
}

Status HostAccelerator::control(const Request& request, int fd) {
  return ask(request, fd).status();
}

// ---- Memory

Request requestFor(RequestKind kind, std::uintptr_t address, std::size_t bytes) {
  Request request{};
  request.kind = kind;
  request.address = address;
  request.bytes = bytes;
  return request;
}

Status HostAccelerator::roomFor(std::size_t bytes, Home home) {
  if (home == Home::kDevice) {
    return bytes <= memoryBytes_ - usedBytes_
               ? Status()
               : fail(adsmErrorAcceleratorMemory,
                      "the host accelerator has no {} bytes left: {} of its {} bytes are free",
                      bytes, memoryBytes_ - usedBytes_, memoryBytes_);
  }
  // Its pages are taken as they are touched: what was promised counts, too.
  const std::size_t spare = spareMemory();
  return cpuBytes_ <= spare && bytes <= spare - cpuBytes_
             ? Status()
             : fail(
                   adsmErrorHostMemory,
                   "{} bytes of the CPU's memory for the accelerator: {} can be spared, {} of them "
                   "are taken",
                   bytes, spare, cpuBytes_);
}

Result<DeviceAddress> HostAccelerator::allocate(std::size_t bytes, std::size_t alignment,
                                                Placement placement) {
  return allocate(bytes, alignment, placement, Home::kDevice);
}

Result<DeviceAddress> HostAccelerator::allocate(std::size_t bytes, std::size_t alignment,
                                                Placement placement, Home home) {
  GMAC_TRY(usable());
  if (bytes == 0 || bytes % pageBytes() != 0) {
    return fail(adsmErrorInvalidValue,
                "{} bytes of accelerator memory: not a multiple of the page size {}", bytes,
                pageBytes());
  }
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return fail(adsmErrorInvalidValue, "alignment {} of accelerator memory: not a power of two",
                alignment);
  }
  alignment = std::max(alignment, bytes >= kHugePageBytes ? kHugePageBytes : pageBytes());
  {
    const std::lock_guard lock(memoryMutex_);
    GMAC_TRY(roomFor(bytes, home));
  }
  const auto address = windows_->take(bytes, alignment, placement);
  if (!address) {
    return fail(placement == Placement::kSameAddress ? adsmErrorAddressConflict
                                                     : adsmErrorAcceleratorMemory,
                "the host accelerator has no {} free addresses in a row for one allocation: the "
                "longest free range has {} bytes",
                bytes, windows_->largest(placement));
  }
  const Status mapped = mapAt(*address, Allocation{bytes, placement, home});
  if (!mapped.ok()) {
    windows_->giveBack(*address, bytes, placement);
    return mapped;
  }
  return DeviceAddress{*address};
}

Result<int> HostAccelerator::fileUpTo(std::int64_t end) {
  if (!memoryFile_) {
    // A mapping of a file that its owner can shorten may end the process that reads it.
    Descriptor file(memfd_create("gmac accelerator", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
      return fail(adsmErrorSystem, "a file for accelerator memory: {}", std::strerror(errno));
    }
    memoryFile_ = std::move(file);
  }
  const Result<int> file = memoryFile_.use("the file of accelerator memory");
  GMAC_TRY(file.status());
  // Looked at first: a file that exceeds it would also bring a signal.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(end)) {
    return fail(adsmErrorSystem,
                "a file of {} bytes for accelerator memory is more than the limit of file sizes "
                "(RLIMIT_FSIZE, ulimit -f), {} bytes",
                end, limit.rlim_cur);
  }
  if (fileBytes_ < end) {
    if (ftruncate(*file, end) != 0) {
      return fail(adsmErrorSystem, "{} bytes of a file for accelerator memory: {}", end,
                  std::strerror(errno));
    }
    fileBytes_ = end;
  }
  return *file;
}

Status HostAccelerator::mapAt(std::uintptr_t address, Allocation allocation) {
  Request request = requestFor(RequestKind::kAllocate, address, allocation.bytes);
  int fd = -1;
  {
    const std::lock_guard lock(memoryMutex_);
    GMAC_TRY(roomFor(allocation.bytes, allocation.home));
    if (sharesMemory() && !ofGroup_ && !fileRefused_) {
      request.offset = windows_->offsetOf(address, allocation.placement);
      const Result<int> file =
          fileUpTo(request.offset + static_cast<std::int64_t>(allocation.bytes));
      if (file.ok()) {
        fd = *file;
        request.file = static_cast<std::uint32_t>(Backing::kFile);
        allocation.number = ++numbers_;
      } else {
        fileRefused_ = true;
        log(LogLevel::kInfo, "other processes cannot be given memory of the host accelerator: {}",
            lastErrorText());
      }
    }
    usedIn(allocation.home) += allocation.bytes;
  }
  const Status mapped = control(request, fd);
  const std::lock_guard lock(memoryMutex_);
  if (mapped.ok()) {
    allocations_.emplace(address, allocation);
  } else {
    usedIn(allocation.home) -= allocation.bytes;
  }
  return mapped;
}

Status HostAccelerator::allocateAt(DeviceAddress address, std::size_t bytes, Placement placement) {
  GMAC_TRY(usable());
  return mapAt(static_cast<std::uintptr_t>(address), Allocation{bytes, placement, Home::kDevice});
}

Status HostAccelerator::free(DeviceAddress address, std::size_t bytes, bool withItsAddress) {
  GMAC_TRY(usable());
  const auto number = static_cast<std::uintptr_t>(address);
  Allocation allocation{};
  {
    std::lock_guard lock(memoryMutex_);
    const auto found = allocations_.find(number);
    if (found == allocations_.end() || found->second.bytes != bytes) {
      return fail(adsmErrorInvalidValue,
                  "no {} bytes of the host accelerator's memory start at {:#x}", bytes, number);
    }
    allocation = found->second;
    allocations_.erase(found);
  }
  if (allocation.handedOut) {
    sharedMemoryEnds(allocation.number);
  }
  Request request = requestFor(RequestKind::kFree, number, bytes);
  request.file =
      static_cast<std::uint32_t>(allocation.number != 0 ? Backing::kFile : Backing::kAnonymous);
  const Status unmapped = control(request);
  {
    const std::lock_guard lock(memoryMutex_);
    if (!unmapped.ok()) {
      allocations_.emplace(number, allocation);
      return unmapped;
    }
    usedIn(allocation.home) -= bytes;
  }
  // The pages are freed, and read as zero for the next allocation there.
  if (allocation.number != 0 &&
      fallocate(memoryFile_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                windows_->offsetOf(number, allocation.placement), static_cast<off_t>(bytes)) != 0) {
    return fail(adsmErrorSystem, "{} bytes of the host accelerator's memory are not freed: {}",
                bytes, std::strerror(errno));
  }
  if (withItsAddress) {
    windows_->giveBack(number, bytes, allocation.placement);
  }
  return Status();
}

Status HostAccelerator::move(DeviceAddress address, std::size_t bytes, Home home) {
  GMAC_TRY(usable());
  if (home == Home::kMirror) {
    return fail(adsmErrorNotSupported, "the device process does not reach the CPU's own pages");
  }
  std::lock_guard lock(memoryMutex_);
  const auto found = allocations_.find(static_cast<std::uintptr_t>(address));
  if (found == allocations_.end() || found->second.bytes != bytes) {
    return fail(adsmErrorInvalidValue,
                "no {} bytes of the host accelerator's memory start at {:#x}", bytes,
                static_cast<std::uintptr_t>(address));
  }
  Home& now = found->second.home;
  if (now != home) {
    GMAC_TRY(roomFor(bytes, home));
    usedIn(now) -= bytes;
    usedIn(home) += bytes;
    now = home;
  }
  return {};
}

Result<SharedAllocation> HostAccelerator::sharedAllocation(DeviceAddress address) {
  const auto number = static_cast<std::uintptr_t>(address);
  const std::lock_guard lock(memoryMutex_);
  auto found = allocations_.upper_bound(number);
  if (found == allocations_.begin() || number - (--found)->first >= found->second.bytes ||
      found->second.number == 0) {
    return fail(adsmErrorNotSupported, "the memory at {:#x} of the host accelerator has no file",
                number);
  }
  return SharedAllocation{DeviceAddress{found->first}, found->second.bytes, found->second.number};
}

Result<std::vector<MemoryFile>> HostAccelerator::filesOf(const SharedAllocation& allocation) {
  GMAC_TRY(usable());
  const auto start = static_cast<std::uintptr_t>(allocation.start);
  const std::lock_guard lock(memoryMutex_);
  const auto found = allocations_.find(start);
  if (found == allocations_.end() || found->second.number == 0 ||
      found->second.number != allocation.number) {
    return fail(adsmErrorInvalidValue, "memory at {:#x} of the host accelerator is freed", start);
  }
  const Result<int> own = memoryFile_.use("the file of accelerator memory");
  GMAC_TRY(own.status());
  const int file = fcntl(*own, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (file < 0) {
    return fail(adsmErrorSystem, "a descriptor of accelerator memory: {}", std::strerror(errno));
  }
  found->second.handedOut = true;
  return std::vector<MemoryFile>{
      {file, windows_->offsetOf(start, found->second.placement), found->second.bytes}};
}

Result<DeviceAddress> HostAccelerator::importFiles(std::span<const MemoryFile> files) {
  GMAC_TRY(usable());
  const auto refused = [](const char* why) {
    return fail(adsmErrorInvalidValue,
                "these files are no memory of another process's host accelerator: {}", why);
  };
  if (files.size() != 1) {
    return refused("it has one");
  }
  const MemoryFile& from = files.front();
  struct stat status {};
  const int seals = fcntl(from.file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(from.file, &status) != 0 ||
      from.offset < 0 || from.bytes == 0 || from.bytes % pageBytes() != 0 ||
      static_cast<std::size_t>(from.offset) % pageBytes() != 0 || from.offset > status.st_size ||
      from.bytes > static_cast<std::size_t>(status.st_size - from.offset)) {
    return refused("it is no file of so many bytes that cannot shrink");
  }
  const auto address = windows_->take(from.bytes, pageBytes(), Placement::kAnywhere);
  if (!address) {
    return fail(adsmErrorAcceleratorMemory,
                "the host accelerator has no {} free addresses for another process's memory",
                from.bytes);
  }
  Request request = requestFor(RequestKind::kAllocate, *address, from.bytes);
  request.file = static_cast<std::uint32_t>(Backing::kReadOnly);
  request.offset = from.offset;
  if (const Status mapped = control(request, from.file); !mapped.ok()) {
    windows_->giveBack(*address, from.bytes, Placement::kAnywhere);
    return mapped;
  }
  const std::lock_guard lock(memoryMutex_);
  imports_.emplace(*address, from.bytes);
  anyImports_.store(true, std::memory_order_release);
  return DeviceAddress{*address};
}

Status HostAccelerator::releaseImport(DeviceAddress address) {
  GMAC_TRY(usable());
  const auto number = static_cast<std::uintptr_t>(address);
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(memoryMutex_);
    const auto found = imports_.find(number);
    if (found == imports_.end()) {
      return fail(adsmErrorInvalidValue, "the host accelerator has imported nothing at {:#x}",
                  number);
    }
    bytes = found->second;
  }
  Request request = requestFor(RequestKind::kFree, number, bytes);
  request.file = static_cast<std::uint32_t>(Backing::kReadOnly);
  GMAC_TRY(control(request));
  {
    const std::lock_guard lock(memoryMutex_);
    imports_.erase(number);
  }
  windows_->giveBack(number, bytes, Placement::kAnywhere);
  return {};
}

Memory HostAccelerator::memoryOf(const void* address) const noexcept {
  if (!anyImports_.load(std::memory_order_acquire)) {
    return Memory::kPageable;
  }
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(memoryMutex_);
  auto found = imports_.upper_bound(number);
  return found != imports_.begin() && number - (--found)->first < found->second ? Memory::kDevice
                                                                                : Memory::kPageable;
}

Result<MemoryRoom> HostAccelerator::memoryRoom() {
  GMAC_TRY(usable());
  std::lock_guard lock(memoryMutex_);
  return MemoryRoom{memoryBytes_, memoryBytes_ - usedBytes_};
}

Status HostAccelerator::pin(const HostMemory& memory) {
  GMAC_TRY(usable());
  const auto address = reinterpret_cast<std::uintptr_t>(memory.address);
  if (memory.fd < 0) {
    return fail(adsmErrorNotSupported,
                "the host accelerator cannot reach {} bytes of anonymous memory at {:#x}: only "
                "memory files",
                memory.bytes, address);
  }
  if (memory.bytes == 0 || memory.bytes % pageBytes() != 0 || address % pageBytes() != 0 ||
      memory.offset < 0 || static_cast<std::size_t>(memory.offset) % pageBytes() != 0) {
    return fail(adsmErrorInvalidValue,
                "pin of {} bytes at {:#x}, offset {}: not multiples of the page size {}",
                memory.bytes, address, memory.offset, pageBytes());
  }
  struct stat file {};
  if (fstat(memory.fd, &file) != 0) {
    return fail(adsmErrorInvalidValue, "fstat({}) of the memory file behind {:#x}: {}", memory.fd,
                address, std::strerror(errno));
  }
  const FileKey key{file.st_dev, file.st_ino};
  // The device process keeps the file open while a pin names it, so nothing else can get its
  // inode's number.
  std::lock_guard lock(pinMutex_);
  auto known = files_.find(key);
  const bool isNew = known == files_.end();
  Request request = requestFor(RequestKind::kPin, address, memory.bytes);
  request.file = isNew ? nextFile_ : known->second.number;
  request.offset = memory.offset;
  request.onlyPinOfFile = isNew ? 1 : 0;
  GMAC_TRY(control(request, isNew ? memory.fd : -1));
  if (isNew) {
    known = files_.emplace(key, PinnedFile{nextFile_++, 0}).first;
  }
  ++known->second.pins;
  pins_.emplace(address, Pin{memory.bytes, key});
  return Status();
}

Status HostAccelerator::unpin(const HostMemory& memory) {
  GMAC_TRY(usable());
  const auto address = reinterpret_cast<std::uintptr_t>(memory.address);
  std::lock_guard lock(pinMutex_);
  const auto pin = pins_.find(address);
  if (pin == pins_.end() || pin->second.bytes != memory.bytes) {
    return fail(adsmErrorInvalidValue, "no {} bytes of pinned memory start at {:#x}", memory.bytes,
                address);
  }
  const auto file = files_.find(pin->second.file);
  Request request = requestFor(RequestKind::kUnpin, address, memory.bytes);
  request.file = file->second.number;
  request.onlyPinOfFile = file->second.pins == 1 ? 1 : 0;
  GMAC_TRY(control(request));
  if (--file->second.pins == 0) {
    files_.erase(file);
  }
  pins_.erase(pin);
  return Status();
}

Result<void*> HostAccelerator::allocatePinned(std::size_t bytes) {
  bytes = roundUp(bytes, pageBytes());
  // Looked at first: a file that exceeds it would also bring a signal.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    return fail(adsmErrorHostMemory,
                "{} bytes of pinned memory are more than the limit of file sizes (RLIMIT_FSIZE, "
                "ulimit -f), {} bytes",
                bytes, limit.rlim_cur);
  }
  // The device process keeps the file open; here the mapping does.
  const Descriptor file(memfd_create("gmac pinned", MFD_CLOEXEC));
  Mapping memory;
  if (file && ftruncate(file.get(), static_cast<off_t>(bytes)) == 0) {
    memory = map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
  }
  if (!memory || madvise(memory.address(), bytes, MADV_DONTFORK) != 0) {
    return fail(adsmErrorHostMemory,
                "the host accelerator cannot map {} bytes of pinned memory: {}", bytes,
                std::strerror(errno));
  }
  GMAC_TRY(pin({memory.address(), bytes, file.get(), 0}));
  void* const address = memory.address();
  memory.forget();
  return address;
}

void HostAccelerator::freePinned(void* address, std::size_t bytes) noexcept {
  bytes = roundUp(bytes, pageBytes());
  (void)unpin({address, bytes, -1, 0});
  munmap(address, bytes);
}

// ---- Commands

Status HostAccelerator::reach(Queue& queue, std::uint64_t place) {
  while (!queue.completed.await(place, kLookAfterDevice)) {
    if (lostOrClosed()) {
      return failLost();
    }
  }
  return Status();
}

// A ticket from elsewhere must not be waited for for ever.
Status HostAccelerator::checkTicket(Ticket ticket) {
  if (ticket.value == 0) {
    return Status();
  }
  if ((ticket.value & 3) != 0) {
    const TicketPlace at = decodeTicket(ticket);
    if (at.place != 0 && at.place <= control_->queue(at.queue).submitted.value()) {
      return Status();
    }
  }
  return fail(adsmErrorInvalidValue, "ticket {} is none of the host accelerator's", ticket.value);
}

Result<std::uint64_t> HostAccelerator::arenaSpace(Submission& submission, Queue& queue,
                                                  std::size_t bytes) {
  std::uint64_t start = roundUp(submission.arenaHead, kArenaAlignment);
  if (start % kArenaBytes + bytes > kArenaBytes) {
    start = roundUp(start, kArenaBytes);
  }
  const std::uint64_t submitted = queue.submitted.value();
  for (std::uint64_t completed = queue.completed.value();; ++completed) {
    GMAC_TRY(reach(queue, completed));
    const std::uint64_t tail = completed == submitted
                                   ? submission.arenaHead
                                   : submission.arenaHeadAfter[completed % kSlots];
    if (completed == submitted || start + bytes - tail <= kArenaBytes) {
      submission.arenaHead = start + bytes;
      return start % kArenaBytes;
    }
  }
}

Result<Ticket> HostAccelerator::send(QueueId id, Command command, const void* data,
                                     std::size_t dataBytes) {
  GMAC_TRY(usable());
  GMAC_TRY(checkTicket(Ticket{command.after}));
  Queue& queue = control_->queue(id);
  Submission& mine = submission(id);
  std::lock_guard lock(mine.mutex);
  const std::uint64_t place = queue.submitted.value() + 1;
  if (place > kSlots) {
    GMAC_TRY(reach(queue, place - kSlots));
  }
  if (dataBytes != 0) {
    const Result<std::uint64_t> offset = arenaSpace(mine, queue, dataBytes);
    if (!offset.ok()) {
      return offset.status();
    }
    command.arenaOffset = *offset;
    std::memcpy(control_->arena.data() + *offset, data, dataBytes);
  }
  mine.arenaHeadAfter[place % kSlots] = mine.arenaHead;
  queue.slots[place % kSlots] = command;
  queue.submitted.publish(place);
  return encodeTicket({id, place});
}

// A copy or a fill.
Command bulkCommand(CommandKind kind, std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
                    Ticket after = {}) {
  Command command{};
  command.kind = kind;
  command.after = after.value;
  command.to = to;
  command.from = from;
  command.bytes = bytes;
  return command;
}

Result<Ticket> HostAccelerator::copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                                       Ticket after) {
  return send(QueueId::kIn, bulkCommand(CommandKind::kCopyIn, static_cast<std::uintptr_t>(to),
                                        reinterpret_cast<std::uintptr_t>(from), bytes, after));
}

Result<Ticket> HostAccelerator::copyOut(void* to, DeviceAddress from, std::size_t bytes,
                                        Ticket after) {
  return send(QueueId::kOut,
              bulkCommand(CommandKind::kCopyOut, reinterpret_cast<std::uintptr_t>(to),
                          static_cast<std::uintptr_t>(from), bytes, after));
}

Result<Ticket> HostAccelerator::copyWithin(DeviceAddress to, DeviceAddress from,
                                           std::size_t bytes) {
  return send(QueueId::kKernel,
              bulkCommand(CommandKind::kCopyWithin, static_cast<std::uintptr_t>(to),
                          static_cast<std::uintptr_t>(from), bytes));
}

Result<Ticket> HostAccelerator::fill(DeviceAddress to, std::byte value, std::size_t bytes) {
  return send(QueueId::kKernel, bulkCommand(CommandKind::kFill, static_cast<std::uintptr_t>(to),
                                            static_cast<std::uintptr_t>(value), bytes));
}

bool HostAccelerator::done(Ticket ticket) noexcept {
  if (ticket.value == 0 || forked()) {
    return true;
  }
  const TicketPlace at = decodeTicket(ticket);
  return control_->queue(at.queue).completed.value() >= at.place || lost();
}

Status HostAccelerator::wait(Ticket ticket) {
  if (ticket.value == 0) {
    return Status();
  }
  if (forked()) {
    return failForked();
  }
  GMAC_TRY(checkTicket(ticket));
  const TicketPlace at = decodeTicket(ticket);
  Queue& queue = control_->queue(at.queue);
  while (queue.completed.value() < at.place) {
    if (lost_.load(std::memory_order_acquire)) {
      return failLostInWait();
    }
    // True: reached. A loss is noticed here, and reported in the next round.
    if (!queue.completed.await(at.place, kLookAfterDevice)) {
      lostOrClosed();
    }
  }
  GMAC_TRY(takeError(queue, at.place));
  // Without a system call: the work was done, and a loss that nobody has noticed is noticed by the
  // next submission.
  return lost_.load(std::memory_order_acquire) ? failLostInWait() : Status();
}

Status HostAccelerator::takeError(Queue& queue, std::uint64_t place) {
  if (queue.errorsMade.load(std::memory_order_acquire) ==
      queue.errorsTaken.load(std::memory_order_acquire)) {
    return Status();
  }
  std::lock_guard lock(errorMutex_);
  const std::uint64_t taken = queue.errorsTaken.load(std::memory_order_relaxed);
  if (queue.errorsMade.load(std::memory_order_acquire) == taken) {
    return Status();
  }
  const ErrorRecord& record = queue.errors[taken % kErrorRecords];
  if (record.place > place) {
    return Status();
  }
  const std::uint64_t dropped = queue.errorsDropped.exchange(0, std::memory_order_relaxed);
  const Status failure = dropped == 0
                             ? fail(record.failure.code, "{}", record.failure.text.data())
                             : fail(record.failure.code, "{} ({} later errors were not kept)",
                                    record.failure.text.data(), dropped);
  queue.errorsTaken.store(taken + 1, std::memory_order_release);
  return failure;
}

// ---- Kernels

Result<std::uintptr_t> HostAccelerator::resolve(const void* address, SegmentUse use,
                                                const char* kind, const char* what) {
  const std::optional<ModulePlace> place = placeOf(address, use);
  if (!place) {
    return fail(adsmErrorInvalidValue, "{} '{}': {} is no {} of the program or a loaded library",
                kind, what, address,
                use == SegmentUse::kExecute ? "function" : "writable variable");
  }
  Request request = requestFor(RequestKind::kResolve, 0, 0);
  request.offset = place->offset;
  const std::string_view module = place->module.data();
  // The device process may have another working directory by now than the application had when it
  // loaded the library.
  const std::unique_ptr<char, decltype(&std::free)> found(realpath(module.data(), nullptr),
                                                          &std::free);
  const std::string_view path = found != nullptr ? found.get() : "";
  request.moduleBytes = static_cast<std::uint32_t>(module.size());
  request.pathBytes = static_cast<std::uint32_t>(path.size());
  const Result<std::uint64_t> there = ask(request, -1, module, path);
  if (!there.ok()) {
    return there.status();
  }
  return static_cast<std::uintptr_t>(*there);
}

Result<std::unique_ptr<LoadedKernel>> HostAccelerator::load(const adsmKernelDesc_t& desc) {
  GMAC_TRY(usable());
  if (desc.host == nullptr) {
    return fail(adsmErrorNoImplementation,
                "kernel '{}' has no implementation for the accelerator 'host' "
                "(adsmKernelDesc_t::host is NULL)",
                desc.name);
  }
  const Result<std::uintptr_t> function =
      resolve(reinterpret_cast<const void*>(desc.host), SegmentUse::kExecute, "kernel", desc.name);
  if (!function.ok()) {
    return function.status();
  }
  std::map<const void*, std::uintptr_t> constants;
  for (std::size_t i = 0; i < desc.constantCount; ++i) {
    const adsmConstant_t& constant = desc.constants[i];
    if (constant.host == nullptr) {
      continue;
    }
    const Result<std::uintptr_t> variable =
        resolve(constant.host, SegmentUse::kWrite, "constant", constant.name);
    if (!variable.ok()) {
      return variable.status();
    }
    constants.emplace(constant.host, *variable);
  }
  return std::unique_ptr<LoadedKernel>(
      std::make_unique<HostKernel>(desc, *function, std::move(constants)));
}

void copyName(Command& command, const char* name) {
  const std::size_t length = std::min(std::strlen(name), command.name.size() - 1);
  std::memcpy(command.name.data(), name, length);
  command.name[length] = '\0';
}

Status checkShape(const char* kernel, const LaunchShape& shape) {
  const auto check = [&](const char* what, const adsmDim_t& dim, std::size_t most) {
    // Two 32-bit factors fit in 64 bits, and the third is multiplied only when their product is
    // small.
    const std::size_t plane = std::size_t{dim.x} * dim.y;
    if (plane == 0 || dim.z == 0 || plane > most || plane * dim.z > most) {
      return fail(
          adsmErrorInvalidValue,
          "kernel '{}': a {} of {} x {} x {} (each must be 1 or more, and the product at most {})",
          kernel, what, dim.x, dim.y, dim.z, most);
    }
    return Status();
  };
  GMAC_TRY(check("grid", shape.grid, kHostMaxBlocks));
  GMAC_TRY(check("block", shape.block, kHostMaxBlockThreads));
  if (shape.sharedBytes > kHostMaxSharedBytes) {
    return fail(adsmErrorInvalidValue, "kernel '{}': {} bytes of shared memory (at most {})",
                kernel, shape.sharedBytes, kHostMaxSharedBytes);
  }
  return Status();
}

Result<Ticket> HostAccelerator::launchAfter(Ticket after, LoadedKernel& kernel,
                                            const LaunchShape& shape, void** args) {
  const auto& loaded = static_cast<const HostKernel&>(kernel);
  const adsmKernelDesc_t& desc = loaded.desc();
  GMAC_TRY(checkShape(desc.name, shape));
  if (desc.paramCount != 0 && args == nullptr) {
    return fail(adsmErrorInvalidValue, "kernel '{}' has {} parameters, but its arguments are NULL",
                desc.name, desc.paramCount);
  }
  // First the offsets of the arguments, then the arguments. A type's alignment divides its size, so
  // the largest power of two in the size is alignment enough.
  const auto alignedFor = [](std::size_t offset, std::size_t size) {
    return roundUp(offset, std::clamp<std::size_t>(size & -size, 1, kArenaAlignment));
  };
  std::size_t bytes = desc.paramCount * sizeof(std::uint32_t);
  for (std::size_t i = 0; i < desc.paramCount && bytes <= kHostMaxArgumentBytes; ++i) {
    bytes = desc.paramSizes[i] > kHostMaxArgumentBytes
                ? desc.paramSizes[i]
                : alignedFor(bytes, desc.paramSizes[i]) + desc.paramSizes[i];
  }
  if (bytes > kHostMaxArgumentBytes) {
    return fail(adsmErrorInvalidValue,
                "kernel '{}' has at least {} bytes of arguments; the host accelerator takes {}",
                desc.name, bytes, kHostMaxArgumentBytes);
  }
  // Gathered before the queue is locked: an argument may lie in a shared object and fault.
  std::array<std::byte, kSmallArguments> small;
  std::vector<std::byte> large(bytes > small.size() ? bytes : 0);
  std::byte* const packed = large.empty() ? small.data() : large.data();
  std::size_t offset = desc.paramCount * sizeof(std::uint32_t);
  for (std::size_t i = 0; i < desc.paramCount; ++i) {
    offset = alignedFor(offset, desc.paramSizes[i]);
    const auto narrow = static_cast<std::uint32_t>(offset);
    std::memcpy(packed + i * sizeof narrow, &narrow, sizeof narrow);
    std::memcpy(packed + offset, args[i], desc.paramSizes[i]);
    offset += desc.paramSizes[i];
  }

  Command command{};
  command.kind = CommandKind::kLaunch;
  command.argumentCount = static_cast<std::uint32_t>(desc.paramCount);
  command.function = loaded.function();
  command.sharedBytes = shape.sharedBytes;
  command.grid = shape.grid;
  command.block = shape.block;
  copyName(command, desc.name);
  command.after = after.value;
  command.copyInsBefore = newestCopyIn();
  return send(QueueId::kKernel, command, packed, bytes);
}

Status HostAccelerator::setConstant(LoadedKernel& kernel, const adsmConstant_t& constant,
                                    const void* data, std::size_t bytes) {
  if (constant.host == nullptr) {
    return fail(
        adsmErrorNoImplementation,
        "constant '{}' has no variable for the accelerator 'host' (adsmConstant_t::host is NULL)",
        constant.name);
  }
  const std::uintptr_t variable = static_cast<const HostKernel&>(kernel).constant(constant.host);
  if (variable == 0) {
    return fail(adsmErrorInvalidValue, "kernel '{}' has no constant '{}'",
                static_cast<const HostKernel&>(kernel).desc().name, constant.name);
  }
  if (bytes > constant.size || bytes > kHostMaxConstantBytes) {
    return fail(adsmErrorInvalidValue,
                "{} bytes for the constant '{}', which has {} (the host accelerator takes {})",
                bytes, constant.name, constant.size, kHostMaxConstantBytes);
  }
  if (bytes == 0) {
    return usable();
  }
  // As with arguments: the data may lie in a shared object.
  const std::vector<std::byte> copy(static_cast<const std::byte*>(data),
                                    static_cast<const std::byte*>(data) + bytes);
  Command command{};
  command.kind = CommandKind::kSetConstant;
  command.to = variable;
  command.bytes = bytes;
  copyName(command, constant.name);
  return send(QueueId::kKernel, command, copy.data(), bytes).status();
}

// ---- Work of the runtime's own

// The first launch of each kernel loads it.
class HostAccelerator::Kernels final : public LoadedKernels {
 public:
  Kernels(HostAccelerator& accelerator, const BuiltInKernels& kernels)
      : accelerator_(accelerator), kernels_(kernels.kernels.size()) {
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      const BuiltInKernel& one = kernels.kernels[i];
      kernels_[i].desc.name = one.name;
      kernels_[i].desc.paramCount = 1;
      kernels_[i].desc.paramSizes = &one.paramBytes;
      kernels_[i].desc.host = one.host;
    }
  }

  Result<LoadedKernel*> find(int number) {
    const std::lock_guard lock(mutex_);
    Kernel& kernel = kernels_[static_cast<std::size_t>(number)];
    if (kernel.loaded == nullptr) {
      auto loaded = accelerator_.load(kernel.desc);
      if (!loaded.ok()) {
        return loaded.status();
      }
      kernel.loaded = std::move(*loaded);
    }
    return kernel.loaded.get();
  }

 private:
  struct Kernel {
    adsmKernelDesc_t desc{};
    std::unique_ptr<LoadedKernel> loaded;
  };

  HostAccelerator& accelerator_;
  std::mutex mutex_;
  std::vector<Kernel> kernels_;
};

// On the kernel queue, each after the one before; the first one after the copies in so far, too, as
// a launch.
class HostAccelerator::InOrder final : public Commands {
 public:
  explicit InOrder(HostAccelerator& accelerator) : accelerator_(accelerator) {}
  Ticket last() const { return last_; }

  Status launch(LoadedKernels& kernels, const Launch& launch) override {
    auto kernel = static_cast<Kernels&>(kernels).find(launch.kernel);
    if (!kernel.ok()) {
      return kernel.status();
    }
    void* args[] = {const_cast<void*>(launch.params)};
    return note(accelerator_.launchAfter(last_, **kernel,
                                         {{launch.blocks, 1, 1}, {launch.threads, 1, 1}, 0}, args));
  }
  Status copyIn(std::uint64_t to, const void* pinned, std::size_t bytes) override {
    return bulk(CommandKind::kCopyIn, to, reinterpret_cast<std::uintptr_t>(pinned), bytes);
  }
  Status copyOut(void* pinned, std::uint64_t from, std::size_t bytes) override {
    return bulk(CommandKind::kCopyOut, reinterpret_cast<std::uintptr_t>(pinned), from, bytes);
  }
  Status copyWithin(std::uint64_t to, std::uint64_t from, std::size_t bytes) override {
    return bulk(CommandKind::kCopyWithin, to, from, bytes);
  }
  Status copyStrided(const StridedCopy&) override {
    return fail(adsmErrorNotSupported, "the host accelerator has no strided copies");
  }

 private:
  Status bulk(CommandKind kind, std::uintptr_t to, std::uintptr_t from, std::size_t bytes) {
    Command command = bulkCommand(kind, to, from, bytes, last_);
    command.copyInsBefore = accelerator_.newestCopyIn();
    return note(accelerator_.send(QueueId::kKernel, command));
  }
  Status note(const Result<Ticket>& ticket) {
    if (ticket.ok()) {
      last_ = *ticket;
    }
    return ticket.status();
  }

  HostAccelerator& accelerator_;
  Ticket last_;
};

std::unique_ptr<LoadedKernels> HostAccelerator::loadBuiltIn(const BuiltInKernels& kernels) {
  return std::make_unique<Kernels>(*this, kernels);
}

Result<Ticket> HostAccelerator::submit(Work& work) {
  InOrder commands(*this);
  GMAC_TRY(work.run(commands));
  return commands.last();
}

}  // namespace
}  // namespace host

Result<std::unique_ptr<Accelerator>> makeHostAccelerator(const HostOptions& options) {
  auto accelerator = std::make_unique<host::HostAccelerator>(options);
  GMAC_TRY(accelerator->start(options.windowBytes));
  return std::unique_ptr<Accelerator>(std::move(accelerator));
}

Result<std::vector<std::unique_ptr<Accelerator>>> makeHostAccelerators(const HostOptions& options,
                                                                       std::size_t count) {
  HostOptions each = options;
  each.memoryBytes = roundUp(
      (options.memoryBytes != 0 ? options.memoryBytes : usableMemory()) / count, host::pageBytes());
  each.threads = std::max(
      1U, (options.threads != 0 ? options.threads : usableCores()) / static_cast<unsigned>(count));
  if (each.windows == nullptr) {
    auto windows = AddressWindows::make(
        {.bytes = options.windowBytes, .memoryBytes = each.memoryBytes * count});
    if (!windows.ok()) {
      return windows.status();
    }
    each.windows = std::move(*windows);
  }
  std::vector<std::unique_ptr<Accelerator>> accelerators;
  for (std::size_t i = 0; i < count; ++i) {
    auto accelerator = makeHostAccelerator(each);
    if (!accelerator.ok()) {
      return accelerator.status();
    }
    accelerators.push_back(std::move(*accelerator));
  }
  return accelerators;
}

}  // namespace gmac::accel
