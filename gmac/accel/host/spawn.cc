// SPDX-License-Identifier: Apache-2.0
//
// The device process must not be a child of the application, so another process stands between the
// two and ends at once. That one must not be noticed either. fork() would announce its end by
// SIGCHLD, and a thread that waits for any child would be given its number. A child that clone()
// makes with no signal for its end is announced to nobody, and waits leave it out unless they ask
// for such children (__WALL, __WCLONE). But clone() alone takes none of the locks that fork() does,
// of malloc and of whoever has registered fork handlers, and the device process would inherit them
// from threads that it does not have.
//
// So the process between shares the application's memory, as a child of vfork() does, and the
// calling thread sleeps until it has ended. It runs with that thread's identity in the C library,
// and calls fork() there: locks are taken and given back in the application's memory as if the
// thread itself had forked, and only the kernel knows that the device process has another parent.
//
// Where the application is who gets processes without a parent (the first one of a container, a
// subreaper), the device process would become an ordinary child of it, and a wait for all children
// would never end. If no other thread can hold a lock, it is made as a sibling of the process
// between there, as hidden from waits as that one.
#include "gmac/accel/host/spawn.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "gmac/accel/host/loader_lock.h"

// clone() under the name that no sanitizer stands in for: the thread sanitizer takes the process
// between for a child with memory of its own, and the application for a child of fork from then on.
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* argument,
                       ...) noexcept;

namespace gmac::accel::host {
namespace {

// For the fork handlers of the application, and for the device process's first thread.
constexpr std::size_t kStackBytes = std::size_t{1} << 20;
constexpr std::size_t kGuardBytes = std::size_t{64} << 10;

// The records that fork() keeps of the calling thread.
struct ThreadRecords {
  int* id = nullptr;  // NULL: not known
  void* robustMutexes = nullptr;
  std::size_t robustBytes = 0;
};

ThreadRecords recordsOfThisThread() {
  ThreadRecords records;
  if (prctl(PR_GET_TID_ADDRESS, &records.id) != 0 ||
      syscall(SYS_get_robust_list, 0, &records.robustMutexes, &records.robustBytes) != 0) {
    records.id = nullptr;
  }
  return records;
}

// Whether processes that lose their parent become this one's children.
bool adoptsOrphans() {
  int subreaper = 0;
  return getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &subreaper) == 0 && subreaper != 0);
}

// Whether this is known to be the process's only thread. The C library knows it as long as there
// has never been another one.
bool isOnlyThread() {
  if (__libc_single_threaded != 0) return true;
  struct stat threads {};  // a folder for each thread, and two names of its own
  return stat("/proc/self/task", &threads) == 0 && threads.st_nlink == 3;
}

// Whether the calling thread's next child is a process of another namespace (unshare(), setns()).
// The first one of a new namespace takes all others with it when it ends, so it must not be the
// process between; and the kernel gives such a thread no threads.
bool childrenGoElsewhere() {
  char own[64];
  char childrens[sizeof own];
  const ssize_t bytes = readlink("/proc/thread-self/ns/pid", own, sizeof own);
  if (bytes < 0) return false;
  // (There is none before the namespace has its first process.)
  return readlink("/proc/thread-self/ns/pid_for_children", childrens, sizeof childrens) != bytes ||
         std::memcmp(own, childrens, static_cast<std::size_t>(bytes)) != 0;
}

struct Between {
  const DeviceSetup& setup;
  ThreadRecords asSibling;  // empty: by fork()
  int error;                // of fork()
};

// The C library registers for each thread an area for restartable sequences, from which allocators
// know the CPU that the thread runs on. The kernel forgets it in a process that shares memory.
// Looked for when the library is loaded: dlsym() waits as long as another thread's dlopen() takes.
const std::ptrdiff_t* sequencesOffset = nullptr;
const unsigned* sequencesSize = nullptr;

[[gnu::constructor]] void findRestartableSequences() {
  sequencesOffset = static_cast<const std::ptrdiff_t*>(dlsym(RTLD_DEFAULT, "__rseq_offset"));
  sequencesSize = static_cast<const unsigned*>(dlsym(RTLD_DEFAULT, "__rseq_size"));
}

void registerRestartableSequences() {
#if defined(__x86_64__) && defined(SYS_rseq)
  constexpr unsigned kBytes = 32;
  constexpr unsigned kSignature = 0x53053053;
  if (sequencesOffset != nullptr && sequencesSize != nullptr && *sequencesSize != 0) {
    auto* const thread = static_cast<std::byte*>(__builtin_thread_pointer());
    (void)syscall(SYS_rseq, thread + *sequencesOffset, kBytes, 0, kSignature);
  }
#endif
}

// As fork(), but makes a child of the calling process's parent, of whose end that is told as of the
// caller's own.
__attribute__((no_sanitize("address", "thread", "undefined"))) pid_t forkSibling(
    const ThreadRecords& thread) {
  const long child = syscall(SYS_clone, CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID,
                             nullptr, nullptr, thread.id, nullptr);
  if (child == 0) syscall(SYS_set_robust_list, thread.robustMutexes, thread.robustBytes);
  return static_cast<pid_t>(child);
}

// Without the sanitizers, which would take the strange stack and the missing return for the calling
// thread's own.
__attribute__((no_sanitize("address", "thread", "undefined"))) int runBetween(void* argument) {
  auto& between = *static_cast<Between*>(argument);
  registerRestartableSequences();
  const pid_t device = between.asSibling.id != nullptr ? forkSibling(between.asSibling) : fork();
  if (device == 0) {
    freeLoaderLock();
    runDeviceProcess(between.setup);
  }
  between.error = device < 0 ? errno : 0;
  while (true) {
    syscall(SYS_exit_group, between.error);
  }
}

}  // namespace

Status spawnDeviceProcess(const DeviceSetup& setup) {
  if (childrenGoElsewhere()) {
    return fail(adsmErrorSystem,
                "the host accelerator cannot start in a thread whose children are processes of "
                "another namespace: start it (adsmAlloc) before unshare(CLONE_NEWPID)");
  }
  void* const memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(adsmErrorHostMemory, "no {} bytes for a stack of the device process: {}",
                kGuardBytes + kStackBytes, std::strerror(errno));
  }
  std::byte* const stack = static_cast<std::byte*>(memory) + kGuardBytes;
  const bool hides = adoptsOrphans() && isOnlyThread();
  Between between{setup, hides ? recordsOfThisThread() : ThreadRecords{}, 0};
  pid_t pid = -1;
  if (mprotect(stack, kStackBytes, PROT_READ | PROT_WRITE) == 0) {
    pid = __clone(runBetween, stack + kStackBytes, CLONE_VM | CLONE_VFORK, &between);
  }
  int error = pid < 0 ? errno : 0;
  if (pid > 0) {
    // Another thread that waits for children of every kind may have been faster; then the error
    // is known only where the memory is really shared (valgrind makes a copy).
    int status = 0;
    long waited = 0;
    do {
      waited = syscall(SYS_wait4, pid, &status, __WALL, nullptr);
    } while (waited < 0 && errno == EINTR);
    error = waited == pid && WIFEXITED(status) ? WEXITSTATUS(status) : between.error;
  }
  munmap(memory, kGuardBytes + kStackBytes);
  if (error != 0) {
    return fail(adsmErrorSystem, "fork() for the host accelerator's device process: {}",
                std::strerror(error));
  }
  return Status();
}

}  // namespace gmac::accel::host
