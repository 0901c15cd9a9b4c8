// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/device_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmac/accel/host/address_table.h"
#include "gmac/accel/host/device_thread.h"
#include "gmac/accel/host/file_window.h"
#include "gmac/accel/host/messages.h"
#include "gmac/accel/host/module_table.h"
#include "gmac/accel/host/thread_pool.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#else
// The thread sanitizer's, in a program that was built with it.
extern "C" [[gnu::weak]] void __tsan_ignore_thread_begin();
#endif

// sigaction() under the name that no library which is put before libc stands in for: what the
// device process does with its signals must not be recorded as the application's wish.
extern "C" int __sigaction(int signal, const struct sigaction* action,
                           struct sigaction* before) noexcept;

namespace gmac::accel::host {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kSignalStackBytes = std::size_t{64} << 10;
// For the first thread, whose stack is none that the sanitizers know.
#define UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

constexpr auto kForever = std::chrono::hours(24);

template <typename... Args>
Failure failureOf(adsmError_t code, fmt::format_string<Args...> format, Args&&... args) {
  Failure failure{code, {}};
  const auto end = fmt::format_to_n(failure.text.data(), failure.text.size() - 1, format,
                                    std::forward<Args>(args)...);
  *end.out = '\0';
  return failure;
}

// Not strerror(): its translations have locks, which another thread may have held at the fork.
const char* errorText(int error) {
  const char* const text = strerrordesc_np(error);
  return text != nullptr ? text : "unknown error";
}

Failure success() { return Failure{adsmSuccess, {}}; }

// ---- Crashes

// The signal handler's data. Set before the threads start.
ControlBlock* crashControl = nullptr;
// The command that the kernel queue runs: kernels crash on its thread, on the pool's, or on threads
// of their own.
std::atomic<const Command*> runningOnKernelQueue{nullptr};
// Threads that never run a kernel's code.
thread_local volatile bool neverRunsKernels = false;

constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

void onCrash(int signal, siginfo_t* info, void* /*context*/) {
  const int savedErrno = errno;
  CrashReport& crash = crashControl->crash;
  std::uint32_t none = 0;
  // Several threads may crash at once: the first one reports, and nothing takes the process before.
  if (crash.state.compare_exchange_strong(none, 1)) {
    const Command* const command = runningOnKernelQueue.load();
    crash.signal = signal;
    crash.address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    crash.inKernel =
        !neverRunsKernels && command != nullptr && command->kind == CommandKind::kLaunch;
    if (crash.inKernel) {
      crash.name = command->name;
    }
    crash.state.store(2, std::memory_order_release);
    for (Queue& queue : crashControl->queues) {
      queue.completed.wakeAll();
    }
  } else {
    while (crash.state.load(std::memory_order_acquire) != 2) {
      sched_yield();
    }
  }
  // The default action takes the process when the signal comes back: by itself when the instruction
  // runs again, by us when somebody sent it.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  __sigaction(signal, &standard, nullptr);
  if (info->si_code <= 0) {
    raise(signal);
  }
  errno = savedErrno;
}

// Gives the calling thread a stack for onCrash, since what crashes may be out of stack. The thread
// lives as long as the process, and so does the stack.
void prepareThread(bool runsKernels) {
  neverRunsKernels = !runsKernels;
#if !defined(__SANITIZE_THREAD__)
  // The program's sanitizer cannot see what orders this process's threads and the application's.
  // It would take every word of every copy for a race, and look into it.
  if (__tsan_ignore_thread_begin != nullptr) {
    __tsan_ignore_thread_begin();
  }
#endif
  void* const stack = mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) {
    return;
  }
  stack_t description{};
  description.ss_sp = stack;
  description.ss_size = kSignalStackBytes;
  sigaltstack(&description, nullptr);
}

// ---- Queues

// The application orders what different queues do to the same bytes, by tickets and by waiting,
// which the thread sanitizer cannot see from inside this process. These tell it that a command
// comes after everything that was complete when the command was taken.
#if defined(__SANITIZE_THREAD__)
char applicationOrder;
void acquireApplicationOrder() { __tsan_acquire(&applicationOrder); }
void releaseApplicationOrder() { __tsan_release(&applicationOrder); }
#else
void acquireApplicationOrder() {}
void releaseApplicationOrder() {}
#endif

