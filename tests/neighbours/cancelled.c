/* SPDX-License-Identifier: Apache-2.0
 *
 * A program whose threads are cancelled: `cancelled` prints its scenarios, `cancelled SCENARIO
 * MEMORY` runs one. MEMORY is where the buffers are: "plain", "started" (plain, but the runtime has
 * started) or "shared". What it says is the same for all of them.
 *
 * In C: a C program has no unwinder until a thread of it is cancelled, and a frame of C++ does not
 * let a thread be cancelled at any instruction.
 */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"

#define BYTES ((size_t)1 << 20)

static unsigned char* memory; /* BYTES bytes */
static int isPlain = 1;

static void say(const char* format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  line[length++] = '\n';
  if (write(STDOUT_FILENO, line, (size_t)length) != length) _exit(96);
}

static void check(int well, const char* what) {
  if (well) return;
  say("%s failed: %s", what, strerror(errno));
  _exit(98);
}

/* ---- Kernels */

static void* find(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  check(found != NULL, name);
  return found;
}
#define API(name) ((__typeof__(&name))find(#name))

static void addOne(const adsmThreadBlock_t* block, void** args) {
  (void)block;
  ++**(unsigned char**)args[0];
}

/* Longer than any wait of the runtime's goes on without a look at its accelerator. */
static void addOneLate(const adsmThreadBlock_t* block, void** args) {
  usleep(150000);
  addOne(block, args);
}

static adsmKernel_t kernelOf(adsmHostKernel_t function) {
  static const size_t kSizes[] = {sizeof(void*)};
  adsmKernelDesc_t description;
  memset(&description, 0, sizeof description);
  description.name = "addOne";
  description.paramCount = 1;
  description.paramSizes = kSizes;
  description.host = function;
  adsmKernel_t kernel = NULL;
  check(API(adsmKernelCreate)(&description, &kernel) == adsmSuccess, "adsmKernelCreate");
  return kernel;
}

static void callKernel(adsmKernel_t kernel) {
  const adsmDim_t one = {1, 1, 1};
  void* args[] = {&memory};
  check(API(adsmCall)(kernel, one, one, 0, args) == adsmSuccess, "adsmCall");
}

static adsmKernel_t quick, late;

/* Makes the accelerator's copy of the memory the only current one: the next access faults. */
static void closeMemory(void) {
  if (isPlain) {
    ++*memory;
    return;
  }
  callKernel(quick);
  check(API(adsmSync)() == adsmSuccess, "adsmSync");
}

/* The same, and the next access waits. */
static void closeMemoryLate(void) {
  if (isPlain) {
    ++*memory;
  } else {
    callKernel(late);
  }
}

static void allocateMemory(const char* where) {
  isPlain = strcmp(where, "shared") != 0;
  memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (strcmp(where, "plain") == 0) return;
  void* const object = API(adsmAlloc)(BYTES);
  check(object != NULL, "adsmAlloc");
  if (strcmp(where, "shared") != 0) return;
  memory = object;
  memset(memory, 0, BYTES);
  quick = kernelOf(&addOne);
  late = kernelOf(&addOneLate);
}

/* ---- What the calls are made on */

static int nothing[2]; /* a pipe in which nothing comes */
static int full[2];    /* a pipe that nobody empties */
static int quiet[2];   /* sockets of which nobody speaks or listens */
static int file;       /* with BYTES bytes */
static FILE* fromNothing;
static FILE* toFull;
static FILE* onFile;
static FILE* stream; /* of the call, if it has one */

static void makeThings(void) {
  check(pipe(nothing) == 0 && pipe(full) == 0, "pipe");
  check(socketpair(AF_UNIX, SOCK_STREAM, 0, quiet) == 0, "socketpair");
  file = memfd_create("file", 0);
  check(file >= 0 && ftruncate(file, BYTES) == 0, "memfd_create");
  fromNothing = fdopen(nothing[0], "r");
  toFull = fdopen(full[1], "w");
  onFile = fdopen(dup(file), "r+");
  check(fromNothing != NULL && toFull != NULL && onFile != NULL, "fdopen");
}

