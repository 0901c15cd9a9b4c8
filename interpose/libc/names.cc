// SPDX-License-Identifier: Apache-2.0
//
// Names and properties of files in shared memory: these stand in for libc's functions in a program
// that is linked with the library or preloads it.

// The renamed large-file forms of the functions that are defined here, and their fortified ones,
// are not wanted.
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/swap.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include <cstdarg>

#include "interpose/base/served_call.h"

extern "C" {

[[noreturn]] void __chk_fail();

// Functions that fortified and older programs call, and that no header declares.
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int folder, const char* path, int flags);
int __openat64_2(int folder, const char* path, int flags);
ssize_t __readlink_chk(const char* path, char* buffer, size_t bytes, size_t room) noexcept;
ssize_t __readlinkat_chk(int folder, const char* path, char* buffer, size_t bytes,
                         size_t room) noexcept;
char* __getcwd_chk(char* buffer, size_t bytes, size_t room) noexcept;
int __ttyname_r_chk(int descriptor, char* buffer, size_t bytes, size_t room) noexcept;
int __xstat(int version, const char* path, struct stat* status) noexcept;
int __lxstat(int version, const char* path, struct stat* status) noexcept;
int __fxstat(int version, int descriptor, struct stat* status) noexcept;
int __fxstatat(int version, int folder, const char* path, struct stat* status, int flags) noexcept;
int __xstat64(int version, const char* path, struct stat64* status) noexcept;
int __lxstat64(int version, const char* path, struct stat64* status) noexcept;
int __fxstat64(int version, int descriptor, struct stat64* status) noexcept;
int __fxstatat64(int version, int folder, const char* path, struct stat64* status,
                 int flags) noexcept;
int __xmknod(int version, const char* path, mode_t mode, dev_t* device) noexcept;
int __xmknodat(int version, int folder, const char* path, mode_t mode, dev_t* device) noexcept;
int pivot_root(const char* root,  // NOLINT(readability-identifier-naming)
               const char* old) noexcept;

}  // extern "C"