// Runs the commands of one queue in order. Owned by Device; each runs in a thread of its own and
// touches only what it owns, the control block and the (thread-safe) tables.
class QueueRunner {
 public:
  QueueRunner(ControlBlock* control, QueueId id, const AddressTable& pinned,
              const AddressTable& memory, ThreadPool* pool)
      : control_(control), id_(id), pinned_(pinned), memory_(memory), pool_(pool) {}

  [[noreturn]] void run() {
    Queue& queue = control_->queue(id_);
    for (std::uint64_t place = 1;; ++place) {
      awaitPlace(queue.submitted, place);
      const Command& command = queue.slots[place % kSlots];
      if (command.after != 0) {
        const TicketPlace after = decodeTicket(Ticket{command.after});
        awaitPlace(control_->queue(after.queue).completed, after.place);
      }
      awaitPlace(control_->queue(QueueId::kIn).completed, command.copyInsBefore);
      acquireApplicationOrder();
      const Failure failure = execute(command);
      releaseApplicationOrder();
      if (failure.code != adsmSuccess) {
        record(queue, place, failure);
      }
      queue.completed.publish(place);
    }
  }

 private:
  static void awaitPlace(Counter& counter, std::uint64_t place) {
    while (!counter.await(place, kForever)) {
    }
  }

  static void record(Queue& queue, std::uint64_t place, const Failure& failure) {
    const std::uint64_t made = queue.errorsMade.load(std::memory_order_relaxed);
    if (made - queue.errorsTaken.load(std::memory_order_acquire) == kErrorRecords) {
      queue.errorsDropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    queue.errors[made % kErrorRecords] = ErrorRecord{place, failure};
    queue.errorsMade.store(made + 1, std::memory_order_release);
  }

  // An exception that left this thread would end the process, and all objects with it.
  Failure execute(const Command& command) noexcept {
    try {
      return run(command);
    } catch (const std::bad_alloc&) {
      return failureOf(adsmErrorHostMemory,
                       "the device process has no memory left to run a command");
    }
  }

  Failure run(const Command& command) {
    switch (command.kind) {
      case CommandKind::kCopyIn:
        return copy(command, memory_, "accelerator memory", pinned_, "pinned CPU memory");
      case CommandKind::kCopyOut:
        return copy(command, pinned_, "pinned CPU memory", memory_, "accelerator memory");
      case CommandKind::kCopyWithin:
        return copy(command, memory_, "accelerator memory", memory_, "accelerator memory");
      case CommandKind::kFill:
        return fill(command);
      case CommandKind::kLaunch:
        return launch(command);
      case CommandKind::kSetConstant:
        std::memcpy(reinterpret_cast<void*>(command.to),
                    control_->arena.data() + command.arenaOffset, command.bytes);
        return success();
    }
    return failureOf(adsmErrorSystem, "the device process got a command of an unknown kind {}",
                     static_cast<std::uint32_t>(command.kind));
  }

  static Failure outside(const Command& command, std::uintptr_t address, std::string_view what) {
    return failureOf(adsmErrorInvalidValue,
                     "a copy or fill of {} bytes names {:#x}, which lies in no {} of that size",
                     command.bytes, address, what);
  }

  static Failure copy(const Command& command, const AddressTable& toTable, std::string_view toWhat,
                      const AddressTable& fromTable, std::string_view fromWhat) {
    std::byte* const to = toTable.find(command.to, command.bytes);
    if (to == nullptr) {
      return outside(command, command.to, toWhat);
    }
    const std::byte* const from = fromTable.find(command.from, command.bytes);
    if (from == nullptr) {
      return outside(command, command.from, fromWhat);
    }
    std::memcpy(to, from, command.bytes);
    return success();
  }

  Failure fill(const Command& command) const {
    std::byte* const to = memory_.find(command.to, command.bytes);
    if (to == nullptr) {
      return outside(command, command.to, "accelerator memory");
    }
    std::memset(to, static_cast<int>(command.from), command.bytes);
    return success();
  }

  Failure launch(const Command& command) {
    std::byte* const packed = control_->arena.data() + command.arenaOffset;
    const auto* const offsets = reinterpret_cast<const std::uint32_t*>(packed);
    arguments_.resize(command.argumentCount);
    for (std::uint32_t i = 0; i < command.argumentCount; ++i) {
      arguments_[i] = packed + offsets[i];
    }
    runningOnKernelQueue.store(&command);
    const char* const failure =
        pool_->run({reinterpret_cast<adsmHostKernel_t>(command.function), command.grid,
                    command.block, command.sharedBytes, arguments_.data()});
    runningOnKernelQueue.store(nullptr);
    if (failure != nullptr) {
      return failureOf(adsmErrorKernel, "kernel '{}' {}", command.name.data(), failure);
    }
    return success();
  }

  ControlBlock* const control_;
  const QueueId id_;
  const AddressTable& pinned_;
  const AddressTable& memory_;
  ThreadPool* const pool_;  // the kernel queue's; else NULL
  std::vector<void*> arguments_;
};

// ---- The device

// Everything that the device process has. Lives until the process ends; the socket's thread calls
// it.
class Device {
 public:
  explicit Device(const DeviceSetup& setup)
      : setup_(setup),
        pool_(setup.threads),
        in_(setup.control, QueueId::kIn, pinned_, memory_, nullptr),
        out_(setup.control, QueueId::kOut, pinned_, memory_, nullptr),
        kernel_(setup.control, QueueId::kKernel, pinned_, memory_, &pool_) {}

