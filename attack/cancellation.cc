// SPDX-License-Identifier: Apache-2.0
//
// pthread_cancel of a thread that is blocked in the C library, or at work on shared objects: the
// thread ends at a cancellation point, its cleanup has run, and nothing of the library's is left
// half done.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "attack/subject.h"

namespace attack {
namespace {

// The ends of pipes and sockets that the threads block on, and their buffers.
struct Ends {
  int pipe[2];      // empty
  int fullPipe[2];  // full
  int sockets[2];   // nothing to receive, no room to send
  char* buffer;     // of kBytes, plain or shared
};
constexpr std::size_t kBytes = std::size_t{1} << 20;

struct BlockingCall {
  const char* name;
  void (*block)(Ends& ends);
};

const BlockingCall kCalls[] = {
    {"read", [](Ends& e) { (void)!::read(e.pipe[0], e.buffer, 100); }},
    {"readv",
     [](Ends& e) {
       const iovec parts[] = {{e.buffer, 100}, {e.buffer + 4096, 100}};
       (void)!::readv(e.pipe[0], parts, 2);
     }},
    {"write",
     [](Ends& e) {
       for (;;) (void)!::write(e.fullPipe[1], e.buffer, kBytes);
     }},
    {"writev",
     [](Ends& e) {
       const iovec parts[] = {{e.buffer, 1000}, {e.buffer + 4096, 100000}};
       for (;;) (void)!::writev(e.fullPipe[1], parts, 2);
     }},
    {"recv", [](Ends& e) { (void)!::recv(e.sockets[0], e.buffer, 100, 0); }},
    {"recvfrom",
     [](Ends& e) { (void)!::recvfrom(e.sockets[0], e.buffer, 100, 0, nullptr, nullptr); }},
    {"recvmsg",
     [](Ends& e) {
       iovec part = {e.buffer, 100};
       msghdr message = {};
       message.msg_iov = &part;
       message.msg_iovlen = 1;
       (void)!::recvmsg(e.sockets[0], &message, 0);
     }},
    {"recvmmsg",
     [](Ends& e) {
       iovec part = {e.buffer, 100};
       mmsghdr message = {};
       message.msg_hdr.msg_iov = &part;
       message.msg_hdr.msg_iovlen = 1;
       (void)!::recvmmsg(e.sockets[0], &message, 1, 0, nullptr);
     }},
    {"send",
     [](Ends& e) {
       for (;;) (void)!::send(e.sockets[0], e.buffer, kBytes, 0);
     }},
    {"sendto",
     [](Ends& e) {
       for (;;) (void)!::sendto(e.sockets[0], e.buffer, kBytes, 0, nullptr, 0);
     }},
    {"sendmsg",
     [](Ends& e) {
       iovec part = {e.buffer, kBytes};
       msghdr message = {};
       message.msg_iov = &part;
       message.msg_iovlen = 1;
       for (;;) (void)!::sendmsg(e.sockets[0], &message, 0);
     }},
    {"sendmmsg",
     [](Ends& e) {
       iovec part = {e.buffer, kBytes};
       mmsghdr message = {};
       message.msg_hdr.msg_iov = &part;
       message.msg_hdr.msg_iovlen = 1;
       for (;;) (void)!::sendmmsg(e.sockets[0], &message, 1, 0);
     }},
    {"fread",
     [](Ends& e) {
       std::FILE* const file = ::fdopen(e.pipe[0], "r");
       (void)!std::fread(e.buffer, 1, 100, file);
     }},
    {"fgets",
     [](Ends& e) {
       std::FILE* const file = ::fdopen(e.pipe[0], "r");
       (void)!std::fgets(e.buffer, 100, file);
     }},
    {"getline",
     [](Ends& e) {
       std::FILE* const file = ::fdopen(e.pipe[0], "r");
       char* line = nullptr;
       std::size_t room = 0;
       (void)!::getline(&line, &room, file);
     }},
    {"fwrite",
     [](Ends& e) {
       std::FILE* const file = ::fdopen(e.fullPipe[1], "w");
       for (;;) (void)!std::fwrite(e.buffer, 1, kBytes, file);
     }},
    {"fputs",
     [](Ends& e) {
       std::memset(e.buffer, 'x', kBytes - 1);
       e.buffer[kBytes - 1] = '\0';
       std::FILE* const file = ::fdopen(e.fullPipe[1], "w");
       for (;;) (void)!std::fputs(e.buffer, file);
     }},
    {"splice",
     [](Ends& e) { (void)!::splice(e.pipe[0], nullptr, e.fullPipe[1], nullptr, 100, 0); }},
    {"poll",
     [](Ends& e) {
       pollfd one = {e.pipe[0], POLLIN, 0};
       ::poll(&one, 1, -1);
     }},
    {"ppoll",
     [](Ends& e) {
       pollfd one = {e.pipe[0], POLLIN, 0};
       sigset_t none;
       sigemptyset(&none);
       ::ppoll(&one, 1, nullptr, &none);
     }},
    {"select",
     [](Ends& e) {
       fd_set set;
       FD_ZERO(&set);
       FD_SET(e.pipe[0], &set);
       ::select(e.pipe[0] + 1, &set, nullptr, nullptr, nullptr);
     }},
    {"pselect",
     [](Ends& e) {
       fd_set set;
       FD_ZERO(&set);
       FD_SET(e.pipe[0], &set);
       sigset_t none;
       sigemptyset(&none);
       ::pselect(e.pipe[0] + 1, &set, nullptr, nullptr, nullptr, &none);
     }},
    {"epoll_wait",
     [](Ends&) {
       epoll_event event = {};
       ::epoll_wait(::epoll_create1(0), &event, 1, -1);
     }},
    {"epoll_pwait",
     [](Ends&) {
       epoll_event event = {};
       sigset_t none;
       sigemptyset(&none);
       ::epoll_pwait(::epoll_create1(0), &event, 1, -1, &none);
     }},
    {"sigwait",
     [](Ends&) {
       sigset_t set;
       sigemptyset(&set);
       sigaddset(&set, SIGUSR2);
       int signal = 0;
       ::sigwait(&set, &signal);
     }},
    {"sigwaitinfo",
     [](Ends&) {
       sigset_t set;
       sigemptyset(&set);
       sigaddset(&set, SIGUSR2);
       ::sigwaitinfo(&set, nullptr);
     }},
    {"sigtimedwait",
     [](Ends&) {
       sigset_t set;
       sigemptyset(&set);
       sigaddset(&set, SIGUSR2);
       const timespec limit = {100, 0};
       ::sigtimedwait(&set, nullptr, &limit);
     }},
    {"sigsuspend",
     [](Ends&) {
       sigset_t none;
       sigemptyset(&none);
       ::sigsuspend(&none);
     }},
    {"pause", [](Ends&) { ::pause(); }},
    {"nanosleep",
     [](Ends&) {
       const timespec limit = {100, 0};
       ::nanosleep(&limit, nullptr);
     }},
    {"sem_wait",
     [](Ends&) {
       sem_t semaphore;
       ::sem_init(&semaphore, 0, 0);
       ::sem_wait(&semaphore);
     }},
    {"pthread_cond_wait",
     [](Ends&) {
       pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
       pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
       ::pthread_mutex_lock(&mutex);
       ::pthread_cond_wait(&condition, &mutex);
     }},
    {"system", [](Ends&) { (void)!std::system("exec sleep 30"); }},
    {"waitpid",
     [](Ends&) {
       const pid_t child = ::fork();
       if (child == 0) {
         ::sleep(2);
         ::_exit(0);
       }
       ::waitpid(child, nullptr, 0);
     }},
    {"open",
     [](Ends&) {
       ::mkfifo("fifo", 0600);
       (void)!::open("fifo", O_RDONLY);
     }},
    {"lockf",
     [](Ends&) {
       const int file = ::open("locked", O_RDWR | O_CREAT, 0600);
       struct flock range {};
       range.l_type = F_WRLCK;
       if (const pid_t holder = ::fork(); holder == 0) {
         ::fcntl(file, F_SETLKW, &range);
         ::sleep(3);
         ::_exit(0);
       }
       struct flock seen = range;
       do {
         seen = range;
         ::fcntl(file, F_GETLK, &seen);
       } while (seen.l_type == F_UNLCK);
       ::fcntl(file, F_SETLKW, &range);
     }},
};

std::atomic<bool> cleaned{false};
std::atomic<pid_t> threadNumber{0};

struct Blocked {
  const BlockingCall* call;
  Ends ends;
};

void* blockHere(void* argument) {
  auto& blocked = *static_cast<Blocked*>(argument);
  pthread_cleanup_push([](void*) { cleaned = true; }, nullptr);
  threadNumber = static_cast<pid_t>(::syscall(SYS_gettid));
  blocked.call->block(blocked.ends);
  pthread_cleanup_pop(0);
  return nullptr;
}

void fill(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
  static const char kBlock[65536] = {};
  while (::write(descriptor, kBlock, sizeof kBlock) > 0) {
  }
  ::fcntl(descriptor, F_SETFL, flags);
}

enum class Buffer { kPlain, kPlainBesideObjects, kShared };

void cancelIn(const BlockingCall& call, Buffer buffer) {
  Blocked blocked{&call, {}};
  Ends& ends = blocked.ends;
  require(::pipe(ends.pipe) == 0 && ::pipe(ends.fullPipe) == 0 &&
              ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.sockets) == 0,
          "pipes and sockets: {}", std::strerror(errno));
  fill(ends.fullPipe[1]);
  fill(ends.sockets[0]);
  sigset_t user;
  sigemptyset(&user);
  sigaddset(&user, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &user, nullptr);
  static char plain[kBytes];
  ends.buffer = plain;
  std::uint32_t* object = nullptr;
  if (buffer != Buffer::kPlain) {
    object = allocate(kBytes / sizeof *object);
    add(object, kBytes / sizeof *object, 0x01010101);
    sync();
    ends.buffer = buffer == Buffer::kShared ? reinterpret_cast<char*>(object) : plain;
  }
  pthread_t thread;
  require(::pthread_create(&thread, nullptr, &blockHere, &blocked) == 0, "pthread_create");
  require(waitUntil([] { return threadNumber != 0 && sleeps(threadNumber); }, 5),
          "the thread does not block");
  pause(0.02);
  require(::pthread_cancel(thread) == 0, "pthread_cancel");
  void* result = nullptr;
  timespec limit = {};
  ::clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += 8;
  require(::pthread_timedjoin_np(thread, &result, &limit) == 0, "the thread did not end");
  require(result == PTHREAD_CANCELED, "the thread returned");
  require(cleaned, "its cleanup did not run");
  work();
  if (object != nullptr) check(adsmFree(object), "adsmFree");
}

std::vector<Attack> blockingCalls() {
  std::vector<Attack> attacks;
  const struct {
    Buffer buffer;
    const char* name;
    bool onlyTransfers;
  } buffers[] = {{Buffer::kPlain, "not started", false},
                 {Buffer::kPlainBesideObjects, "started", false},
                 {Buffer::kShared, "shared", true}};
  for (const auto& buffer : buffers) {
    for (const BlockingCall& call : kCalls) {
      // From poll on nothing names a buffer.
      if (buffer.onlyTransfers && &call - kCalls >= 18) continue;
      attacks.push_back({fmt::format("cancel/{}, {}", call.name, buffer.name),
                         [&call, which = buffer.buffer] { cancelIn(call, which); }, 15});
    }
  }
  return attacks;
}
const Registration kBlockingCalls(blockingCalls());

// ---- At work on objects

constexpr std::size_t kWords = std::size_t{1} << 20;

struct Work {
  const char* name;
  void (*once)(std::uint32_t* words);
  bool hasPoint;  // whether what it does is a cancellation point by itself
};

const Work kWorks[] = {
    {"access",
     [](std::uint32_t* words) {
       for (std::size_t i = 0; i < kWords; i += 1024) ++words[i];
     },
     false},
    {"memcpy",
     [](std::uint32_t* words) {
       static std::uint32_t plain[kWords];
       std::memcpy(plain, words, sizeof plain);
       std::memcpy(words, plain, sizeof plain);
     },
     false},
    {"alloc, free",
     [](std::uint32_t*) {
       auto* const mine = static_cast<char*>(adsmAlloc(kBytes));
       if (mine != nullptr) std::memset(mine, 1, kBytes);
       (void)adsmFree(mine);
     },
     false},
    {"call, sync",
     [](std::uint32_t* words) {
       (void)tryAdd(words, kWords, 0);
       (void)adsmSync();
     },
     false},
    {"pwrite, pread",
     [](std::uint32_t* words) {
       const int file = ::open("cancelled", O_RDWR | O_CREAT, 0600);
       for (;;) {
         (void)!::pwrite(file, words, kWords * 4, 0);
         (void)!::pread(file, words, kWords * 4, 0);
       }
     },
     true},
};

std::atomic<bool> atWork{false};
std::uint32_t* shared = nullptr;

void* workForEver(void* argument) {
  const auto& one = *static_cast<const Work*>(argument);
  pthread_cleanup_push([](void*) { cleaned = true; }, nullptr);
  atWork = true;
  for (;;) {
    one.once(shared);
    // Where the work itself is no cancellation point it must have left the request alone.
    if (!one.hasPoint) ::pthread_testcancel();
  }
  pthread_cleanup_pop(0);
  return nullptr;
}

void cancelAtWork(const Work& one) {
  shared = allocate(kWords);
  for (int round = 0; round < 12; ++round) {
    cleaned = atWork = false;
    add(shared, kWords, 1);
    pthread_t thread;
    require(::pthread_create(&thread, nullptr, &workForEver, const_cast<Work*>(&one)) == 0,
            "pthread_create");
    require(waitUntil([] { return atWork.load(); }, 5), "the thread does not start");
    pause(0.001 * (round % 6));
    add(shared, kWords, 1);
    require(::pthread_cancel(thread) == 0, "pthread_cancel");
    void* result = nullptr;
    timespec limit = {};
    ::clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 10;
    require(::pthread_timedjoin_np(thread, &result, &limit) == 0, "round {}: it did not end",
            round);
    require(result == PTHREAD_CANCELED && cleaned, "round {}: no cleanup", round);
    sync();
    shared[7] = 5;
    add(shared, kWords, 1);
    sync();
    require(shared[7] == 6, "round {}: {} instead of 6", round, shared[7]);
  }
  work();
}

// A request that waits while a thread touches what a kernel has yet to finish.
void cancelInAFault() {
  shared = allocate(kWords);
  sleepOn(shared, 200);
  pthread_t thread;
  atWork = false;
  require(::pthread_create(
              &thread, nullptr,
              [](void*) -> void* {
                pthread_cleanup_push([](void*) { cleaned = true; }, nullptr);
                atWork = true;
                *static_cast<volatile std::uint32_t*>(shared) = 9;
                for (;;) ::pthread_testcancel();
                pthread_cleanup_pop(0);
                return nullptr;
              },
              nullptr) == 0,
          "pthread_create");
  require(waitUntil([] { return atWork.load(); }, 5), "the thread does not start");
  pause(0.05);
  require(::pthread_cancel(thread) == 0, "pthread_cancel");
  void* result = nullptr;
  ::pthread_join(thread, &result);
  require(result == PTHREAD_CANCELED && cleaned, "no cleanup");
  require(shared[0] == 9, "the write was lost");
  work();
}

std::vector<Attack> works() {
  std::vector<Attack> attacks;
  for (const Work& one : kWorks) {
    attacks.push_back(
        {fmt::format("cancel/at work: {}", one.name), [&one] { cancelAtWork(one); }, 40});
  }
  attacks.push_back({"cancel/at work: fault", &cancelInAFault});
  return attacks;
}
const Registration kAtWork(works());

}  // namespace
}  // namespace attack
