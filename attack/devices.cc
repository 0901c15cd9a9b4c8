// SPDX-License-Identifier: Apache-2.0
//
// Calls on several devices while the process forks, is cancelled, gets signals, loses a device or a
// descriptor, or comes to its limits.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "attack/subject.h"

namespace attack {
namespace {

constexpr int kDevices = 4;
constexpr std::size_t kWords = std::size_t{1} << 18;  // 1 MiB
constexpr adsmDim_t kOne = {1, 1, 1};

void start() {
  ::setenv("GMAC_ACCEL", "host:4", 1);
  ::setenv("GMAC_HOST_THREADS", "4", 1);
  int count = 0;
  check(adsmDeviceCount(&count), "adsmDeviceCount");
  require(count == kDevices, "there are {} devices", count);
}

void addBlock(const adsmThreadBlock_t*, void** args) {
  auto* const words = *static_cast<std::uint32_t**>(args[0]);
  const std::size_t count = *static_cast<std::size_t*>(args[1]);
  for (std::size_t i = 0; i < count; ++i) ++words[i];
}

adsmKernel_t kernel() {
  static const adsmKernel_t kMade = [] {
    const std::size_t sizes[] = {sizeof(void*), sizeof(std::size_t)};
    adsmKernelDesc_t desc = {};
    desc.name = "addOne";
    desc.paramCount = 2;
    desc.paramSizes = sizes;
    desc.host = &addBlock;
    adsmKernel_t made = nullptr;
    check(adsmKernelCreate(&desc, &made), "adsmKernelCreate");
    return made;
  }();
  return kMade;
}

adsmError_t tryAddOn(int device, std::uint32_t* words, std::size_t count) {
  void* args[] = {&words, &count};
  const adsmUse_t use = {words, adsmReadWrite};
  return adsmCallOn(device, kernel(), kOne, kOne, 0, args, &use, 1);
}

// One thread's object, which goes from device to device; what it must have is known.
struct Traveller {
  std::uint32_t* words = nullptr;
  std::uint32_t expected[2] = {};  // of each half
  unsigned step = 0;