/* The vector, the message and their tables are in the memory as well. */
static struct iovec* vector(void) {
  struct iovec* const parts = (struct iovec*)(memory + 4096);
  parts[0].iov_base = memory + 8192;
  parts[0].iov_len = BYTES / 4;
  parts[1].iov_base = memory + BYTES / 2;
  parts[1].iov_len = BYTES / 4;
  return parts;
}

static struct mmsghdr* message(void) {
  struct mmsghdr* const one = (struct mmsghdr*)(memory + 6144);
  memset(one, 0, sizeof *one);
  one->msg_hdr.msg_iov = vector();
  one->msg_hdr.msg_iovlen = 2;
  return one;
}

static char* text(void) {
  memset(memory + 8192, 'x', BYTES - 16384);
  memory[BYTES - 8192] = '\0';
  return (char*)memory + 8192;
}

/* ---- Calls that wait for ever, or are made for ever */

static volatile unsigned turns;
#define FOR_EVER for (;; ++turns)
#define BLOCKING(name, ...) \
  static void do_##name(void) { __VA_ARGS__; }

static void sink(long result) { (void)result; }

BLOCKING(read, sink(read(nothing[0], memory, 100)))
BLOCKING(readv, sink(readv(nothing[0], vector(), 2)))
BLOCKING(preadv2, sink(preadv2(nothing[0], vector(), 2, -1, 0)))
BLOCKING(write, FOR_EVER sink(write(full[1], memory, BYTES)))
BLOCKING(writev, struct iovec* v = vector(); FOR_EVER sink(writev(full[1], v, 2)))
BLOCKING(pwritev2, struct iovec* v = vector(); FOR_EVER sink(pwritev2(full[1], v, 2, -1, 0)))
BLOCKING(recv, sink(recv(quiet[0], memory, 100, 0)))
BLOCKING(recvfrom, sink(recvfrom(quiet[0], memory, 100, 0, NULL, NULL)))
BLOCKING(recvmsg, sink(recvmsg(quiet[0], &message()->msg_hdr, 0)))
BLOCKING(recvmmsg, sink(recvmmsg(quiet[0], message(), 1, 0, NULL)))
BLOCKING(send, FOR_EVER sink(send(quiet[0], memory, BYTES, 0)))
BLOCKING(sendto, FOR_EVER sink(sendto(quiet[0], memory, BYTES, 0, NULL, 0)))
BLOCKING(sendmsg, struct msghdr* m = &message()->msg_hdr; FOR_EVER sink(sendmsg(quiet[0], m, 0)))
BLOCKING(sendmmsg, struct mmsghdr* m = message(); FOR_EVER sink(sendmmsg(quiet[0], m, 1, 0)))
BLOCKING(fread, stream = fromNothing; sink((long)fread(memory, 1, BYTES, stream)))
BLOCKING(fread_unlocked, sink((long)fread_unlocked(memory, 1, BYTES, fromNothing)))
BLOCKING(fwrite, stream = toFull; FOR_EVER sink((long)fwrite(memory, 1, BYTES, stream)))
BLOCKING(fwrite_unlocked, FOR_EVER sink((long)fwrite_unlocked(memory, 1, BYTES, toFull)))
BLOCKING(fputs, char* t = text(); stream = toFull; FOR_EVER sink(fputs(t, stream)))
BLOCKING(fputs_unlocked, char* t = text(); FOR_EVER sink(fputs_unlocked(t, toFull)))
BLOCKING(puts, char* t = text(); stdout = stream = toFull; FOR_EVER sink(puts(t)))
BLOCKING(fgets, stream = fromNothing; sink(fgets((char*)memory, 100, stream) != NULL))
BLOCKING(getline, char* line = (char*)memory; size_t room = BYTES; stream = fromNothing;
         sink(getline(&line, &room, stream)))
