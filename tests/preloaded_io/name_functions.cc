// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/preloaded_io/functions.h"

namespace gmac::testing {

namespace {

int anything(const char*, const struct stat*, int, FTW*) { return 0; }

}  // namespace

const std::vector<Function>& nameFunctions() {
  static const std::vector<Function> all = {
      {"open",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         const Descriptor file(a.makeDescriptor([&] { return ::open(name, O_RDONLY); }));
       }},
      {"openToMake",
       [](Attempt& a) {
         auto* const name = a.text("new");
         const Descriptor file(
             a.makeDescriptor([&] { return ::open(name, O_WRONLY | O_CREAT, 0640); }));
         struct stat status = {};
         a.note(::stat("new", &status));
         a.note(status.st_mode);
       }},
      {"openNothing",
       [](Attempt& a) {
         auto* const name = a.text("nothing");
         a.make([&] { return ::open(name, O_RDONLY); });
       }},
      {"openTooLong",
       [](Attempt& a) {
         auto* const name = a.text(std::string(5000, 'x').c_str());
         a.make([&] { return ::open(name, O_RDONLY); });
       }},
      {"openat",
       [](Attempt& a) {
         auto* const name = a.text(".");
         const Descriptor file(
             a.makeDescriptor([&] { return ::openat(AT_FDCWD, name, O_DIRECTORY); }));
       }},
      {"creat",
       [](Attempt& a) {
         auto* const name = a.text("new");
         const Descriptor file(a.makeDescriptor([&] { return ::creat(name, 0600); }));
       }},
      {"fopen",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         auto* const mode = a.text("r");
         std::FILE* const file = a.makePointer([&] { return std::fopen(name, mode); });
         if (file != nullptr) std::fclose(file);
       }},
      {"freopen",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         std::FILE* const before = std::fopen("there", "r");
         std::FILE* const file = a.makePointer([&] { return std::freopen(name, "r", before); });
         if (file != nullptr) std::fclose(file);
       }},
      {"opendir",
       [](Attempt& a) {
         auto* const name = a.text(".");
         DIR* const folder = a.makePointer([&] { return ::opendir(name); });
         if (folder != nullptr) ::closedir(folder);
       }},
      {"scandir",
       [](Attempt& a) {
         auto* const name = a.text(".");
         dirent** list = nullptr;
         a.make([&] { return ::scandir(name, &list, nullptr, ::alphasort); });
       }},
      {"nftw",
       [](Attempt& a) {
         auto* const name = a.text(".");
         a.make([&] { return ::nftw(name, anything, 4, 0); });
       }},
      {"glob",
       [](Attempt& a) {
         makeFile("there");
         auto* const pattern = a.text("./the*");
         glob_t found = {};
         a.make([&] { return ::glob(pattern, 0, nullptr, &found); });
         a.note(found.gl_pathc);
       }},
      {"realpath",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         auto* const path = a.room<char>(PATH_MAX);
         a.makePointer([&] { return ::realpath(name, path); });
         a.note(path[0]);
       }},
      {"mkstemp",
       [](Attempt& a) {
         auto* const name = a.text("madeXXXXXX");
         const Descriptor file(a.makeDescriptor([&] { return ::mkstemp(name); }));
         a.note(::access(name, F_OK));
       }},
      {"mkdtemp",
       [](Attempt& a) {
         auto* const name = a.text("madeXXXXXX");
         a.makePointer([&] { return ::mkdtemp(name); });
         a.note(::access(name, F_OK));
       }},
      {"access",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         a.make([&] { return ::access(name, R_OK); });
       }},
      {"faccessat",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         a.make([&] { return ::faccessat(AT_FDCWD, name, R_OK, AT_EACCESS); });
       }},
      {"euidaccess",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         a.make([&] { return ::euidaccess(name, R_OK); });
       }},
      {"stat",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         auto* const status = a.room<struct stat>();
         a.make([&] { return ::stat(name, status); });
         a.note(status->st_size);
         a.note(status->st_mode);
       }},
      {"lstat",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         auto* const status = a.room<struct stat>();
         a.make([&] { return ::lstat(name, status); });
         a.note(status->st_size);
       }},
      {"fstat",
       [](Attempt& a) {
         makeFile("there");
         const Descriptor file(::open("there", O_RDONLY));
         auto* const status = a.room<struct stat>();
         a.make([&] { return ::fstat(file, status); });
         a.note(status->st_size);
       }},
      {"fstatat",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         auto* const status = a.room<struct stat64>();
         a.make([&] { return ::fstatat64(AT_FDCWD, name, status, 0); });
         a.note(status->st_size);
       }},
      {"statx",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         auto* const status = a.room<struct statx>();
         a.make([&] { return ::statx(AT_FDCWD, name, 0, STATX_SIZE, status); });
         a.note(status->stx_size);
       }},
      {"statfs",
       [](Attempt& a) {
         auto* const name = a.text(".");
         auto* const status = a.room<struct statfs>();
         a.make([&] { return ::statfs(name, status); });
         a.note(status->f_type);
       }},
      {"fstatfs",
       [](Attempt& a) {
         const Descriptor folder(::open(".", O_RDONLY));
         auto* const status = a.room<struct statfs>();
         a.make([&] { return ::fstatfs(folder, status); });
         a.note(status->f_type);
       }},
      {"statvfs",
       [](Attempt& a) {
         auto* const name = a.text(".");
         auto* const status = a.room<struct statvfs>();
         a.make([&] { return ::statvfs(name, status); });
         a.note(status->f_bsize);
       }},
      {"pathconf",
       [](Attempt& a) {
         auto* const name = a.text(".");
         a.make([&] { return ::pathconf(name, _PC_NAME_MAX); });
       }},
      {"ftok",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         a.makeDescriptor([&] { return ::ftok(name, 7) == -1 ? -1 : 0; });
       }},
      {"readlink",
       [](Attempt& a) {
         a.note(::symlink("target", "link"));
         auto* const name = a.text("link");
         auto* const target = a.room<char>(100);
         a.make([&] { return ::readlink(name, target, 100); });
         a.noteBytes(target, 100);
       }},
      {"readlinkat",
       [](Attempt& a) {
         a.note(::symlink("target", "link"));
         auto* const name = a.text("link");
         auto* const target = a.room<char>(3);
         a.make([&] { return ::readlinkat(AT_FDCWD, name, target, 3); });
         a.noteBytes(target, 3);
       }},
      {"getcwd",
       [](Attempt& a) {
         auto* const path = a.room<char>(PATH_MAX);
         a.makePointer([&] { return ::getcwd(path, PATH_MAX); });
         a.note(path[0]);
         auto* const small = a.room<char>(1);
         a.makePointer([&] { return ::getcwd(small, 1); });
       }},
      {"symlink",
       [](Attempt& a) {
         auto* const target = a.text("target");
         auto* const name = a.text("link");
         a.make([&] { return ::symlink(target, name); });
         a.make([&] { return ::symlinkat(target, AT_FDCWD, name); });
         a.note(std::filesystem::read_symlink("link").string());
       }},
      {"link",
       [](Attempt& a) {
         makeFile("there");
         auto* const from = a.text("there");
         auto* const to = a.text("again");
         auto* const more = a.text("more");
         a.make([&] { return ::link(from, to); });
         a.make([&] { return ::linkat(AT_FDCWD, from, AT_FDCWD, more, 0); });
       }},
      {"rename",
       [](Attempt& a) {
         makeFile("there");
         auto* const from = a.text("there");
         auto* const to = a.text("then");
         auto* const last = a.text("last");
         a.make([&] { return std::rename(from, to); });
         a.make([&] { return ::renameat(AT_FDCWD, to, AT_FDCWD, from); });
         a.make([&] { return ::renameat2(AT_FDCWD, from, AT_FDCWD, last, 0); });
         a.note(::access("last", F_OK));
       }},
      {"unlink",
       [](Attempt& a) {
         for (const char* each : {"one", "two", "three"}) makeFile(each);
         auto* const one = a.text("one");
         auto* const two = a.text("two");
         auto* const three = a.text("three");
         a.make([&] { return ::unlink(one); });
         a.make([&] { return ::unlinkat(AT_FDCWD, two, 0); });
         a.make([&] { return std::remove(three); });
         a.make([&] { return ::unlink(one); });
       }},
      {"mkdir",
       [](Attempt& a) {
         auto* const one = a.text("one");
         auto* const two = a.text("two");
         a.make([&] { return ::mkdir(one, 0700); });
         a.make([&] { return ::mkdirat(AT_FDCWD, two, 0700); });
         a.make([&] { return ::chdir(one); });
         a.note(::chdir(".."));
         a.make([&] { return ::rmdir(one); });
       }},
      {"mkfifo",
       [](Attempt& a) {
         auto* const one = a.text("one");
         auto* const two = a.text("two");
         auto* const three = a.text("three");
         a.make([&] { return ::mkfifo(one, 0600); });
         a.make([&] { return ::mkfifoat(AT_FDCWD, two, 0600); });
         a.make([&] { return ::mknod(three, S_IFIFO | 0600, 0); });
       }},
      {"chmod",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         a.make([&] { return ::chmod(name, 0640); });
         a.make([&] { return ::fchmodat(AT_FDCWD, name, 0600, 0); });
         a.make([&] { return ::chown(name, ::getuid(), ::getgid()); });
         a.make([&] { return ::lchown(name, ::getuid(), ::getgid()); });
         a.make([&] { return ::fchownat(AT_FDCWD, name, ::getuid(), ::getgid(), 0); });
       }},
      {"truncate",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         a.make([&] { return ::truncate(name, 3); });
         a.note(static_cast<long>(std::filesystem::file_size("there")));
       }},
      {"utime",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         auto* const old = a.put(utimbuf{1000, 2000});
         const timeval pair[] = {{3000, 0}, {4000, 0}};
         auto* const micro = a.put(pair, 2);
         const timespec finer[] = {{5000, 0}, {6000, 0}};
         auto* const nano = a.put(finer, 2);
         const auto changed = [] {
           struct stat status = {};
           return ::stat("there", &status) == 0 ? static_cast<long>(status.st_mtime) : -1L;
         };
         a.make([&] { return ::utime(name, old); });
         a.note(changed());
         a.make([&] { return ::utimes(name, micro); });
         a.note(changed());
         a.make([&] { return ::utimensat(AT_FDCWD, name, nano, 0); });
         a.note(changed());
         const Descriptor file(::open("there", O_RDWR));
         a.make([&] { return ::futimens(file, nano); });
         a.make([&] { return ::futimes(file, micro); });
         a.make([&] { return ::lutimes(name, micro); });
         a.make([&] { return ::futimesat(AT_FDCWD, name, micro); });
         a.note(changed());
       }},
      {"xattr",
       [](Attempt& a) {
         makeFile("there");
         const Descriptor file(::open("there", O_RDWR));
         auto* const path = a.text("there");
         auto* const name = a.text("user.name");
         auto* const value = a.text("value");
         auto* const told = a.room<char>(32);
         a.make([&] { return ::setxattr(path, name, value, 5, 0); });
         a.make([&] { return ::lsetxattr(path, name, value, 4, 0); });
         a.make([&] { return ::fsetxattr(file, name, value, 5, 0); });
         a.make([&] { return ::getxattr(path, name, told, 32); });
         a.noteBytes(told, 32);
         a.make([&] { return ::lgetxattr(path, name, told, 2); });
         a.make([&] { return ::fgetxattr(file, name, told, 32); });
         a.make([&] { return ::listxattr(path, told, 32); });
         a.make([&] { return ::llistxattr(path, told, 32); });
         a.make([&] { return ::flistxattr(file, told, 32); });
         a.make([&] { return ::removexattr(path, name); });
         a.make([&] { return ::lremovexattr(path, name); });
         a.make([&] { return ::fremovexattr(file, name); });
       }},
      {"getdents64",
       [](Attempt& a) {
         makeFile("there");
         const Descriptor folder(::open(".", O_RDONLY | O_DIRECTORY));
         auto* const entries = a.room<char>(4000);
         a.make([&] { return ::getdents64(folder, entries, 4000); });
         a.note(reinterpret_cast<const dirent64*>(entries)->d_name[0] != '\0');
         a.make([&] { return ::getdents64(folder, entries, 4000); });
       }},
      {"name_to_handle_at",
       [](Attempt& a) {
         makeFile("there");
         auto* const name = a.text("there");
         struct {
           file_handle head;
           unsigned char bytes[MAX_HANDLE_SZ];
         } given = {};
         given.head.handle_bytes = MAX_HANDLE_SZ;
         auto* const handle = a.put(given);
         auto* const mount = a.room<int>();
         a.make([&] { return ::name_to_handle_at(AT_FDCWD, name, &handle->head, mount, 0); });
         a.noteTold(mount);
         a.note(handle->head.handle_bytes);
       }},
      {"inotify",
       [](Attempt& a) {
         makeFile("there");
         const Descriptor events(::inotify_init1(IN_NONBLOCK));
         auto* const name = a.text("there");
         auto* const told = a.room<inotify_event>(4);
         a.make([&] { return ::inotify_add_watch(events, name, IN_OPEN); });
         ::close(::open("there", O_RDONLY));
         a.make([&] { return ::read(events, told, 4 * sizeof *told); });
         a.note(told->mask);
       }},
      {"memfd_create",
       [](Attempt& a) {
         auto* const name = a.text("name");
         const Descriptor file(a.makeDescriptor([&] { return ::memfd_create(name, 0); }));
       }},
      {"shm_open",
       [](Attempt& a) {
         auto* const name = a.text(("/gmac-arguments-" + std::to_string(::getpid())).c_str());
         const Descriptor file(
             a.makeDescriptor([&] { return ::shm_open(name, O_RDWR | O_CREAT, 0600); }));
         a.make([&] { return ::shm_unlink(name); });
       }},
      {"dlopen",
       [](Attempt& a) {
         auto* const name = a.text("/nowhere/libnothing.so");
         a.makePointer([&] { return ::dlopen(name, RTLD_NOW) == nullptr ? "none" : nullptr; });
       }},
      {"mount",
       [](Attempt& a) {
         auto* const name = a.text("nowhere");
         auto* const type = a.text("nosuchtype");
         a.make([&] { return ::mount(name, name, type, 0, type); });
         a.make([&] { return ::umount(name); });
         a.make([&] { return ::umount2(name, 0); });
         a.make([&] { return ::chroot(name); });
       }},
      {"system",
       [](Attempt& a) {
         auto* const command = a.text("exit 3");
         a.make([&] { return std::system(command); });
       }},
      {"posix_spawn",
       [](Attempt& a) {
         auto* const path = a.text("/bin/true");
         char* const first[] = {path, nullptr};
         auto* const arguments = a.put(first, 2);
         auto* const child = a.room<pid_t>();
         auto* const status = a.room<int>();
         a.make([&] { return ::posix_spawn(child, path, nullptr, nullptr, arguments, environ); });
         a.makeDescriptor([&] { return ::waitpid(*child, status, 0); });
         a.note(*status);
       }},
  };
  return all;
}

}  // namespace gmac::testing