namespace gmac::interpose {
namespace {

constexpr When kAfterFault = When::kAfterFault;
constexpr When kBefore = When::kBefore;

// The bytes of a handle, of which the program says how many follow its header.
template <std::size_t kIndex>
struct Handle {
  static constexpr std::size_t kParameter = kIndex;
  template <typename Given>
  static std::size_t bytes(const Given& given) noexcept {
    const file_handle* const handle = std::get<kIndex>(given);
    return handle != nullptr && readable(handle, sizeof *handle)
               ? sizeof *handle + std::size_t{handle->handle_bytes}
               : 0;
  }
};

// One byte for each page of a range.
constexpr auto kPages = [](void*, std::size_t bytes, unsigned char*) noexcept {
  const auto page = static_cast<std::size_t>(getpagesize());
  return bytes / page + (bytes % page != 0 ? 1 : 0);
};

}  // namespace

// ---- Paths alone

GMAC_SERVE_CALL(2, kAfterFault, access, Text<0>);
GMAC_SERVE_CALL(4, kAfterFault, faccessat, Text<1>);
GMAC_SERVE(2, kAfterFault, eaccess, Text<0>);
GMAC_SERVE(2, kAfterFault, euidaccess, Text<0>);
GMAC_SERVE_CALL(1, kAfterFault, acct, Text<0>);
GMAC_SERVE_CALL(1, kAfterFault, chdir, Text<0>);
GMAC_SERVE_CALL(1, kAfterFault, chroot, Text<0>);
GMAC_SERVE_CALL(2, kAfterFault, chmod, Text<0>);
GMAC_SERVE(2, kAfterFault, lchmod, Text<0>);
GMAC_SERVE_CALL(4, kAfterFault, fchmodat, Text<1>);
GMAC_SERVE_CALL(3, kAfterFault, chown, Text<0>);
GMAC_SERVE_CALL(3, kAfterFault, lchown, Text<0>);
GMAC_SERVE_CALL(5, kAfterFault, fchownat, Text<1>);
GMAC_SERVE_CALL(2, kAfterFault, creat, Text<0>);
GMAC_SERVE(2, kAfterFault, creat64, Text<0>);
GMAC_SERVE_CALL(2, kAfterFault, truncate, Text<0>);
GMAC_SERVE(2, kAfterFault, truncate64, Text<0>);
GMAC_SERVE_CALL(2, kAfterFault, link, Text<0>, Text<1>);
GMAC_SERVE_CALL(5, kAfterFault, linkat, Text<1>, Text<3>);
GMAC_SERVE_CALL(2, kAfterFault, symlink, Text<0>, Text<1>);
GMAC_SERVE_CALL(3, kAfterFault, symlinkat, Text<0>, Text<2>);
GMAC_SERVE_CALL(2, kAfterFault, rename, Text<0>, Text<1>);
GMAC_SERVE_CALL(4, kAfterFault, renameat, Text<1>, Text<3>);
GMAC_SERVE_CALL(5, kAfterFault, renameat2, Text<1>, Text<3>);
GMAC_SERVE_CALL(1, kAfterFault, unlink, Text<0>);
GMAC_SERVE_CALL(3, kAfterFault, unlinkat, Text<1>);
GMAC_SERVE(1, kAfterFault, remove, Text<0>);
GMAC_SERVE_CALL(1, kAfterFault, rmdir, Text<0>);
GMAC_SERVE_CALL(2, kAfterFault, mkdir, Text<0>);
GMAC_SERVE_CALL(3, kAfterFault, mkdirat, Text<1>);
GMAC_SERVE_CALL(3, kAfterFault, mknod, Text<0>);
GMAC_SERVE_CALL(4, kAfterFault, mknodat, Text<1>);
GMAC_SERVE(4, kAfterFault, __xmknod, Text<1>, Values<3>);
GMAC_SERVE(5, kAfterFault, __xmknodat, Text<2>, Values<4>);
GMAC_SERVE(2, kAfterFault, mkfifo, Text<0>);
GMAC_SERVE(3, kAfterFault, mkfifoat, Text<1>);
GMAC_SERVE(2, kAfterFault, pathconf, Text<0>);
GMAC_SERVE(2, kAfterFault, ftok, Text<0>);
GMAC_SERVE_CALL(2, kAfterFault, memfd_create, Text<0>);
GMAC_SERVE_CALL(3, kAfterFault, inotify_add_watch, Text<1>);
GMAC_SERVE_CALL(5, kAfterFault, fanotify_mark, Text<4>);
GMAC_SERVE_CALL(5, kAfterFault, mount, Text<0>, Text<1>, Text<2>, Text<4>);
GMAC_SERVE_CALL(5, kAfterFault, mount_setattr, Text<1>, Array<3, 4>);
GMAC_SERVE_CALL(5, kAfterFault, move_mount, Text<1>, Text<3>);
GMAC_SERVE_CALL(3, kAfterFault, open_tree, Text<1>);
GMAC_SERVE_CALL(2, kAfterFault, fsopen, Text<0>);
GMAC_SERVE_CALL(3, kAfterFault, fspick, Text<1>);
GMAC_SERVE(1, kAfterFault, umount, Text<0>);
GMAC_SERVE_CALL(2, kAfterFault, umount2, Text<0>);
GMAC_SERVE_CALL(2, kAfterFault, swapon, Text<0>);
GMAC_SERVE_CALL(1, kAfterFault, swapoff, Text<0>);
GMAC_SERVE_CALL(2, kAfterFault, pivot_root, Text<0>, Text<1>);

// ---- Opening

GMAC_SERVE(2, kAfterFault, __open_2, Text<0>);
GMAC_SERVE(2, kAfterFault, __open64_2, Text<0>);
GMAC_SERVE(3, kAfterFault, __openat_2, Text<1>);
GMAC_SERVE(3, kAfterFault, __openat64_2, Text<1>);
GMAC_SERVE(2, kAfterFault, fopen, Text<0>);
GMAC_SERVE(2, kAfterFault, fopen64, Text<0>);
GMAC_SERVE(3, kBefore, freopen, Text<0>);
GMAC_SERVE(3, kBefore, freopen64, Text<0>);
GMAC_SERVE(1, kAfterFault, opendir, Text<0>);
GMAC_SERVE(4, kAfterFault, scandir, Text<0>);
GMAC_SERVE(4, kAfterFault, scandir64, Text<0>);
GMAC_SERVE(5, kAfterFault, scandirat, Text<1>);
GMAC_SERVE(5, kAfterFault, scandirat64, Text<1>);
GMAC_SERVE_CALL(5, kAfterFault, name_to_handle_at, Text<1>, Handle<2>, Values<3>);
GMAC_SERVE_CALL(3, kAfterFault, open_by_handle_at, Handle<1>);

namespace {

constexpr bool hasMode(int flags) noexcept {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

using Open = int(const char*, int, mode_t);
using OpenAt = int(int, const char*, int, mode_t);

template <FunctionName kName>
int openPath(const char* path, int flags, mode_t mode) {
  return serveFunction<kName, Open, kAfterFault, Errors::kErrno, Text<0>>(path, flags, mode);
}
template <FunctionName kName>
int openAt(int folder, const char* path, int flags, mode_t mode) {
  return serveFunction<kName, OpenAt, kAfterFault, Errors::kErrno, Text<1>>(folder, path, flags,
                                                                            mode);
}

// The mode, which is there if the flags say so.
#define GMAC_OPTIONAL_MODE(mode, flags) \
  mode_t mode = 0;                      \
  if (hasMode(flags)) {                 \
    va_list list;                       \
    va_start(list, flags);              \
    (mode) = va_arg(list, mode_t);      \
    va_end(list);                       \
  }

}  // namespace

extern "C" {

GMAC_INTERPOSED int open(const char* path, int flags, ...) {
  GMAC_OPTIONAL_MODE(mode, flags)
  return openPath<"open">(path, flags, mode);
}

GMAC_INTERPOSED int open64(const char* path, int flags, ...) {
  GMAC_OPTIONAL_MODE(mode, flags)
  return openPath<"open64">(path, flags, mode);
}

GMAC_INTERPOSED int openat(int folder, const char* path, int flags, ...) {
  GMAC_OPTIONAL_MODE(mode, flags)
  return openAt<"openat">(folder, path, flags, mode);
}

GMAC_INTERPOSED int openat64(int folder, const char* path, int flags, ...) {
  GMAC_OPTIONAL_MODE(mode, flags)
  return openAt<"openat64">(folder, path, flags, mode);
}

}  // extern "C"

// ---- What is known of files

GMAC_SERVE_CALL(2, kAfterFault, stat, Text<0>, Values<1>);
GMAC_SERVE(2, kAfterFault, stat64, Text<0>, Values<1>);
GMAC_SERVE_CALL(2, kAfterFault, lstat, Text<0>, Values<1>);
GMAC_SERVE(2, kAfterFault, lstat64, Text<0>, Values<1>);
GMAC_SERVE_CALL(2, kAfterFault, fstat, Values<1>);
GMAC_SERVE(2, kAfterFault, fstat64, Values<1>);
GMAC_SERVE(4, kAfterFault, fstatat, Text<1>, Values<2>);
GMAC_SERVE(4, kAfterFault, fstatat64, Text<1>, Values<2>);
GMAC_SERVE(3, kAfterFault, __xstat, Text<1>, Values<2>);
GMAC_SERVE(3, kAfterFault, __xstat64, Text<1>, Values<2>);
GMAC_SERVE(3, kAfterFault, __lxstat, Text<1>, Values<2>);
GMAC_SERVE(3, kAfterFault, __lxstat64, Text<1>, Values<2>);
GMAC_SERVE(3, kAfterFault, __fxstat, Values<2>);
GMAC_SERVE(3, kAfterFault, __fxstat64, Values<2>);
GMAC_SERVE(5, kAfterFault, __fxstatat, Text<2>, Values<3>);
GMAC_SERVE(5, kAfterFault, __fxstatat64, Text<2>, Values<3>);
GMAC_SERVE_CALL(5, kAfterFault, statx, Text<1>, Values<4>);
GMAC_SERVE_CALL(2, kAfterFault, statfs, Text<0>, Values<1>);
GMAC_SERVE(2, kAfterFault, statfs64, Text<0>, Values<1>);
GMAC_SERVE_CALL(2, kAfterFault, fstatfs, Values<1>);
GMAC_SERVE(2, kAfterFault, fstatfs64, Values<1>);
GMAC_SERVE(2, kAfterFault, statvfs, Text<0>);
GMAC_SERVE(2, kAfterFault, statvfs64, Text<0>);
GMAC_SERVE_CALL(2, kAfterFault, utime, Text<0>);
GMAC_SERVE_CALL(2, kAfterFault, utimes, Text<0>);
GMAC_SERVE(2, kAfterFault, lutimes, Text<0>);
GMAC_SERVE_CALL(3, kAfterFault, futimesat, Text<1>);
GMAC_SERVE_CALL(4, kAfterFault, utimensat, Text<1>, Values<2, 2>);
GMAC_SERVE(2, kAfterFault, futimens, Values<1, 2>);
GMAC_SERVE_CALL(5, kAfterFault, setxattr, Text<0>, Text<1>, Array<2, 3>);
GMAC_SERVE_CALL(5, kAfterFault, lsetxattr, Text<0>, Text<1>, Array<2, 3>);
GMAC_SERVE_CALL(5, kAfterFault, fsetxattr, Text<1>, Array<2, 3>);
GMAC_SERVE_CALL(4, kAfterFault, getxattr, Text<0>, Text<1>, Array<2, 3>);
GMAC_SERVE_CALL(4, kAfterFault, lgetxattr, Text<0>, Text<1>, Array<2, 3>);
GMAC_SERVE_CALL(4, kAfterFault, fgetxattr, Text<1>, Array<2, 3>);
GMAC_SERVE_CALL(3, kAfterFault, listxattr, Text<0>, Array<1, 2>);
GMAC_SERVE_CALL(3, kAfterFault, llistxattr, Text<0>, Array<1, 2>);
GMAC_SERVE_CALL(3, kAfterFault, flistxattr, Array<1, 2>);
GMAC_SERVE_CALL(2, kAfterFault, removexattr, Text<0>, Text<1>);
GMAC_SERVE_CALL(2, kAfterFault, lremovexattr, Text<0>, Text<1>);
GMAC_SERVE_CALL(2, kAfterFault, fremovexattr, Text<1>);
GMAC_SERVE_CALL(3, kAfterFault, mincore, Computed<2, kPages>);

// ---- Names that are told

GMAC_SERVE_CALL(3, kAfterFault, readlink, Text<0>, Array<1, 2>);
GMAC_SERVE_CALL(4, kAfterFault, readlinkat, Text<1>, Array<2, 3>);
GMAC_SERVE_CALL(2, kAfterFault, getcwd, Array<0, 1>);
GMAC_SERVE_ERRORS(3, kAfterFault, Errors::kReturned, ttyname_r, Array<1, 2>);
GMAC_SERVE_CALL(3, kBefore, getdents64, Array<1, 2>);
GMAC_SERVE(4, kBefore, getdirentries, Array<1, 2>, Values<3>);
GMAC_SERVE(4, kBefore, getdirentries64, Array<1, 2>, Values<3>);

extern "C" {

GMAC_INTERPOSED ssize_t __readlink_chk(const char* path, char* buffer, size_t bytes,
                                       size_t room) noexcept {
  if (bytes > room) __chk_fail();
  return readlink(path, buffer, bytes);
}

GMAC_INTERPOSED ssize_t __readlinkat_chk(int folder, const char* path, char* buffer, size_t bytes,
                                         size_t room) noexcept {
  if (bytes > room) __chk_fail();
  return readlinkat(folder, path, buffer, bytes);
}

GMAC_INTERPOSED char* __getcwd_chk(char* buffer, size_t bytes, size_t room) noexcept {
  if (bytes > room) __chk_fail();
  return getcwd(buffer, bytes);
}

GMAC_INTERPOSED int __ttyname_r_chk(int descriptor, char* buffer, size_t bytes,
                                    size_t room) noexcept {
  if (bytes > room) __chk_fail();
  return ttyname_r(descriptor, buffer, bytes);
}

}  // extern "C"

}  // namespace gmac::interpose
