// SPDX-License-Identifier: Apache-2.0
//
// Limits of an address space, and what a program may do to memory that is shared.
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "attack/subject.h"

namespace attack {
namespace {

std::size_t mappingLimit() {
  std::size_t limit = 65530;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  return limit;
}

// The program's own wants are met.
void requireRoomForOthers() {
  for (int i = 0; i < 200; ++i) {
    void* const mine = ::mmap(nullptr, 4096, i % 2 == 0 ? PROT_READ : PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(mine != MAP_FAILED, "the program's own mmap number {}: {} ({} mappings)", i,
            std::strerror(errno), countMappings());
    require(std::malloc((std::size_t{1} << 20) + static_cast<std::size_t>(i) * 4096) != nullptr,
            "the program's own malloc number {}", i);
  }
  for (int i = 0; i < 16; ++i) {
    pthread_t thread;
    require(::pthread_create(
                &thread, nullptr, [](void* given) { return given; }, nullptr) == 0,
            "the program's own thread number {}", i);
    ::pthread_join(thread, nullptr);
  }
}

const Registration kScarce({
    {"memory/mappings stay for the program",
     [] {
       ::setenv("GMAC_BLOCK_SIZE", "4K", 1);
       constexpr std::size_t kBytes = std::size_t{1} << 30;
       auto* const bytes = reinterpret_cast<char*>(allocate(kBytes / 4));
       add(reinterpret_cast<std::uint32_t*>(bytes), 4, 1);
       sync();
       const std::size_t limit = mappingLimit();
       for (std::size_t i = 4096; i < kBytes && countMappings() + 16 < limit;) {
         for (int next = 0; next < 1024 && i < kBytes; ++next, i += 8192) bytes[i] = 1;
       }
       requireRoomForOthers();
       for (std::size_t i = 4096; i < kBytes; i += 8192) bytes[i] = 2;
       requireRoomForOthers();
     },
     120},
    {"memory/more objects than there are mappings",
     [] {
       constexpr std::size_t kBytes = 40000;
       std::vector<char*> objects;
       for (int i = 0; i < 40000; ++i) {
         auto* const object = static_cast<char*>(adsmAlloc(kBytes));
         if (object == nullptr) {
           require(*adsmLastErrorString() != '\0', "adsmAlloc failed without a text");
           break;
         }
         object[0] = static_cast<char>(i);
         object[kBytes - 1] = static_cast<char>(i);
         objects.push_back(object);
       }
       requireRoomForOthers();
       require(runKernel("nothing", [](const adsmThreadBlock_t*, void**) {}) == adsmSuccess,
               "a call beside {} objects: {}", objects.size(), adsmLastErrorString());
       for (std::size_t i = 0; i < objects.size(); ++i) {
         require(objects[i][kBytes - 1] == static_cast<char>(i), "object {} has changed", i);
       }
       for (char* object : objects) check(adsmFree(object), "adsmFree");
       work();
     },
     180},
});

// ---- Each byte is where the program expects it

constexpr std::size_t kWords = std::size_t{2} << 20;

// A system call that no library stands in for reads what is held readable: here through the
// kernel's own, after the C library's has brought the bytes.
void writesToPipes(const char* protocol, const char* mirror, const char* block) {
  ::setenv("GMAC_PROTOCOL", protocol, 1);
  if (*mirror != '\0') ::setenv("GMAC_TEST_MIRROR", mirror, 1);
  ::setenv("GMAC_BLOCK_SIZE", block, 1);
  int ends[2];
  require(::pipe(ends) == 0, "pipe");
  for (const std::size_t megabytes : {4, 8}) {
    const std::size_t bytes = megabytes << 20;
    auto* const object = static_cast<char*>(adsmAlloc(bytes));
    require(object != nullptr, "adsmAlloc: {}", adsmLastErrorString());
    object[0] = 1;
    for (std::size_t at = 4096; at + 4096 < bytes; at += 999983) {
      char seen[100];
      const ssize_t written = ::write(ends[1], object + at, sizeof seen);
      require(written == sizeof seen, "write of byte {}: {}", at, std::strerror(errno));
      require(::read(ends[0], seen, sizeof seen) == sizeof seen, "read");
      require(std::memcmp(seen, object + at, sizeof seen) == 0, "byte {} went wrong", at);
    }
    check(adsmFree(object), "adsmFree");
  }
}

std::vector<Attack> writes() {
  std::vector<Attack> attacks;
  for (const char* protocol : {"batch", "lazy", "rolling"}) {
    for (const char* block : {"4K", "64K", "2M", "64M"}) {
      attacks.push_back({fmt::format("memory/writes of untouched memory, {}, {}", protocol, block),
                         [protocol, block] { writesToPipes(protocol, "", block); }});
    }
  }
  return attacks;
}
const Registration kWrites(writes());

const Registration kOwnCalls({
    {"memory/mprotect of an object",
     [] {
       // Writes after the program's own mprotect reach the accelerator, or it is told.
       std::uint32_t* const words = allocate(kWords);
       std::memset(words, 0, kWords * 4);
       add(words, kWords, 1);
       sync();
       if (::mprotect(words, kWords * 4, PROT_READ | PROT_WRITE) != 0) return;  // told
       for (std::size_t i = 0; i < kWords; i += 1024) words[i] = 5;
       add(words, kWords, 1);
       sync();
       for (std::size_t i = 0; i < kWords; i += 1024) {
         require(words[i] == 6, "word {} is {}, not 6: a write was lost", i, words[i]);
       }
     },
     20, Ending::kOrWithMessage},
    {"memory/a core has each object once",
     [] {
       std::uint32_t* const words = allocate(kWords);
       std::memset(words, 1, kWords * 4);
       // Of the mappings that are as large as the object, those that a core would have.
       std::ifstream maps("/proc/self/smaps");
       std::size_t dumped = 0;
       bool isFile = false;
       for (std::string line; std::getline(maps, line);) {
         if (line.find('-') < line.find(' ') && line.find(':') > line.find('-')) {
           isFile = line.find("memfd:") != std::string::npos ||
                    line.find("/dev/shm") != std::string::npos;
         }
         if (line.starts_with("VmFlags:") && isFile && line.find(" dd") == std::string::npos) {
           ++dumped;
         }
       }
       require(dumped <= 1, "a core would have {} views of the memory file", dumped);
     }},
});

// ---- Things of the C library's inside an object

struct Things {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  pthread_rwlock_t lock;
  sem_t semaphore;
  long count;
  std::uint32_t data[1 << 18];
};

Things* things = nullptr;

const struct {
  const char* name;
  void (*once)();
} kThings[] = {
    {"mutex",
     [] {
       ::pthread_mutex_lock(&things->mutex);
       ++things->count;
       pause(0.00005);
       ::pthread_mutex_unlock(&things->mutex);
     }},
    {"semaphore",
     [] {
       ::sem_wait(&things->semaphore);
       ++things->count;
       pause(0.00005);
       ::sem_post(&things->semaphore);
     }},
    {"condition",
     [] {
       ::pthread_mutex_lock(&things->mutex);
       timespec limit = {};
       ::clock_gettime(CLOCK_REALTIME, &limit);
       limit.tv_nsec += 2000000;
       if (limit.tv_nsec >= 1000000000) {
         ++limit.tv_sec;
         limit.tv_nsec -= 1000000000;
       }
       ::pthread_cond_timedwait(&things->condition, &things->mutex, &limit);
       ++things->count;
       ::pthread_cond_broadcast(&things->condition);
       ::pthread_mutex_unlock(&things->mutex);
     }},
    {"rwlock",
     [] {
       ::pthread_rwlock_wrlock(&things->lock);
       ++things->count;
       pause(0.00005);
       ::pthread_rwlock_unlock(&things->lock);
     }},
};

void contend(void (*once)()) {
  things = reinterpret_cast<Things*>(allocate(sizeof(Things) / 4 + 1));
  std::memset(static_cast<void*>(things), 0, sizeof *things);
  ::pthread_mutex_init(&things->mutex, nullptr);
  ::pthread_cond_init(&things->condition, nullptr);
  ::pthread_rwlock_init(&things->lock, nullptr);
  ::sem_init(&things->semaphore, 0, 1);
  std::atomic<bool> stop{false};
  std::atomic<long> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        once();
        ++done;
      }
    });
  }
  std::uint32_t calls = 0;
  for (const double end = now() + 3; now() < end; ++calls) {
    add(things->data, 1000, 1);
    sync();
    pause(0.0003);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  require(things->data[5] == calls, "the kernels' word is {}, not {}", things->data[5], calls);
  require(things->count == done, "{} entered, and {} are counted", done.load(), things->count);
}

std::vector<Attack> contentions() {
  std::vector<Attack> attacks;
  for (const auto& thing : kThings) {
    attacks.push_back({fmt::format("memory/a {} inside an object", thing.name),
                       [&thing] { contend(thing.once); }, 30});
  }
  return attacks;
}
const Registration kContentions(contentions());

}  // namespace
}  // namespace attack
