// SPDX-License-Identifier: Apache-2.0
//
// ioctl, fcntl, prctl and their like, in shared memory: these stand in for libc's functions in a
// program that is linked with the library or preloads it. What their arguments mean, and how much
// memory, depends on drivers. So when the kernel could not reach an argument, the blocks around
// that are opened, and the call is made again. It fails with EFAULT still if another thread's
// kernel calls close them each time.

#undef _FILE_OFFSET_BITS

#include <fcntl.h>
#include <mqueue.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/quota.h>
#include <sys/sem.h>

#include <cstdarg>

#include "interpose/base/served_call.h"

namespace gmac::interpose {
namespace {

constinit Real<int(int, unsigned long, void*)> realIoctl("ioctl");
constinit Real<int(int, int, void*)> realFcntl("fcntl");
constinit Real<int(int, int, void*)> realFcntl64("fcntl64");
constinit Real<int(int, void*, void*, void*, void*)> realPrctl("prctl");
constinit Real<long(int, pid_t, void*, void*)> realPtrace("ptrace");
constinit Real<int(int, int, int, void*)> realSemctl("semctl");
constinit Real<int(int, const char*, int, caddr_t)> realQuotactl("quotactl");
constinit Real<int(int, unsigned, const char*, const void*, int)> realFsconfig("fsconfig");
constinit Real<mqd_t(const char*, int, mode_t, mq_attr*)> realMqOpen("mq_open");

[[gnu::constructor]] void resolveControls() {
  resolveAtLoad(realIoctl, realFcntl, realFcntl64, realPrctl, realPtrace, realSemctl, realQuotactl,
                realFsconfig, realMqOpen);
}

}  // namespace

extern "C" {

// Arguments that are not there are whatever their registers hold, as in libc's functions.

GMAC_INTERPOSED int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  auto* const argument = va_arg(list, void*);
  va_end(list);
  return serveTouched([&] { return realIoctl(descriptor, request, argument); }, argument);
}

GMAC_INTERPOSED int fcntl(int descriptor, int command, ...) {
  va_list list;
  va_start(list, command);
  auto* const argument = va_arg(list, void*);
  va_end(list);
  return serveTouched([&] { return realFcntl(descriptor, command, argument); }, argument);
}

GMAC_INTERPOSED int fcntl64(int descriptor, int command, ...) {
  va_list list;
  va_start(list, command);
  auto* const argument = va_arg(list, void*);
  va_end(list);
  return serveTouched([&] { return realFcntl64(descriptor, command, argument); }, argument);
}

GMAC_INTERPOSED int prctl(int option, ...) noexcept {
  va_list list;
  va_start(list, option);
  auto* const first = va_arg(list, void*);
  auto* const second = va_arg(list, void*);
  auto* const third = va_arg(list, void*);
  auto* const fourth = va_arg(list, void*);
  va_end(list);
  return serveTouched([&] { return realPrctl(option, first, second, third, fourth); }, first,
                      second, third, fourth);
}

GMAC_INTERPOSED long ptrace(__ptrace_request request, ...) noexcept {
  va_list list;
  va_start(list, request);
  const auto process = va_arg(list, pid_t);
  auto* const address = va_arg(list, void*);
  auto* const data = va_arg(list, void*);
  va_end(list);
  // A failure tells of the other process's memory where the request is to read it.
  return serveTouched([&] { return realPtrace(request, process, address, data); }, data);
}

GMAC_INTERPOSED int semctl(int set, int number, int command, ...) noexcept {
  va_list list;
  va_start(list, command);
  auto* const argument = va_arg(list, void*);
  va_end(list);
  return serveTouched([&] { return realSemctl(set, number, command, argument); }, argument);
}

GMAC_INTERPOSED int quotactl(int command, const char* special, int id, caddr_t address) noexcept {
  return serveTouched([&] { return realQuotactl(command, special, id, address); },
                      const_cast<char*>(special), address);
}

GMAC_INTERPOSED int fsconfig(int descriptor, unsigned command, const char* key, const void* value,
                             int number) noexcept {
  return serveTouched([&] { return realFsconfig(descriptor, command, key, value, number); },
                      const_cast<char*>(key), const_cast<void*>(value));
}

GMAC_INTERPOSED mqd_t mq_open(const char* name, int flags, ...) noexcept {
  va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, mode_t);
  auto* const attributes = va_arg(list, mq_attr*);
  va_end(list);
  return serveTouched([&] { return realMqOpen(name, flags, mode, attributes); },
                      const_cast<char*>(name), attributes);
}

}  // extern "C"

}  // namespace gmac::interpose