BLOCKING(splice, off64_t* at = (off64_t*)memory; *at = 0;
         FOR_EVER sink(splice(file, at, full[1], NULL, BYTES, 0)))
BLOCKING(system, strcpy((char*)memory, "exec sleep 1000"); sink(system((char*)memory)))
BLOCKING(getrandom, FOR_EVER sink(getrandom(memory, 100000, 0)))
BLOCKING(pread, FOR_EVER sink(pread(file, memory, BYTES, 0)))
BLOCKING(pwrite, FOR_EVER sink(pwrite(file, memory, BYTES, 0)))
BLOCKING(preadv, struct iovec* v = vector(); FOR_EVER sink(preadv(file, v, 2, 0)))
BLOCKING(pwritev, struct iovec* v = vector(); FOR_EVER sink(pwritev(file, v, 2, 0)))
BLOCKING(
    readOfFile, FOR_EVER {
      lseek(file, 0, SEEK_SET);
      sink(read(file, memory, BYTES));
    })
BLOCKING(
    writeOfFile, FOR_EVER {
      lseek(file, 0, SEEK_SET);
      sink(write(file, memory, BYTES));
    })
BLOCKING(readOfNoFile, FOR_EVER sink(read(-1, memory, BYTES)))
BLOCKING(
    freadOfFile, FOR_EVER {
      rewind(onFile);
      sink((long)fread(memory, 1, BYTES, onFile));
    })
BLOCKING(
    fwriteOfFile, FOR_EVER {
      rewind(onFile);
      sink((long)fwrite(memory, 1, BYTES, onFile));
    })
BLOCKING(
    copy_file_range, off64_t* at = (off64_t*)memory; FOR_EVER {
      *at = 0;
      sink(copy_file_range(file, at, file, NULL, 100, 0));
    })

/* Locks, which lie in the memory. */
struct Locks {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  sem_t semaphore;
};

static struct Locks* locks(void) {
  struct Locks* const all = (struct Locks*)(memory + 512);
  pthread_mutex_init(&all->mutex, NULL);
  pthread_cond_init(&all->condition, NULL);
  sem_init(&all->semaphore, 0, 0);
  return all;
}

static void unlock(void* mutex) { check(pthread_mutex_unlock(mutex) == 0, "pthread_mutex_unlock"); }

static void waitForCondition(const struct timespec* limit) {
  struct Locks* const all = locks();
  pthread_mutex_lock(&all->mutex);
  pthread_cleanup_push(&unlock, &all->mutex);
  while (1) {
    if (limit == NULL) {
      pthread_cond_wait(&all->condition, &all->mutex);
    } else {
      pthread_cond_timedwait(&all->condition, &all->mutex, limit);
    }
  }
  pthread_cleanup_pop(1);
}

static const struct timespec kNever = {(time_t)1 << 40, 0};
BLOCKING(condWait, waitForCondition(NULL))
BLOCKING(condTimedwait, waitForCondition(&kNever))
BLOCKING(semWait, sem_wait(&locks()->semaphore))
BLOCKING(semTimedwait, sem_timedwait(&locks()->semaphore, &kNever))

/* Signals: nothing of these is shared. */
static sigset_t none, one;
BLOCKING(sigsuspend, sigsuspend(&none))
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
BLOCKING(sigpause, sigpause(SIGUSR1))
BLOCKING(sigwait, int signal; sigwait(&one, &signal))
BLOCKING(sigwaitinfo, sigwaitinfo(&one, NULL))
BLOCKING(sigtimedwait, const struct timespec limit = {1000, 0}; sigtimedwait(&one, NULL, &limit))
BLOCKING(ppoll, struct pollfd p = {nothing[0], POLLIN, 0}; ppoll(&p, 1, NULL, &none))
BLOCKING(pselect, fd_set set; FD_ZERO(&set); FD_SET(nothing[0], &set);
         pselect(nothing[0] + 1, &set, NULL, NULL, NULL, &none))