  // Starts the threads, once. Apart from the constructor: when one thread cannot be started, those
  // that were use this object, which must not be destroyed then. Throws std::exception.
  void start() {
    startQueue(in_, false, "copies in");
    startQueue(out_, false, "copies out");
    startQueue(kernel_, true, "kernels");
    pool_.start([] { prepareThread(true); });
  }

  Reply answer(const ReceivedRequest& received, Descriptor fd) noexcept {
    try {
      return tryToAnswer(received, std::move(fd));
    } catch (const std::bad_alloc&) {
      return {
          failureOf(adsmErrorHostMemory, "the device process has no memory left for its tables"),
          0};
    }
  }

 private:
  // Leaves everything as it was when it throws std::bad_alloc.
  Reply tryToAnswer(const ReceivedRequest& received, Descriptor fd) {
    const Request& request = received.request;
    switch (request.kind) {
      case RequestKind::kAllocate:
        return {allocate(request, fd), 0};
      case RequestKind::kFree:
        return {release(request), 0};
      case RequestKind::kPin:
        return {pin(request, std::move(fd)), 0};
      case RequestKind::kUnpin:
        return {unpin(request), 0};
      case RequestKind::kResolve:
        return resolve(received);
    }
    return {failureOf(adsmErrorSystem, "the device process got a request of an unknown kind {}",
                      static_cast<std::uint32_t>(request.kind)),
            0};
  }

  static void startQueue(QueueRunner& runner, bool runsKernels, const char* what) {
    const int error = startDeviceThread([&runner, runsKernels] {
      prepareThread(runsKernels);
      runner.run();
    });
    if (error != 0) {
      throw std::runtime_error(fmt::format(
          "its thread for {} cannot be started: {} (ulimit -v and ulimit -u limit threads)", what,
          errorText(error)));
    }
  }

  Failure allocate(const Request& request, const Descriptor& fd) {
    void* const address = reinterpret_cast<void*>(request.address);
    if (!memory_.insert(request.address, request.bytes, address)) {
      return failureOf(adsmErrorSystem, "the {} bytes at {} are allocated already", request.bytes,
                       address);
    }
    const auto [begin, end] = memory_.around(request.address, request.bytes, kMarginBytes);
    // A file's pages between margins that are anonymous.
    const auto backing = static_cast<Backing>(request.file);
    const int protection = backing == Backing::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
    if (mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED ||
        (backing != Backing::kAnonymous &&
         mmap(address, request.bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd.get(),
              static_cast<off_t>(request.offset)) == MAP_FAILED)) {
      const int error = errno;
      memory_.remove(request.address, request.bytes);
      return failureOf(adsmErrorAcceleratorMemory,
                       "the device process cannot map {} bytes at {}: {}", request.bytes, address,
                       errorText(error));
    }
    if (request.bytes >= kHugePageBytes) {
      // Only a matter of speed: without huge pages it works as well.
      madvise(address, request.bytes, MADV_HUGEPAGE);
    }
    return success();
  }

