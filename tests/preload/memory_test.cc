// SPDX-License-Identifier: Apache-2.0
//
// The memcpy family on shared memory, in programs that are not linked with the library, as this
// one. Its tests run again in processes that preload it, and compare with the same calls on plain
// memory: the value returned, errno, and every byte on both sides must be equal. Random programs
// print their seed; GMAC_TEST_SEED and GMAC_TEST_STEPS as elsewhere.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"
#include "tests/support/child.h"
#include "tests/support/seed.h"

// Functions that no header declares, or only for fortified programs.
extern "C" {
void* __memcpy_chk(void*, const void*, std::size_t, std::size_t);
void* __memmove_chk(void*, const void*, std::size_t, std::size_t);
void* __mempcpy_chk(void*, const void*, std::size_t, std::size_t);
void* __memset_chk(void*, int, std::size_t, std::size_t);
void __explicit_bzero_chk(void*, std::size_t, std::size_t);
wchar_t* __wmemcpy_chk(wchar_t*, const wchar_t*, std::size_t, std::size_t);
wchar_t* __wmemmove_chk(wchar_t*, const wchar_t*, std::size_t, std::size_t);
wchar_t* __wmempcpy_chk(wchar_t*, const wchar_t*, std::size_t, std::size_t);
wchar_t* __wmemset_chk(wchar_t*, wchar_t, std::size_t, std::size_t);
}

namespace gmac::testing {
namespace {

using Byte = unsigned char;
using Bytes = std::vector<Byte>;
using Environment = std::map<std::string, std::string>;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kWide = sizeof(wchar_t);

// The library, beside which these tests run.
constexpr const char* kLibrary = "gmac/libgmac.so";

// ---- The API, as a preloaded process has it

template <typename Function>
Function api(const char* name) {
  void* const found = ::dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s is not preloaded\n", name);
    std::abort();
  }
  return reinterpret_cast<Function>(found);
}

void must(adsmError_t error) {
  if (error != adsmSuccess) {
    std::fprintf(stderr, "%s\n", api<decltype(&adsmLastErrorString)>("adsmLastErrorString")());
    std::abort();
  }
}

Byte* allocate(std::size_t bytes) {
  void* const made = api<decltype(&adsmAlloc)>("adsmAlloc")(bytes);
  must(made == nullptr ? adsmErrorSystem : adsmSuccess);
  return static_cast<Byte*>(made);
}

void sync() { must(api<decltype(&adsmSync)>("adsmSync")()); }

// bytes[i] = bytes[i] * 3 + key + i: wrong where the kernel saw other bytes than the CPU left.
void change(Byte* bytes, std::size_t count, unsigned key) {
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<Byte>(bytes[i] * 3 + key + i);
  }
}

template <typename T>
T argument(void** args, int index) {
  return *static_cast<T*>(args[index]);
}

class Kernel {
 public:
  Kernel() {
    static const std::size_t sizes[] = {sizeof(Byte*), sizeof(std::size_t), sizeof(unsigned)};
    adsmKernelDesc_t desc{};
    desc.name = "change";
    desc.paramCount = 3;
    desc.paramSizes = sizes;
    desc.host = [](const adsmThreadBlock_t*, void** args) {
      gmac::testing::change(argument<Byte*>(args, 0), argument<std::size_t>(args, 1),
                            argument<unsigned>(args, 2));
    };
    must(api<decltype(&adsmKernelCreate)>("adsmKernelCreate")(&desc, &kernel_));
  }
  // A call that uses everything, or only what it changes.
  void change(Byte* object, std::size_t count, unsigned key, bool usesAll) const {
    void* args[] = {&object, &count, &key};
    const adsmUse_t use{object, adsmReadWrite};
    must(usesAll ? api<decltype(&adsmCall)>("adsmCall")(kernel_, {1, 1, 1}, {1, 1, 1}, 0, args)
                 : api<decltype(&adsmCallUsing)>("adsmCallUsing")(kernel_, {1, 1, 1}, {1, 1, 1}, 0,
                                                                  args, &use, 1));
  }
  // A call that only reads the object.
  void look(Byte* object) const {
    std::size_t none = 0;
    unsigned key = 0;
    void* args[] = {&object, &none, &key};
    const adsmUse_t use{object, adsmRead};
    must(api<decltype(&adsmCallUsing)>("adsmCallUsing")(kernel_, {1, 1, 1}, {1, 1, 1}, 0, args,
                                                        &use, 1));
  }

