// SPDX-License-Identifier: Apache-2.0
//
// Limits of the system, and sandboxes that deny one system call: everything works, or fails with an
// error that says so. Nothing hangs, crashes or computes something else.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "attack/subject.h"

namespace attack {
namespace {

constexpr rlim_t kKiB = 1024;
constexpr rlim_t kMiB = 1024 * kKiB;

void workWithinLimits() {
  std::string why;
  for (int i = 0; i < 3; ++i) {
    if (!workOrError(&why)) fmt::print("{}\n", why);
  }
}

struct Limited {
  const char* name;
  __rlimit_resource resource;
  std::vector<rlim_t> values;
};

std::vector<Attack> limits() {
  const Limited kinds[] = {
      {"AS",
       RLIMIT_AS,
       {48 * kMiB, 64 * kMiB, 96 * kMiB, 128 * kMiB, 192 * kMiB, 256 * kMiB, 512 * kMiB,
        1024 * kMiB, 4096 * kMiB}},
      {"DATA", RLIMIT_DATA, {kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB}},
      {"FSIZE", RLIMIT_FSIZE, {0, 4 * kKiB, kMiB, 4 * kMiB, 64 * kMiB}},
      {"NOFILE", RLIMIT_NOFILE, {3, 4, 5, 6, 7, 8, 9, 10, 12, 16}},
      {"NPROC", RLIMIT_NPROC, {0, 1, 2, 3, 4, 8}},
      {"STACK", RLIMIT_STACK, {32 * kKiB, 128 * kKiB, kMiB}},
      {"MEMLOCK", RLIMIT_MEMLOCK, {0, 64 * kKiB}},
      {"SIGPENDING", RLIMIT_SIGPENDING, {0}},
      {"CORE", RLIMIT_CORE, {0}},
  };
  std::vector<Attack> attacks;
  for (const Limited& kind : kinds) {
    for (const rlim_t value : kind.values) {
      attacks.push_back(
          {fmt::format("limits/{} {}", kind.name, value),
           [resource = kind.resource, value] {
             // Root has no limit of processes.
             if (resource == RLIMIT_NPROC && ::getuid() == 0 && ::setuid(65534) != 0) {
               endSkipped("root, and setuid is refused");
             }
             const rlimit limit = {value, value};
             require(::setrlimit(resource, &limit) == 0, "setrlimit: {}", std::strerror(errno));
             workWithinLimits();
           },
           20, Ending::kOrWithMessage});
    }
  }
  return attacks;
}
const Registration kLimits(limits());

// The memory of a control group, where this process may make one.
const Registration kControlGroup(
    {"limits/memory of a cgroup",
     [] {
       const std::string folder = fmt::format("/sys/fs/cgroup/gmac-attack-{}", ::getpid());
       if (::mkdir(folder.c_str(), 0755) != 0) {
         endSkipped(fmt::format("no control group can be made: {}", std::strerror(errno)));
       }
       const auto write = [](const std::string& path, const std::string& text) {
         const int file = ::open(path.c_str(), O_WRONLY);
         const bool well = file >= 0 && ::write(file, text.data(), text.size()) ==
                                            static_cast<ssize_t>(text.size());
         if (file >= 0) ::close(file);
         return well;
       };
       if (!write(folder + "/memory.max", "268435456") ||
           !write(folder + "/cgroup.procs", std::to_string(::getpid()))) {
         ::rmdir(folder.c_str());
         endSkipped("the control group takes no limit of memory");
       }
       std::string why;
       char* objects[64] = {};
       for (char*& object : objects) {
         object = static_cast<char*>(adsmAlloc(16 << 20));
         if (object == nullptr) break;
         std::memset(object, 1, 16 << 20);
       }
       (void)write("/sys/fs/cgroup/cgroup.procs", std::to_string(::getpid()));
       ::rmdir(folder.c_str());
     },
     60, Ending::kOrWithMessage});

// ---- Denials

// Denies `number` from now on, in this process and what it starts.
void deny(long number, int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K,
               SECCOMP_RET_ERRNO | (static_cast<unsigned>(error) & SECCOMP_RET_DATA)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    endSkipped(fmt::format("no filter can be installed: {}", std::strerror(errno)));
  }
}

struct Denied {
  const char* name;
  long number;
};
#define GMAC_DENIED(name) \
  { #name, SYS_##name }
const Denied kDenied[] = {
    GMAC_DENIED(mmap),
    GMAC_DENIED(mprotect),
    GMAC_DENIED(munmap),
    GMAC_DENIED(mremap),
    GMAC_DENIED(madvise),
    GMAC_DENIED(brk),
    GMAC_DENIED(memfd_create),
    GMAC_DENIED(ftruncate),
    GMAC_DENIED(fallocate),
    GMAC_DENIED(fstat),
    GMAC_DENIED(newfstatat),
    GMAC_DENIED(openat),
    GMAC_DENIED(read),
    GMAC_DENIED(pread64),
    GMAC_DENIED(readlink),
    GMAC_DENIED(access),
    GMAC_DENIED(fcntl),
    GMAC_DENIED(dup),
    GMAC_DENIED(dup2),
    GMAC_DENIED(dup3),
    GMAC_DENIED(pipe2),
    GMAC_DENIED(close_range),
    GMAC_DENIED(socketpair),
    GMAC_DENIED(sendmsg),
    GMAC_DENIED(recvmsg),
    GMAC_DENIED(shutdown),
    GMAC_DENIED(poll),
    GMAC_DENIED(ppoll),
    GMAC_DENIED(pidfd_open),
    GMAC_DENIED(pidfd_send_signal),
    GMAC_DENIED(process_vm_readv),
    GMAC_DENIED(clone),
    GMAC_DENIED(clone3),
    GMAC_DENIED(vfork),
    GMAC_DENIED(wait4),
    GMAC_DENIED(waitid),
    GMAC_DENIED(kill),
    GMAC_DENIED(tgkill),
    GMAC_DENIED(prctl),
    GMAC_DENIED(setsid),
    GMAC_DENIED(setpriority),
    GMAC_DENIED(sched_getaffinity),
    GMAC_DENIED(sched_setaffinity),
    GMAC_DENIED(sched_yield),
    GMAC_DENIED(rt_sigaction),
    GMAC_DENIED(rt_sigprocmask),
    GMAC_DENIED(sigaltstack),
    GMAC_DENIED(getrandom),
    GMAC_DENIED(prlimit64),
    GMAC_DENIED(getrlimit),
    GMAC_DENIED(sysinfo),
    GMAC_DENIED(uname),
    GMAC_DENIED(timer_create),
    GMAC_DENIED(nanosleep),
    GMAC_DENIED(clock_nanosleep),
    GMAC_DENIED(membarrier),
    GMAC_DENIED(rseq),
    GMAC_DENIED(set_robust_list),
    GMAC_DENIED(userfaultfd),
    GMAC_DENIED(perf_event_open),
    GMAC_DENIED(ptrace),
};
#undef GMAC_DENIED

std::vector<Attack> denials() {
  std::vector<Attack> attacks;
  const struct {
    const char* name;
    int error;
  } errors[] = {{"EPERM", EPERM}, {"ENOSYS", ENOSYS}};
  for (const Denied& one : kDenied) {
    for (const auto& error : errors) {
      attacks.push_back({fmt::format("denied/{} {}, before the start", one.name, error.name),
                         [&one, error] {
                           deny(one.number, error.error);
                           workWithinLimits();
                         },
                         20, Ending::kOrWithMessage});
    }
    attacks.push_back({fmt::format("denied/{} EPERM, after the start", one.name),
                       [&one] {
                         work();
                         deny(one.number, EPERM);
                         workWithinLimits();
                       },
                       20, Ending::kOrWithMessage});
  }
  return attacks;
}
const Registration kDenials(denials());

}  // namespace
}  // namespace attack