BLOCKING(epoll_pwait, struct epoll_event event; int e = epoll_create1(0);
         epoll_pwait(e, &event, 1, -1, &none))
BLOCKING(epoll_pwait2, struct epoll_event event; int e = epoll_create1(0);
         epoll_pwait2(e, &event, 1, NULL, &none))

static volatile pid_t blockedThread;
static volatile int cleaned, wentOn;

static void cleanUp(void* argument) {
  (void)argument;
  cleaned = 1;
}

static void* blockingThread(void* call) {
  pthread_cleanup_push(&cleanUp, NULL);
  blockedThread = gettid();
  ((void (*)(void))(uintptr_t)call)();
  pthread_cleanup_pop(0);
  return NULL;
}

/* Whether the thread waits in the kernel. */
static int isAsleep(pid_t thread) {
  char path[64];
  char line[256] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
  const int status = open(path, O_RDONLY);
  const ssize_t count = read(status, line, sizeof line - 1);
  close(status);
  const char* const name = strrchr(line, ')'); /* which ends before the state */
  return count > 0 && name != NULL && name[2] == 'S';
}

static void join(pthread_t thread) {
  void* result = NULL;
  check(pthread_join(thread, &result) == 0, "pthread_join");
  say("%s, cleanup %d, went on %d", result == PTHREAD_CANCELED ? "cancelled" : "returned", cleaned,
      wentOn);
}

/* Nothing of the thread's is left: kernels run, the memory can be had, streams are free. */
static void sayMemory(void) {
  unsigned char* const last = memory + BYTES - 1;
  closeMemory();
  *last = 6;
  closeMemory();
  ++*last;
  say("memory %d, stream %s", *last,
      stream == NULL || ftrylockfile(stream) == 0 ? "free" : "locked");
}

static int cancelBlocked(void (*call)(void)) {
  /* A thread of the program: what it inherits is this thread's. */
  pthread_sigmask(SIG_BLOCK, &one, NULL);
  makeThings();
  closeMemory();
  pthread_t thread;
  check(pthread_create(&thread, NULL, &blockingThread, (void*)(uintptr_t)call) == 0,
        "pthread_create");
  while (blockedThread == 0 || (turns < 3 && !isAsleep(blockedThread))) usleep(1000);
  check(pthread_cancel(thread) == 0, "pthread_cancel");
  join(thread);
  sayMemory();
  return 0;
}

/* ---- Calls that are no cancellation points, in a thread that is to be cancelled */

/* The API is there where the library is. */
#define CALL(name, ...)                                                \
  do {                                                                 \
    if (!isPlain) check(API(name)(__VA_ARGS__) == adsmSuccess, #name); \
  } while (0)

static unsigned char privately[BYTES];

/* Each in a thread that has a request pending, while a kernel that runs for long has the memory. */
BLOCKING(plainRead, sink(memory[BYTES / 2]))
BLOCKING(plainWrite, memory[BYTES / 2] = 1)
BLOCKING(memcpyFrom, memcpy(privately, memory, BYTES))
BLOCKING(memcpyTo, memcpy(memory, privately, BYTES))
BLOCKING(memmoveWithin, memmove(memory + 4096, memory, BYTES / 2))
BLOCKING(memsetOf, memset(memory, 1, BYTES))
BLOCKING(strlenOf, memory[BYTES - 1] = 0; sink((long)strlen((char*)memory)))
BLOCKING(getentropyInto, check(getentropy(memory, 256) == 0, "getentropy"))
BLOCKING(arc4randomInto, arc4random_buf(memory, BYTES))
BLOCKING(processMemory, struct iovec from = {privately, BYTES}, to = {memory, BYTES};
         check(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)BYTES,
               "process_vm_readv"))
BLOCKING(forks, const pid_t child = fork(); if (child == 0) _exit(0); check(child > 0, "fork"))
BLOCKING(spawns, char* words[] = {strcpy((char*)memory, "true"), NULL}; pid_t child;
         check(posix_spawnp(&child, words[0], NULL, NULL, words, environ) == 0, "posix_spawnp"))