 private:
  adsmKernel_t kernel_;
};

// ---- The functions

// One call of the family. What it returns, as a distance from `to`, or -1 for void; `there` is what
// a fortified program would say of the target. Called through a table, so that no compiler puts
// something else in place.
using Call = std::ptrdiff_t (*)(Byte* to, const Byte* from, int value, std::size_t bytes,
                                std::size_t there);

std::ptrdiff_t distance(const void* result, const Byte* to) {
  return static_cast<const Byte*>(result) - to;
}
wchar_t* wide(Byte* p) { return reinterpret_cast<wchar_t*>(p); }
const wchar_t* wide(const Byte* p) { return reinterpret_cast<const wchar_t*>(p); }

struct Function {
  const char* name;
  bool copies;
  bool mayOverlap;
  std::size_t width;  // addresses and lengths are multiples of this
  bool checks;        // `there`
  Call call;
};

const Function kFunctions[] = {
    {"memcpy", true, false, 1, false,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t) {
       return distance(::memcpy(t, f, n), t);
     }},
    {"memmove", true, true, 1, false,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t) {
       return distance(::memmove(t, f, n), t);
     }},
    {"mempcpy", true, false, 1, false,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t) {
       return distance(::mempcpy(t, f, n), t);
     }},
    {"__mempcpy", true, false, 1, false,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t) {
       return distance(::__mempcpy(t, f, n), t);
     }},
    {"bcopy", true, true, 1, false,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t) {
       ::bcopy(f, t, n);
       return std::ptrdiff_t{-1};
     }},
    {"memset", false, false, 1, false,
     [](Byte* t, const Byte*, int v, std::size_t n, std::size_t) {
       return distance(::memset(t, v, n), t);
     }},
    {"bzero", false, false, 1, false,
     [](Byte* t, const Byte*, int, std::size_t n, std::size_t) {
       ::bzero(t, n);
       return std::ptrdiff_t{-1};
     }},
    {"explicit_bzero", false, false, 1, false,
     [](Byte* t, const Byte*, int, std::size_t n, std::size_t) {
       ::explicit_bzero(t, n);
       return std::ptrdiff_t{-1};
     }},
    {"wmemcpy", true, false, kWide, false,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t) {
       return distance(::wmemcpy(wide(t), wide(f), n / kWide), t);
     }},
    {"wmemmove", true, true, kWide, false,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t) {
       return distance(::wmemmove(wide(t), wide(f), n / kWide), t);
     }},
    {"wmempcpy", true, false, kWide, false,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t) {
       return distance(::wmempcpy(wide(t), wide(f), n / kWide), t);
     }},
    {"wmemset, any character", false, false, kWide, false,
     [](Byte* t, const Byte*, int v, std::size_t n, std::size_t) {
       return distance(::wmemset(wide(t), v, n / kWide), t);
     }},
    {"wmemset, equal bytes", false, false, kWide, false,
     [](Byte* t, const Byte*, int v, std::size_t n, std::size_t) {
       return distance(
           ::wmemset(wide(t), static_cast<wchar_t>((v & 0xffU) * 0x01010101U), n / kWide), t);
     }},
    {"__memcpy_chk", true, false, 1, true,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t there) {
       return distance(::__memcpy_chk(t, f, n, there), t);
     }},
    {"__memmove_chk", true, true, 1, true,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t there) {
       return distance(::__memmove_chk(t, f, n, there), t);
     }},
    {"__mempcpy_chk", true, false, 1, true,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t there) {
       return distance(::__mempcpy_chk(t, f, n, there), t);
     }},
    {"__memset_chk", false, false, 1, true,
     [](Byte* t, const Byte*, int v, std::size_t n, std::size_t there) {
       return distance(::__memset_chk(t, v, n, there), t);
     }},
    {"__explicit_bzero_chk", false, false, 1, true,
     [](Byte* t, const Byte*, int, std::size_t n, std::size_t there) {
       ::__explicit_bzero_chk(t, n, there);
       return std::ptrdiff_t{-1};
     }},
    {"__wmemcpy_chk", true, false, kWide, true,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t there) {
       return distance(::__wmemcpy_chk(wide(t), wide(f), n / kWide, there / kWide), t);
     }},
    {"__wmemmove_chk", true, true, kWide, true,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t there) {
       return distance(::__wmemmove_chk(wide(t), wide(f), n / kWide, there / kWide), t);
     }},
    {"__wmempcpy_chk", true, false, kWide, true,
     [](Byte* t, const Byte* f, int, std::size_t n, std::size_t there) {
       return distance(::__wmempcpy_chk(wide(t), wide(f), n / kWide, there / kWide), t);
     }},
    {"__wmemset_chk", false, false, kWide, true,
     [](Byte* t, const Byte*, int v, std::size_t n, std::size_t there) {
       return distance(::__wmemset_chk(wide(t), v, n / kWide, there / kWide), t);
     }},
};