  void make() {
    words = allocate(kWords);
    std::memset(words, 0, kWords * sizeof *words);
  }
  adsmError_t tryStep() {
    const int device = static_cast<int>(step % kDevices);
    adsmError_t error = adsmSuccess;
    switch (step++ % 3) {
      case 0:
        error = adsmMigrate(words, kWords * sizeof *words, device);
        break;
      case 1:
        error = tryAddOn(device, words, kWords);
        for (std::uint32_t& half : expected) half += error == adsmSuccess ? 1 : 0;
        break;
      case 2: {
        const adsmRangeUse_t half = {words, kWords / 2 * sizeof *words, adsmReadWrite};
        std::uint32_t* begin = words;
        std::size_t count = kWords / 2;
        void* args[] = {&begin, &count};
        error = adsmCallRanges(device, kernel(), kOne, kOne, 0, args, &half, 1);
        if (error != adsmSuccess) break;
        ++expected[0];
        error = tryAddOn(device, words + kWords / 2, kWords / 2);
        expected[1] += error == adsmSuccess ? 1 : 0;
        break;
      }
    }
    return error;
  }
  void stepOn() { check(tryStep(), "a step"); }
  void verify() const {
    for (const std::size_t i : {std::size_t{0}, kWords / 2 - 1, kWords / 2, kWords - 1}) {
      const std::uint32_t wanted = expected[i / (kWords / 2)];
      require(words[i] == wanted, "word {} is {}, not {}", i, words[i], wanted);
    }
  }
};

// Threads whose objects travel while `meanwhile` runs, which may take a device away.
void travel(const std::function<void()>& meanwhile, bool mayLose = false) {
  std::atomic<bool> ends{false};
  std::vector<std::thread> all;
  for (int thread = 0; thread < kDevices; ++thread) {
    all.emplace_back([&, thread] {
      Traveller traveller;
      traveller.step = static_cast<unsigned>(thread);
      traveller.make();
      while (!ends) {
        const adsmError_t error = traveller.tryStep();
        if (mayLose && error == adsmErrorAcceleratorLost) {
          require(*adsmLastErrorString() != '\0', "a step failed without a text");
          return;
        }
        check(error, "a step");
        if (traveller.step % 5 == 0) traveller.verify();
      }
      traveller.verify();
      check(adsmFree(traveller.words), "adsmFree");
    });
  }
  meanwhile();
  ends = true;
  for (std::thread& thread : all) thread.join();
  if (!mayLose) sync();
}

const Registration kCalls({
    {"devices/calls while children are forked",
     [] {
       start();
       travel([] {
         for (int i = 0; i < 40; ++i) {
           const pid_t child = ::fork();
           if (child == 0) ::_exit(7);
           int status = 0;
           require(::waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7,
                   "the child ended with {}", status);
         }
       });
     },
     60},
    {"devices/calls in a storm of signals",
     [] {
       start();
       static std::atomic<int> caught{0};
       struct sigaction action = {};
       action.sa_handler = [](int) { ++caught; };
       ::sigaction(SIGUSR1, &action, nullptr);  // without SA_RESTART
       travel([] {
         const double end = now() + 3;
         while (now() < end) {
           ::kill(::getpid(), SIGUSR1);
           pause(0.0002);
         }
       });
       require(caught > 0, "no signal was caught");
     },
     60},
    {"devices/threads cancelled in calls",
     [] {
       start();
       travel([] {
         for (int i = 0; i < 60; ++i) {
           pthread_t thread;
           pthread_create(
               &thread, nullptr,
               [](void*) -> void* {
                 Traveller traveller;
                 traveller.make();
                 for (;;) {
                   traveller.stepOn();
                   ::pthread_testcancel();
                 }
               },
               nullptr);
           pause(0.002 * (i % 10));
           ::pthread_cancel(thread);
           void* result = nullptr;
           require(::pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED,
                   "the thread was not cancelled");
         }
       });
     },
     60},
    {"devices/calls while others' descriptors are closed",
     [] {
       start();
       travel([] {
         for (int i = 0; i < 200; ++i) {
           const int files[] = {::open("/dev/null", O_RDWR), ::open("/dev/zero", O_RDONLY)};
           pause(0.002);
           for (const int file : files) ::close(file);
         }
       });
     },
     60},
    {"devices/a program that has no descriptor left",
     [] {
       start();
       travel([] {
         std::vector<int> files;
         for (int file = 0; (file = ::open("/dev/null", O_RDWR)) >= 0;) files.push_back(file);
         require(errno == EMFILE, "open: {}", std::strerror(errno));
         pause(1);
         for (const int file : files) ::close(file);
       });
     },
     60},
});

// One of four devices ends. What did not lie there is right, or an error says that it is lost.
void killOne(std::size_t which) {
  start();
  std::vector<Traveller> travellers(kDevices);
  for (Traveller& traveller : travellers) {
    traveller.make();
    check(tryAddOn(static_cast<int>(&traveller - travellers.data()), traveller.words, kWords),
          "adsmCallOn");
  }
  sync();
  const std::vector<pid_t> devices = deviceProcesses();
  require(devices.size() == kDevices, "there are {} device processes", devices.size());
  require(::kill(devices[which], SIGKILL) == 0, "kill: {}", std::strerror(errno));
  require(waitUntil([] { return deviceProcesses().size() < kDevices; }, 5), "it does not end");
  int wrong = 0;
  for (int device = 0; device < kDevices; ++device) {
    Traveller& traveller = travellers[static_cast<std::size_t>(device)];
    adsmError_t error = tryAddOn(device, traveller.words, kWords);
    if (error == adsmSuccess) error = adsmSync();
    wrong += error != adsmSuccess ? 1 : 0;
    if (error != adsmSuccess) {
      require(*adsmLastErrorString() != '\0', "a call on device {} failed without a text", device);
      require(error == adsmErrorAcceleratorLost || error == adsmErrorKernel, "device {}: {}: {}",
              device, adsmErrorName(error), adsmLastErrorString());
    }
  }
  require(wrong > 0, "no call noticed");
}
std::vector<Attack> losses() {
  std::vector<Attack> attacks;
  for (std::size_t which = 0; which < kDevices; ++which) {
    attacks.push_back({fmt::format("devices/one of four is killed: {}", which),
                       [which] { killOne(which); }, 30, Ending::kOrWithMessage});
  }
  attacks.push_back({"devices/one of four is killed under calls",
                     [] {
                       start();
                       travel(
                           [] {
                             pause(0.3);
                             const std::vector<pid_t> devices = deviceProcesses();
                             require(!devices.empty(), "there is no device process");
                             ::kill(devices.back(), SIGKILL);
                             pause(2);
                           },
                           /*mayLose=*/true);
                     },
                     30, Ending::kOrWithMessage});
  attacks.push_back({"devices/each is stopped for a while",
                     [] {
                       start();
                       travel([] {
                         pause(0.2);
                         for (const pid_t device : deviceProcesses()) {
                           ::kill(device, SIGSTOP);
                           pause(0.2);
                           ::kill(device, SIGCONT);
                         }
                       });
                     },
                     60});
  return attacks;
}
const Registration kLosses(losses());

// ---- Limits

// Steps of all kinds under a limit: each works, or fails with a text and leaves the bytes.
void underLimit(const std::function<void()>& limit) {
  start();
  Traveller traveller;
  traveller.make();
  for (int i = 0; i < 12; ++i) traveller.stepOn();
  traveller.verify();
  limit();
  std::vector<void*> more;
  for (int i = 0; i < 200; ++i) {
    const adsmError_t error = traveller.tryStep();
    if (error != adsmSuccess) {
      require(*adsmLastErrorString() != '\0', "{} without a text", adsmErrorName(error));
    }
    const int devices[] = {0, 1, 2, 3};
    void* const object = i % 2 == 0 ? adsmAllocStriped(std::size_t{8} << 20, kDevices, devices)
                                    : adsmAlloc(std::size_t{8} << 20);
    if (object == nullptr) {
      require(*adsmLastErrorString() != '\0', "an allocation failed without a text");
    } else {
      static_cast<std::uint32_t*>(object)[5] = 5;
      more.push_back(object);
    }
    if (more.size() > 8) {
      check(adsmFree(more.front()), "adsmFree");
      more.erase(more.begin());
    }
  }
  traveller.verify();
  for (void* const object : more) {
    require(static_cast<std::uint32_t*>(object)[5] == 5, "an object's word is gone");
    check(adsmFree(object), "adsmFree");
  }
}

const Registration kLimits({
    {"devices/RLIMIT_AS a little above what is used",
     [] {
       underLimit([] {
         std::size_t pages = 0;
         std::FILE* const file = std::fopen("/proc/self/statm", "r");
         require(file != nullptr && std::fscanf(file, "%zu", &pages) == 1, "statm");
         std::fclose(file);
         const rlim_t bytes = pages * 4096 + (std::size_t{20} << 20);
         const rlimit limit = {bytes, bytes};
         ::setrlimit(RLIMIT_AS, &limit);
       });
     },
     60, Ending::kOrWithMessage},
    {"devices/RLIMIT_NOFILE as many as are open",
     [] {
       underLimit([] {
         const rlimit limit = {countDescriptors() + 1, countDescriptors() + 1};
         ::setrlimit(RLIMIT_NOFILE, &limit);
       });
     },
     60},
    {"devices/almost no mapping left",
     [] {
       underLimit([] {
         for (;;) {
           void* const page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
           if (page == MAP_FAILED) break;
           void* const hole = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
           if (hole == MAP_FAILED) break;
         }
       });
     },
     60, Ending::kOrWithMessage},
    {"devices/more than the devices have",
     [] {
       ::setenv("GMAC_HOST_MEMORY", "128M", 1);
       start();
       constexpr std::size_t kMany = 40;
       std::vector<Traveller> travellers(kMany);
       for (Traveller& traveller : travellers) traveller.make();
       for (int round = 0; round < 6; ++round) {
         for (Traveller& traveller : travellers) {
           const adsmError_t error = traveller.tryStep();
           require(error == adsmSuccess || error == adsmErrorAcceleratorMemory, "a step: {}: {}",
                   adsmErrorName(error), adsmLastErrorString());
         }
       }
       std::vector<void*> large;
       for (int i = 0; i < 200; ++i) {
         void* const object = adsmAlloc(std::size_t{8} << 20);
         if (object == nullptr) {
           require(*adsmLastErrorString() != '\0', "adsmAlloc failed without a text");
           break;
         }
         static_cast<std::uint32_t*>(object)[7] = 7;
         large.push_back(object);
       }
       for (const Traveller& traveller : travellers) traveller.verify();
       for (void* const object : large) {
         require(static_cast<std::uint32_t*>(object)[7] == 7, "an object's word is gone");
         check(adsmFree(object), "adsmFree");
       }
     },
     60},
});

}  // namespace
}  // namespace attack