BLOCKING(
    allocates, if (!isPlain) {
      void* const one = API(adsmAlloc)(BYTES);
      check(one != NULL, "adsmAlloc");
      memset(one, 1, BYTES);
      void* const other = API(adsmSafeAlloc)(BYTES);
      check(other != NULL && API(adsmSafe)(other) != NULL, "adsmSafe");
      CALL(adsmFree, one);
      CALL(adsmFree, other);
    })
BLOCKING(locksAndUnlocks, struct Locks* all = locks(); pthread_mutex_lock(&all->mutex);
         pthread_mutex_unlock(&all->mutex))
BLOCKING(syncs, CALL(adsmSync))
BLOCKING(
    calls, if (!isPlain) {
      const adsmDim_t size = {1, 1, 1};
      void* args[] = {&memory};
      const adsmUse_t use = {memory, adsmReadWrite};
      const adsmKernel_t fresh = kernelOf(&addOne);
      CALL(adsmCall, fresh, size, size, 0, args);
      CALL(adsmCallUsing, quick, size, size, 0, args, &use, 1);
      CALL(adsmBind, memory, fresh, adsmReadWrite);
      CALL(adsmKernelDestroy, fresh);
    })
BLOCKING(
    packs, if (!isPlain) {
      adsmType_t type;
      adsmPackEvent_t event;
      adsmPackOptions_t options = {.size = sizeof options, .event = &event};
      CALL(adsmTypeVector, 1000, 1, 2, ADSM_TYPE_8, &type);
      CALL(adsmTypeCommit, type);
      CALL(adsmPack, privately, memory, 1, type);
      CALL(adsmUnpackWith, memory, privately, 1, type, &options);
      sink(API(adsmPackDone)(event));
      CALL(adsmPackWait, event);
      CALL(adsmTypeFree, type);
    })
BLOCKING(exits, exit(5))

static void* pendingThread(void* call) {
  pthread_cleanup_push(&cleanUp, NULL);
  check(pthread_cancel(pthread_self()) == 0, "pthread_cancel");
  ((void (*)(void))(uintptr_t)call)();
  wentOn = 1;
  for (;;) pthread_testcancel();
  pthread_cleanup_pop(0);
  return NULL;
}

static int cancelAfter(void (*call)(void)) {
  closeMemoryLate();
  pthread_t thread;
  check(pthread_create(&thread, NULL, &pendingThread, (void*)(uintptr_t)call) == 0,
        "pthread_create");
  join(thread);
  sayMemory();
  return 0;
}

/* ---- Threads that can be cancelled at any instruction */

BLOCKING(
    anywhereAccesses, FOR_EVER {
      for (size_t at = 0; at < BYTES; at += 4096) ++*(volatile unsigned char*)(memory + at);
    })
BLOCKING(
    anywhereCopies, FOR_EVER {
      memcpy(memory, privately, BYTES);
      memcpy(privately, memory, BYTES);
    })
BLOCKING(anywhereSets, FOR_EVER memset(memory, 1, BYTES))
BLOCKING(anywhereWaits, ++turns; ++*memory; for (;;))

static void* anywhereThread(void* call) {
  int before;
  pthread_cleanup_push(&cleanUp, NULL);
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
  ((void (*)(void))(uintptr_t)call)();
  pthread_cleanup_pop(0);
  return NULL;
}

/* Threads come and go while kernels close the memory under them. */
static int cancelAnywhere(void (*call)(void)) {
  const int waits = call == &do_anywhereWaits;
  for (int round = 0; round < 20; ++round) {
    cleaned = 0;
    turns = 0;
    if (waits) closeMemoryLate();
    pthread_t thread;
    check(pthread_create(&thread, NULL, &anywhereThread, (void*)(uintptr_t)call) == 0,
          "pthread_create");
    while (turns < 1) usleep(100);
    for (int call = 0; !waits && call < round % 4; ++call) closeMemory();
    usleep((useconds_t)(round * 37 % 20) * 100);
    check(pthread_cancel(thread) == 0, "pthread_cancel");
    join(thread);
  }
  sayMemory();
  return 0;
}

