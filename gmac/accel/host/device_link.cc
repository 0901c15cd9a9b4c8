// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/device_link.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "gmac/accel/host/device_process.h"
#include "gmac/accel/host/spawn.h"
#include "gmac/base/memory_limit.h"
#include "gmac/base/own_system_call.h"
#include "gmac/base/round_up.h"

namespace gmac::accel::host {
namespace {

// Of address space in the device process.
constexpr std::size_t kDefaultFileWindow = std::size_t{64} << 30;
constexpr int kStartLimitMs = 10'000;
// How long the device process may take to end by itself.
constexpr int kStopLimitMs = 1000;
static_assert(AddressWindows::kEdgeBytes >= kMarginBytes);

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

}  // namespace

Status DeviceLink::start(const AddressWindows& windows, unsigned threads) {
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
  GMAC_TRY(forkDevice(windows, threads, deviceSocket.get()));
  deviceSocket.reset();  // so that the device's end closes with the device
  return receiveHello();
}

Status DeviceLink::forkDevice(const AddressWindows& windows, unsigned threads, int deviceSocket) {
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
    const ReservedAddresses& addresses = windows.of(placement);
    return AddressRange{addresses.begin(), addresses.bytes()};
  };
  const Status spawned =
      spawnDeviceProcess({control_,
                          deviceSocket,
                          self.get(),
                          threads,
                          fileWindow,
                          {rangeOf(Placement::kSameAddress), rangeOf(Placement::kAnywhere)}});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return spawned;
}

Status DeviceLink::receiveHello() {
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

DeviceLink::~DeviceLink() {
  if (forked()) {
    // The device process is the parent's.
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
void DeviceLink::reapDevice() const noexcept {
  if (devicePid_ != 0) {
    (void)syscall(SYS_wait4, devicePid_, nullptr, WNOHANG | __WCLONE, nullptr);
  }
}

bool DeviceLink::lost() noexcept {
  if (lost_.load(std::memory_order_acquire)) {
    return true;
  }
  if (control_->crash.state.load(std::memory_order_acquire) != 2) {
    // A hang-up is told without being asked for.
    pollfd watched =
        devicePidfd_ ? pollfd{devicePidfd_.get(), POLLIN, 0} : pollfd{socket_.get(), 0, 0};
    // (It is asked under locks, and the program's polls are looked at for shared memory.)
    if (ownSystemCall(SYS_poll, &watched, 1U, 0) <= 0) {
      return false;
    }
  }
  lost_.store(true, std::memory_order_release);
  reapDevice();
  return true;
}

bool DeviceLink::lostOrClosed() noexcept {
  if (!lost() && (!socket_.ours() || (devicePidfd_ && !pidfdOurs()))) {
    lost_.store(true, std::memory_order_release);
  }
  return lost_.load(std::memory_order_acquire);
}

// Older kernels have one inode for all pidfds, and for more.
bool DeviceLink::pidfdOurs() const noexcept {
  return devicePidfd_.ours() &&
         (syscall(SYS_pidfd_send_signal, devicePidfd_.get(), 0, nullptr, 0) == 0 || errno != EBADF);
}

Status DeviceLink::failForked() const {
  return fail(adsmErrorForked,
              "the host accelerator belongs to the process that this one was forked from");
}

Status DeviceLink::failLost() const {
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

Status DeviceLink::failLostInWait() {
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

Status DeviceLink::usable() {
  if (forked()) {
    return failForked();
  }
  return lost() ? failLost() : Status();
}

Result<std::uint64_t> DeviceLink::ask(const Request& request, int fd, std::string_view module,
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

}  // namespace gmac::accel::host