// ---- In a preloaded process (run by the tests below)

// Objects and plain memory, each beside plain memory with the bytes that it must have.
class RandomMemory {
 public:
  explicit RandomMemory(std::uint64_t seed) : random_(seed) {
    for (const std::size_t bytes : {300 * kKiB + 4, 3 * kMiB + 100, 40 * kKiB, 2 * kMiB}) {
      places_.push_back({allocate(bytes), Bytes(bytes), true});
    }
    plain_.resize(kMiB);
    places_.push_back({plain_.data(), Bytes(plain_.size()), false});
  }

  void run(std::uint64_t steps) {
    for (std::uint64_t step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      one();
    }
    for (Place& place : places_) {
      compare(place, 0, place.wanted.size());
      if (place.shared) {
        kernel_.change(place.bytes, place.wanted.size(), 1, true);
        change(place.wanted.data(), place.wanted.size(), 1);
      }
    }
    sync();
    for (Place& place : places_) {
      compare(place, 0, place.wanted.size());
    }
  }

 private:
  struct Place {
    Byte* bytes;
    Bytes wanted;
    bool shared;
  };
  std::size_t upTo(std::size_t most) { return random_() % (most + 1); }
  Place& any() { return places_[upTo(places_.size() - 1)]; }

  void compare(const Place& place, std::size_t at, std::size_t count) {
    for (std::size_t i = at; i < at + count; ++i) {
      if (place.bytes[i] != place.wanted[i]) {
        ADD_FAILURE() << "byte " << i << " of " << place.wanted.size() << " is "
                      << int{place.bytes[i]} << ", not " << int{place.wanted[i]};
        return;
      }
    }
  }

  void one() {
    Place& to = any();
    const std::size_t size = to.wanted.size();
    switch (upTo(11)) {
      case 0:
      case 1: {
        Place& object = places_[upTo(3)];
        const std::size_t count = upTo(object.wanted.size());
        const auto key = static_cast<unsigned>(random_());
        kernel_.change(object.bytes, count, key, upTo(1) == 0);
        change(object.wanted.data(), count, key);
        break;
      }
      case 2:
        kernel_.look(places_[upTo(3)].bytes);
        break;
      case 3:
        sync();
        break;
      case 4: {
        const std::size_t at = upTo(size - 1);
        compare(to, at, std::min<std::size_t>(upTo(70000), size - at));
        break;
      }
      case 5: {
        const std::size_t at = upTo(size - 1);
        to.bytes[at] = to.wanted[at] = static_cast<Byte>(random_());
        break;
      }
      default:
        call(to);
        break;
    }
  }