/* ---- All of them */

struct Scenario {
  const char* name;
  void (*call)(void);
  int (*run)(void (*call)(void));
};

static const struct Scenario kScenarios[] = {
#define SCENARIO(name) \
  { #name, &do_##name, &cancelBlocked }
#define AFTER(name) \
  { #name, &do_##name, &cancelAfter }
#define ANYWHERE(name) \
  { #name, &do_##name, &cancelAnywhere }
    /* pipes */
    SCENARIO(read),
    SCENARIO(readv),
    SCENARIO(preadv2),
    SCENARIO(write),
    SCENARIO(writev),
    SCENARIO(pwritev2),
    /* sockets */
    SCENARIO(recv),
    SCENARIO(recvfrom),
    SCENARIO(recvmsg),
    SCENARIO(recvmmsg),
    SCENARIO(send),
    SCENARIO(sendto),
    SCENARIO(sendmsg),
    SCENARIO(sendmmsg),
    /* streams */
    SCENARIO(fread),
    SCENARIO(fread_unlocked),
    SCENARIO(fwrite),
    SCENARIO(fwrite_unlocked),
    SCENARIO(fputs),
    SCENARIO(fputs_unlocked),
    SCENARIO(puts),
    SCENARIO(fgets),
    SCENARIO(getline),
    SCENARIO(freadOfFile),
    SCENARIO(fwriteOfFile),
    /* files */
    SCENARIO(pread),
    SCENARIO(pwrite),
    SCENARIO(preadv),
    SCENARIO(pwritev),
    SCENARIO(readOfFile),
    SCENARIO(writeOfFile),
    SCENARIO(readOfNoFile),
    SCENARIO(splice),
    SCENARIO(copy_file_range),
    /* others */
    SCENARIO(system),
    SCENARIO(getrandom),
    /* locks */
    SCENARIO(condWait),
    SCENARIO(condTimedwait),
    SCENARIO(semWait),
    SCENARIO(semTimedwait),
    /* signals */
    SCENARIO(sigsuspend),
    SCENARIO(sigpause),
    SCENARIO(sigwait),
    SCENARIO(sigwaitinfo),
    SCENARIO(sigtimedwait),
    SCENARIO(ppoll),
    SCENARIO(pselect),
    SCENARIO(epoll_pwait),
    SCENARIO(epoll_pwait2),
    AFTER(plainRead),
    AFTER(plainWrite),
    AFTER(memcpyFrom),
    AFTER(memcpyTo),
    AFTER(memmoveWithin),
    AFTER(memsetOf),
    AFTER(strlenOf),
    AFTER(getentropyInto),
    AFTER(arc4randomInto),
    AFTER(processMemory),
    AFTER(forks),
    AFTER(spawns),
    AFTER(allocates),
    AFTER(syncs),
    AFTER(locksAndUnlocks),
    AFTER(calls),
    AFTER(packs),
    AFTER(exits),
    ANYWHERE(anywhereAccesses),
    ANYWHERE(anywhereCopies),
    ANYWHERE(anywhereSets),
    ANYWHERE(anywhereWaits),
};

int main(int argc, char** argv) {
  for (size_t i = 0; i < sizeof kScenarios / sizeof *kScenarios; ++i) {
    if (argc == 1) puts(kScenarios[i].name);
    if (argc != 3 || strcmp(argv[1], kScenarios[i].name) != 0) continue;
    alarm(60); /* which ends a program that hangs */
    sigemptyset(&none);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    allocateMemory(argv[2]);
    return kScenarios[i].run(kScenarios[i].call);
  }
  return argc == 1 ? 0 : 97;
}