  Failure release(const Request& request) {
    if (!memory_.remove(request.address, request.bytes)) {
      return failureOf(adsmErrorInvalidValue, "no {} bytes of accelerator memory start at {:#x}",
                       request.bytes, request.address);
    }
    void* const address = reinterpret_cast<void*>(request.address);
    const bool anonymous = static_cast<Backing>(request.file) == Backing::kAnonymous;
    if (anonymous
            ? madvise(address, request.bytes, MADV_DONTNEED) != 0
            : mmap(address, request.bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
      return failureOf(adsmErrorSystem, "the device process cannot give back {} bytes at {}: {}",
                       request.bytes, address, errorText(errno));
    }
    // Memory that is now farther than a margin from all allocations is closed. Cutting a mapping in
    // two may exceed the kernel's limit of mappings; then it stays open, without pages.
    const auto [begin, end] = memory_.around(request.address, request.bytes, 2 * kMarginBytes);
    if (begin + kMarginBytes < end - kMarginBytes) {
      (void)mmap(reinterpret_cast<void*>(begin + kMarginBytes), end - begin - 2 * kMarginBytes,
                 PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    return success();
  }

  Failure pin(const Request& request, Descriptor fd) {
    if (fd) {
      files_[request.file] = std::make_unique<FileWindow>(std::move(fd), setup_.fileWindowBytes);
    }
    const auto file = files_.find(request.file);
    if (file == files_.end()) {
      return failureOf(adsmErrorSystem, "the memory file of {:#x} did not reach the device process",
                       request.address);
    }
    const Failure failure = pinIn(*file->second, request);
    if (failure.code != adsmSuccess && request.onlyPinOfFile != 0) {
      files_.erase(file);
    }
    return failure;
  }

  Failure pinIn(FileWindow& file, const Request& request) {
    void* const here = file.map(request.offset, request.bytes);
    if (here == nullptr) {
      return failureOf(
          adsmErrorHostMemory,
          "the device process cannot map {} bytes at offset {} of the memory file of {:#x}: {}",
          request.bytes, request.offset, request.address, errorText(errno));
    }
    if (!pinned_.insert(request.address, request.bytes, here)) {
      return failureOf(adsmErrorInvalidValue,
                       "{} bytes at {:#x} overlap memory that is pinned already", request.bytes,
                       request.address);
    }
    return success();
  }

  Failure unpin(const Request& request) {
    if (!pinned_.remove(request.address, request.bytes)) {
      return failureOf(adsmErrorInvalidValue, "no {} bytes of pinned memory start at {:#x}",
                       request.bytes, request.address);
    }
    if (request.onlyPinOfFile != 0) {
      files_.erase(request.file);
    }
    return success();
  }

  static Reply resolve(const ReceivedRequest& received) {
    const std::string module(received.module());
    const std::string path(received.path());
    std::optional<std::uintptr_t> base = loadAddressOf(module.c_str());
    if (!base) {
      // Loaded by the application after the device process was forked.
      void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle == nullptr) {
        return {failureOf(adsmErrorNoImplementation, "the device process cannot load {}: {}", path,
                          dlerror()),
                0};
      }
      link_map* map = nullptr;
      if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
        return {
            failureOf(adsmErrorSystem, "the device process cannot find {}: {}", path, dlerror()),
            0};
      }
      base = map->l_addr;
    }
    return {success(), *base + static_cast<std::uintptr_t>(received.request.offset)};
  }

  const DeviceSetup setup_;
  AddressTable pinned_;
  AddressTable memory_;
  std::map<std::uint32_t, std::unique_ptr<FileWindow>> files_;
  ThreadPool pool_;
  QueueRunner in_, out_, kernel_;
};

void resetSignals() {
  struct sigaction action {};
  for (int signal = 1; signal < NSIG; ++signal) {
    action.sa_handler = SIG_DFL;
    // A Ctrl-C that the application handles must not take its accelerator away.
    if (signal == SIGINT || signal == SIGQUIT || signal == SIGTERM || signal == SIGHUP ||
        signal == SIGPIPE) {
      action.sa_handler = SIG_IGN;
    }
    __sigaction(signal, &action, nullptr);
  }
  action = {};
  action.sa_sigaction = onCrash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : kCrashes) {
    sigaddset(&action.sa_mask, signal);  // a crash of the handler's own ends the process
  }
  for (const int signal : kCrashes) {
    __sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Closes the descriptors from `first` to `last`. False: errno.
bool closeRange(int first, int last) {
  if (first > last || syscall(SYS_close_range, first, last, 0) == 0) {
    return true;
  }
  if (errno != ENOSYS && errno != EPERM) {
    return false;
  }
  // An older kernel, or valgrind.
  const long limit = sysconf(_SC_OPEN_MAX);
  for (int fd = first; fd <= last && fd < limit; ++fd) {
    (void)syscall(SYS_close, fd);
  }
  return true;
}

// Closes every file but stderr and those in `setup`, and puts /dev/null where stdin and stdout
// were: a memory file that took number 1 would be written into by a kernel's printf.
bool closeFiles(const DeviceSetup& setup) {
  int null = open("/dev/null", O_RDWR);
  // The application may have a root without devices (chroot). This cannot be read or written.
  if (null < 0) null = open("/", O_PATH);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0) {
    return false;
  }
  if (fcntl(STDERR_FILENO, F_GETFD) < 0 && dup2(null, STDERR_FILENO) < 0) {
    return false;
  }
  const int pidfd = setup.applicationPidfd < 0 ? setup.socket : setup.applicationPidfd;
  const int low = std::min(setup.socket, pidfd);
  const int high = std::max(setup.socket, pidfd);
  return closeRange(STDERR_FILENO + 1, low - 1) && closeRange(low + 1, high - 1) &&
         closeRange(high + 1, INT_MAX);
}

// Keeps the addresses of allocations free here, too: who has reserved them in the application may
// keep its children from inheriting that, as drivers do. What is mapped there already stays: it is
// the inherited reservation, as a rule.
bool reserveWindows(const DeviceSetup& setup) {
  return std::all_of(setup.windows.begin(), setup.windows.end(), [](const AddressRange& range) {
    // Not mmap(): the sanitizers' would note all of it.
    return syscall(SYS_mmap, range.begin, range.bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
                   0) != -1 ||
           errno == EEXIST;
  });
}

// Tells the application that the device is up, its process id, and, where there are such, a pidfd
// to watch it by.
bool sayHello(int socket) {
  const Descriptor self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const Reply hello{success(), static_cast<std::uint64_t>(getpid())};
  return sendMessage(socket, &hello, sizeof hello, self.get());
}

[[noreturn]] void dieOfStart(int socket, std::string_view why) {
  const Reply reply{
      failureOf(adsmErrorSystem, "the host accelerator's device process cannot start: {}", why), 0};
  sendMessage(socket, &reply, sizeof reply, -1);
  endProcess(1);
}

[[noreturn]] void serve(const DeviceSetup& setup, Device& device) {
  // Not on the stack: the strings are long.
  const auto request = std::make_unique<ReceivedRequest>();
  while (true) {
    Descriptor fd;
    if (receiveMessage(setup.socket, request.get(), sizeof *request, &fd) <= 0) {
      endProcess(0);
    }
    acquireApplicationOrder();
    const Reply reply = device.answer(*request, std::move(fd));
    releaseApplicationOrder();
    if (!sendMessage(setup.socket, &reply, sizeof reply, -1)) {
      endProcess(0);
    }
  }
}

// The thread of the socket.
void* serveSocket(void* argument) {
  const auto& setup = *static_cast<const DeviceSetup*>(argument);
  prepareThread(false);
  // The dynamic linker is needed when the application loads a library later. If it cannot be used
  // here, the application shall hear no hello.
  (void)loadAddressOf("");
  try {
    // Never destroyed: its threads run until the process ends.
    auto* const device = new Device(setup);
    device->start();
    if (!sayHello(setup.socket)) {
      endProcess(1);
    }
    serve(setup, *device);
  } catch (const std::exception& exception) {
    dieOfStart(setup.socket, exception.what());
  }
}

// Ends the process when the application or the socket's other end is gone, or cannot be watched.
[[noreturn]] UNSANITIZED void watch(const DeviceSetup& setup) {
  std::array<pollfd, 2> watched{{{setup.socket, 0, 0}, {setup.applicationPidfd, POLLIN, 0}}};
  while (poll(watched.data(), watched.size(), -1) < 0 && errno == EINTR) {
  }
  while (true) {
    syscall(SYS_exit_group, 0);
  }
}

}  // namespace

void endProcess(int status) {
  // Not _exit(), which sanitizers and preloaded libraries stand in for to do what ends an
  // application.
  while (true) {
    syscall(SYS_exit_group, status);
  }
}

UNSANITIZED void runDeviceProcess(const DeviceSetup& setup) {
  crashControl = setup.control;
  resetSignals();
  setsid();
  prctl(PR_SET_NAME, "gmac-device");
  if (!reserveWindows(setup) || !closeFiles(setup)) {
    dieOfStart(setup.socket, errorText(errno));
  }
  // This thread watches and does nothing else: the one of the socket may meet a lock that a thread
  // of the application held at the fork, or a constructor of a library that never returns.
  if (startDeviceThread(&serveSocket, const_cast<DeviceSetup*>(&setup)) != 0) {
    dieOfStart(setup.socket, "a thread cannot be started (ulimit -v and ulimit -u limit threads)");
  }
  watch(setup);
}

}  // namespace gmac::accel::host