  void call(Place& to) {
    const Function& function = kFunctions[upTo(std::size(kFunctions) - 1)];
    Place& from = any();
    const std::size_t width = function.width;
    // Whole places, long ranges, and a few bytes.
    const std::size_t wish = upTo(2) == 0 ? 4 * kMiB : upTo(1) == 0 ? upTo(kMiB) : upTo(100);
    std::size_t toAt = upTo(1) == 0 ? 0 : upTo(to.wanted.size() - 1);
    std::size_t fromAt = upTo(1) == 0 ? 0 : upTo(from.wanted.size() - 1);
    toAt = toAt / width * width;
    fromAt = fromAt / width * width;
    std::size_t count = std::min(wish, to.wanted.size() - toAt);
    if (function.copies) {
      count = std::min(count, from.wanted.size() - fromAt);
      if (&to == &from && !function.mayOverlap) {
        count = std::min(count, toAt > fromAt ? toAt - fromAt : fromAt - toAt);
      }
    }
    count = count / width * width;
    const auto value = static_cast<int>(random_());
    SCOPED_TRACE(std::string(function.name) + ", " + std::to_string(count) + " bytes at " +
                 std::to_string(toAt) + " from " + std::to_string(fromAt));
    const std::size_t there = count + upTo(1) * width;
    const std::ptrdiff_t wanted =
        function.call(to.wanted.data() + toAt, from.wanted.data() + fromAt, value, count, there);
    errno = 4095;  // which no call sets
    const std::ptrdiff_t got =
        function.call(to.bytes + toAt, from.bytes + fromAt, value, count, there);
    EXPECT_EQ(errno, 4095);
    EXPECT_EQ(got, wanted);
  }

  std::mt19937_64 random_;
  Kernel kernel_;
  std::vector<Place> places_;
  Bytes plain_;
};

