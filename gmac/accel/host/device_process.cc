// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/device_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <link.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "gmac/accel/host/address_table.h"
#include "gmac/accel/host/device_crashes.h"
#include "gmac/accel/host/device_failure.h"
#include "gmac/accel/host/device_thread.h"
#include "gmac/accel/host/file_window.h"
#include "gmac/accel/host/messages.h"
#include "gmac/accel/host/module_table.h"
#include "gmac/accel/host/queue_runner.h"
#include "gmac/accel/host/thread_pool.h"

namespace gmac::accel::host {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
// For the first thread, whose stack is none that the sanitizers know.
#define UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

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
  takeSignals(setup.control);
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