TEST(DISABLED_Preloaded, RandomCalls) {
  const std::uint64_t seed = newSeed();
  const std::uint64_t steps = numberFrom("GMAC_TEST_STEPS", 6000) / 10;
  std::printf("GMAC_TEST_SEED=%llu, %llu steps\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(steps));
  RandomMemory(seed).run(steps);
}

TEST(DISABLED_Preloaded, LongCallsInEveryState) {
  const std::size_t bytes = 8 * kMiB;
  Byte* const a = allocate(bytes);
  Byte* const b = allocate(bytes);
  const Kernel kernel;
  const Bytes plain(bytes, Byte{7});
  Bytes back(bytes);
  ::memcpy(a, plain.data(), bytes);
  kernel.change(a, bytes, 1, true);
  ::memmove(b, a, bytes);  // after the kernel
  ::memset(a, 5, bytes);
  sync();
  ::memcpy(a, b, bytes);
  ::memcpy(back.data(), a, bytes);
  Bytes wanted = plain;
  change(wanted.data(), bytes, 1);
  EXPECT_TRUE(back == wanted);
}

TEST(DISABLED_Preloaded, ThreadsOnPartsOfOneObject) {
  constexpr std::size_t kThreads = 4;
  const std::size_t part = kMiB + 4 * kKiB + 12;  // no block is one thread's
  Byte* const a = allocate(kThreads * part);
  Byte* const b = allocate(kThreads * part);
  const Kernel kernel;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Byte* const mine = a + i * part;
      Byte* const copy = b + i * part;
      for (unsigned round = 0; round < 15; ++round) {
        const auto value = static_cast<Byte>(16 * i + round + 1);
        ::memset(mine, value, part);
        if (round % 4 == i) {
          kernel.look(a);
        }
        ::memcpy(copy, mine, part);
        if (round % 4 == 3) {
          kernel.look(b);
          sync();
        }
        Bytes seen(part);
        ::memcpy(seen.data(), copy, part);
        if (std::any_of(seen.begin(), seen.end(), [&](Byte one) { return one != value; })) {
          ADD_FAILURE() << "thread " << i << ", round " << round;
          return;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Copies something too long for `there`; the number of the function is in the environment.
TEST(DISABLED_Preloaded, Overflow) {
  const Function& function = kFunctions[numberFrom("MEMORY_TEST_FUNCTION", 0)];
  Byte* const to = allocate(kMiB);
  const Bytes from(kMiB);
  (void)function.call(to, from.data(), 1, 512 * kKiB, 256 * kKiB);
}

// ---- The tests

ChildEnd preloaded(const std::string& name, Environment environment) {
  environment["LD_PRELOAD"] = kLibrary;
  environment["GMAC_ACCEL"] = "host";
  return runChild("DISABLED_Preloaded." + name, environment);
}

// Machines on which the runtime behaves differently.
std::vector<Environment> environments() {
  return {{{"GMAC_PROTOCOL", "batch"}},
          {{"GMAC_PROTOCOL", "lazy"}},
          {{"GMAC_PROTOCOL", "rolling"}},
          {{"GMAC_PROTOCOL", "rolling"}, {"GMAC_BLOCK_SIZE", "65536"}, {"GMAC_ROLLING_SIZE", "3"}},
          {{"GMAC_PROTOCOL", "rolling"}, {"GMAC_BLOCK_SIZE", "4096"}}};
}

std::string textOf(const Environment& environment) {
  std::string text;
  for (const auto& [name, value] : environment) {
    text += name;
    text += '=';
    text += value;
    text += ' ';
  }
  return text;
}

TEST(PreloadedMemory, RandomCallsAreAsOnPlainMemory) {
  for (const Environment& environment : environments()) {
    const ChildEnd end = preloaded("RandomCalls", environment);
    EXPECT_EQ(end.exitStatus, 0) << textOf(environment) << '\n' << end.output;
  }
}

TEST(PreloadedMemory, ThreadsDoNotDisturbEachOther) {
  for (const Environment& environment : environments()) {
    const ChildEnd end = preloaded("ThreadsOnPartsOfOneObject", environment);
    EXPECT_EQ(end.exitStatus, 0) << textOf(environment) << '\n' << end.output;
  }
}

TEST(PreloadedMemory, LongCallsNeverFault) {
  for (Environment environment : environments()) {
    const std::string file =
        ::testing::TempDir() + "memory_test." + std::to_string(::getpid()) + ".json";
    environment["GMAC_STATS"] = file;
    const ChildEnd end = preloaded("LongCallsInEveryState", environment);
    EXPECT_EQ(end.exitStatus, 0) << textOf(environment) << '\n' << end.output;
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    EXPECT_THAT(text.str(), ::testing::HasSubstr("\"readFaults\": 0,")) << textOf(environment);
    EXPECT_THAT(text.str(), ::testing::HasSubstr("\"writeFaults\": 0,")) << textOf(environment);
    ::unlink(file.c_str());
  }
}

TEST(PreloadedMemory, AnOverflowEndsTheProgramAsLibcDoes) {
  for (std::size_t i = 0; i < std::size(kFunctions); ++i) {
    const ChildEnd end = preloaded("Overflow", {{"MEMORY_TEST_FUNCTION", std::to_string(i)}});
    if (kFunctions[i].checks) {
      EXPECT_EQ(end.signal, SIGABRT) << kFunctions[i].name << '\n' << end.output;
      EXPECT_THAT(end.output, ::testing::HasSubstr("buffer overflow detected"));
    } else {
      EXPECT_EQ(end.exitStatus, 0) << kFunctions[i].name << '\n' << end.output;
    }
  }
}

}  // namespace
}  // namespace gmac::testing
