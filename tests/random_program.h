// SPDX-License-Identifier: Apache-2.0
//
// Randomised programs of CPU accesses, input and output, large copies and fills, kernels,
// allocations, frees, lists, bindings, hints, packs, unpacks, syncs and launches of the program's
// own. They are compared with a
// copy of every object in plain memory. A test file includes this header, defines
// randomProgramKit(), and says on which accelerators and under which protocols they run.
//
// GMAC_TEST_STEPS sets the length of each program (10,000), GMAC_TEST_SEED its seed (by the clock);
// both are printed.
#ifndef GMAC_TESTS_RANDOM_PROGRAM_H_
#define GMAC_TESTS_RANDOM_PROGRAM_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"
#include "gmac/observe/stats.h"
#include "gmac/session/runtime.h"
#include "tests/datatype/recipe.h"
#include "tests/support/child.h"
#include "tests/support/seed.h"
#include "tests/transform_kernel.h"

namespace gmac::testing {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr std::size_t kMostObjects = 40;
inline constexpr std::size_t kMostBytes = 8 * kMiB;

// ---- Kernels

inline void addBytes(const adsmThreadBlock_t* block, void** args) {
  auto* to = *static_cast<std::uint8_t**>(args[0]);
  const auto* from = *static_cast<const std::uint8_t**>(args[1]);
  const auto count = *static_cast<std::uint64_t*>(args[2]);
  for (std::uint64_t i = block->blockIdx.x; i < count; i += block->gridDim.x) {
    to[i] = static_cast<std::uint8_t>(to[i] + from[i]);
  }
}

// The test file's description of its kernels, transformBytes and addBytes.
struct RandomProgramKit {
  const void* image;                   // with functions of these names; NULL: there is none
  std::array<const void*, 2> symbols;  // in the test's own CUDA runtime
  void (*begin)() = [] {};             // first of all, in each process
  // Launches one of them as a program's own CUDA work; NULL: there is none. False: that failed.
  bool (*launch)(std::size_t kernel, void** args) = nullptr;
};
const RandomProgramKit& randomProgramKit();

inline adsmKernel_t makeKernel(const char* name, adsmHostKernel_t host, const void* symbol) {
  static const std::size_t kSizes[] = {8, 8, 8};
  adsmKernelDesc_t desc = {};
  desc.name = name;
  desc.paramCount = 3;
  desc.paramSizes = kSizes;
  desc.host = host;
  desc.cudartSymbol = symbol;
  desc.cudaImage = randomProgramKit().image;
  desc.cudaName = desc.cudaImage != nullptr ? name : nullptr;
  adsmKernel_t kernel = nullptr;
  if (adsmKernelCreate(&desc, &kernel) != adsmSuccess) {
    ADD_FAILURE() << adsmLastErrorString();
  }
  return kernel;
}

// ---- The program

struct Shared {
  std::uint8_t* data;
  bool safe;                         // its address is another on the accelerator
  std::vector<std::uint8_t> oracle;  // what it must contain
  std::array<unsigned, 2> bound{};   // adsmAccess_t per kernel
  bool isBound() const { return bound[0] != 0 || bound[1] != 0; }
};

class Program {
 public:
  Program(std::uint64_t seed, std::uint64_t steps) : random_(seed), steps_(steps) {
    kernels_ = {makeKernel("transformBytes", &transformBytes, randomProgramKit().symbols[0]),
                makeKernel("addBytes", &addBytes, randomProgramKit().symbols[1])};
    EXPECT_GE(file_, 0);
    EXPECT_EQ(adsmDeviceCount(&devices_), adsmSuccess) << adsmLastErrorString();
  }
  ~Program() {
    EXPECT_EQ(::close(file_), 0);
    for (const adsmKernel_t kernel : kernels_) {
      EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess) << adsmLastErrorString();
    }
  }

  void run() {
    for (step_ = 0; step_ < mostSteps() && !::testing::Test::HasFailure(); ++step_) {
      step();
      if (step_ % 64 == 0) {
        check(Runtime::started() == nullptr || Runtime::started()->memory().verify().ok(),
              "verify");
      }
    }
    sync();
    for (const auto& object : objects_) {
      compare(*object, 0, object->oracle.size());
    }
    while (!objects_.empty()) {
      free(objects_.size() - 1);
    }
    if (full_) {
      EXPECT_GT(stats().peerSpills.value(), 0u);
      // (Now and then no other device has room in one piece.)
      EXPECT_LT(refused_, listed_ / 10);
    }
    check(Runtime::started()->memory().verify().ok(), "verify");
  }

 private:
  // Objects whose sizes happen to fit on each device are followed by others, until one has left.
  std::uint64_t mostSteps() const {
    constexpr std::uint64_t kTimes = 10;
    return full_ && stats().peerSpills.value() == 0 ? kTimes * steps_ : steps_;
  }
  std::uint64_t upTo(std::uint64_t most) { return random_() % (most + 1); }

  void check(bool ok, const char* what) {
    if (!ok) {
      ADD_FAILURE() << "step " << step_ << ", " << what << ": " << adsmLastErrorString();
    }
  }

  // Where devices have little memory, some things do not fit: then nothing has changed.
  bool isFull(adsmError_t error) const { return full_ && error == adsmErrorAcceleratorMemory; }
  // Whether it was done.
  bool fits(adsmError_t error, const char* what) {
    check(error == adsmSuccess || isFull(error), what);
    return error == adsmSuccess;
  }

  void step() {
    const std::uint64_t kind = upTo(99);
    if (objects_.empty() || (kind < 6 && objects_.size() < kMostObjects)) {
      allocate();
    } else if (kind < 10) {
      free(upTo(objects_.size() - 1));
    } else if (kind < 36) {
      const auto [object, offset, bytes] = somewhere();
      compare(*object, offset, bytes);
    } else if (kind < 54) {
      write();
    } else if (kind < 58) {
      readOrWriteFile();
    } else if (kind < 62) {
      copyOrFill();
    } else if (kind < 70) {
      packOrUnpack();
    } else if (kind < 80) {
      call(false);
    } else if (kind < 90) {
      call(true);
    } else if (kind < 98) {
      sync();
    } else if (upTo(5) == 0) {
      bind();
    } else {
      migrate();
    }
  }

  void sync() { check(adsmSync() == adsmSuccess, "sync"); }

  // From 1 byte to 2 MiB, as often small as large; where devices are to be full, more often large.
  void allocate() {
    const std::uint64_t bits = full_ && upTo(1) == 0 ? 20 : upTo(20);
    const std::size_t bytes = 1 + (random_() >> (64 - 1 - bits));
    if (bytes_ + bytes > (full_ ? 3 * kMostBytes : kMostBytes)) {
      return;
    }
    const bool safe = upTo(7) == 0;
    auto* data = static_cast<std::uint8_t*>(safe ? adsmSafeAlloc(bytes) : adsmAlloc(bytes));
    if (data == nullptr && isFull(adsmLastError())) {
      return;
    }
    check(data != nullptr, "allocate");
    if (data == nullptr) {
      return;
    }
    auto object = std::make_unique<Shared>(Shared{data, safe, std::vector<std::uint8_t>(bytes)});
    // Both copies start out equal, not zero: a small object takes the place of another.
    if (upTo(1) == 0) {
      std::memcpy(object->oracle.data(), data, bytes);
    } else {
      std::memset(data, 0x5a, bytes);
      std::fill(object->oracle.begin(), object->oracle.end(), std::uint8_t{0x5a});
    }
    bytes_ += bytes;
    objects_.push_back(std::move(object));
  }

  void free(std::size_t index) {
    bytes_ -= objects_[index]->oracle.size();
    check(adsmFree(objects_[index]->data) == adsmSuccess, "free");
    objects_.erase(objects_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  struct Place {
    Shared* object;
    std::size_t offset;
    std::size_t bytes;
  };
  Place somewhere() {
    Shared* object = objects_[upTo(objects_.size() - 1)].get();
    const std::size_t size = object->oracle.size();
    const std::size_t offset = upTo(size - 1);
    const std::size_t most = upTo(3) == 0 ? size : std::size_t{200};
    return {object, offset, 1 + upTo(std::min(most, size - offset) - 1)};
  }

  void compare(const Shared& object, std::size_t offset, std::size_t bytes) {
    if (std::memcmp(object.data + offset, object.oracle.data() + offset, bytes) == 0) {
      return;
    }
    for (std::size_t i = offset; i < offset + bytes; ++i) {
      if (object.data[i] != object.oracle[i]) {
        ADD_FAILURE() << "step " << step_ << ": byte " << i << " of an object of "
                      << object.oracle.size() << " bytes at " << static_cast<void*>(object.data)
                      << " is " << int{object.data[i]} << ", not " << int{object.oracle[i]};
        return;
      }
    }
  }

  void write() {
    const auto [object, offset, bytes] = somewhere();
    const std::uint64_t key = random_();
    for (std::size_t i = offset; i < offset + bytes; ++i) {
      object->data[i] = object->oracle[i] = static_cast<std::uint8_t>(key + i * 5);
    }
  }

  // Through the file, with one system call of the program's.
  void readOrWriteFile() {
    const auto [object, offset, bytes] = somewhere();
    std::vector<std::uint8_t> plain(bytes);
    const auto length = static_cast<ssize_t>(bytes);
    if (upTo(1) == 0) {
      for (std::uint8_t& byte : plain) {
        byte = static_cast<std::uint8_t>(random_());
      }
      check(::pwrite(file_, plain.data(), bytes, 0) == length, "pwrite of plain memory");
      check(::pread(file_, object->data + offset, bytes, 0) == length, "pread");
      std::copy(plain.begin(), plain.end(),
                object->oracle.begin() + static_cast<std::ptrdiff_t>(offset));
    } else {
      check(::pwrite(file_, object->data + offset, bytes, 0) == length, "pwrite");
      check(::pread(file_, plain.data(), bytes, 0) == length, "pread into plain memory");
      if (!std::equal(plain.begin(), plain.end(),
                      object->oracle.begin() + static_cast<std::ptrdiff_t>(offset))) {
        ADD_FAILURE() << "step " << step_ << ": " << bytes << " bytes at " << offset
                      << " of an object of " << object->oracle.size()
                      << " bytes were written otherwise";
      }
    }
  }

  // Within one object the ranges may overlap.
  void copyOrFill() {
    const auto [to, toOffset, bytes] = somewhere();
    if (upTo(2) == 0) {
      const int value = static_cast<int>(upTo(255));
      std::memset(to->data + toOffset, value, bytes);
      std::memset(to->oracle.data() + toOffset, value, bytes);
      return;
    }
    const auto [from, fromOffset, fromBytes] = somewhere();
    const std::size_t length = std::min(bytes, fromBytes);
    std::memmove(to->data + toOffset, from->data + fromOffset, length);
    std::memmove(to->oracle.data() + toOffset, from->oracle.data() + fromOffset, length);
  }

  bool allowed(const Shared& object, std::size_t kernel, unsigned access, bool listed) const {
    return listed || !object.isBound() || (object.bound[kernel] & access) == access;
  }
  static void* onDevice(const Shared& object, std::size_t offset) {
    return object.safe ? adsmSafe(object.data + offset) : object.data + offset;
  }

  void call(bool listed) {
    const std::size_t kernel = upTo(1);
    auto [to, toOffset, count] = somewhere();
    auto [from, fromOffset, fromCount] = somewhere();
    // The program's own launches may use every object.
    const bool own = randomProgramKit().launch != nullptr && upTo(3) == 0;
    const bool anything = listed || own;
    if (!allowed(*to, kernel, adsmReadWrite, anything) ||
        (kernel == 1 && (from == to || !allowed(*from, kernel, adsmRead, anything)))) {
      return;
    }
    std::uint64_t key = random_();
    void* toDevice = onDevice(*to, toOffset);
    void* fromDevice = onDevice(*from, fromOffset);
    std::vector<adsmUse_t> uses = {{to->data + toOffset, adsmReadWrite}};
    std::vector<adsmRangeUse_t> ranges;
    void* args[3] = {&toDevice, &count, &key};
    if (kernel == 1) {
      count = std::min(count, fromCount);
      args[1] = &fromDevice;
      args[2] = &count;
      uses.push_back({from->data, adsmRead});
      ranges.push_back({from->data + fromOffset, count, adsmRead});
    }
    std::uint8_t* const target = to->oracle.data() + toOffset;
    const std::uint8_t* const source = from->oracle.data() + fromOffset;
    const std::uint64_t length = count;
    const auto submitted = [=] {
      for (std::uint64_t i = 0; i < length; ++i) {
        target[i] = static_cast<std::uint8_t>(kernel == 0 ? target[i] * 3 + key + i
                                                          : target[i] + source[i]);
      }
    };
    if (own) {
      check(randomProgramKit().launch(kernel, args), "own launch");
      submitted();
      return;
    }
    const adsmDim_t grid = {1 + static_cast<unsigned>(upTo(3)), 1, 1};
    const adsmDim_t block = {32, 1, 1};
    // Half of them go where the scheduler says.
    const bool named = devices_ > 1 && upTo(1) == 0;
    const int device = named ? anyDevice() : 0;
    // So do most that list parts alone, where other calls, and the CPU, have the rest.
    if (listed && upTo(2) != 0) {
      ranges.push_back({to->data + toOffset, count, adsmReadWrite});
      const adsmError_t error = adsmCallRanges(named ? device : ADSM_ANY_DEVICE, kernels_[kernel],
                                               grid, block, 0, args, ranges.data(), ranges.size());
      ++listed_;
      if (fits(error, "call on parts")) {
        submitted();
      } else {
        ++refused_;
      }
      return;
    }
    const adsmError_t error =
        named    ? adsmCallOn(device, kernels_[kernel], grid, block, 0, args,
                           listed ? uses.data() : nullptr, listed ? uses.size() : 0)
        : listed ? adsmCallUsing(kernels_[kernel], grid, block, 0, args, uses.data(), uses.size())
                 : adsmCall(kernels_[kernel], grid, block, 0, args);
    listed_ += listed ? 1 : 0;
    if (fits(error, "call")) {
      submitted();
    } else {
      refused_ += listed ? 1 : 0;
    }
  }

  int anyDevice() { return static_cast<int>(upTo(static_cast<std::uint64_t>(devices_ - 1))); }

  void migrate() {
    const auto [object, offset, bytes] = somewhere();
    (void)fits(adsmMigrate(object->data + offset, bytes, anyDevice()), "migrate");
  }

  // A type of random nesting on a part of one object; the other side is another object, or memory
  // of the CPU's alone.
  void packOrUnpack() {
    const datatype::Recipe recipe =
        datatype::randomRecipe(random_, {.depth = 2, .mostEntries = 1500});
    const datatype::TypeMap map = datatype::typeMapOf(recipe);
    const auto count = static_cast<std::int64_t>(upTo(3));
    std::vector<std::int64_t> offsets;
    for (std::int64_t i = 0; i < count; ++i) {
      for (const std::int64_t offset : map.byteOffsets()) {
        offsets.push_back(offset + i * map.extent());
      }
    }
    if (offsets.empty()) {
      return;
    }
    const auto [low, high] = std::minmax_element(offsets.begin(), offsets.end());
    const std::int64_t span = *high + 1 - *low;
    Shared& object = *objects_[upTo(objects_.size() - 1)];
    const auto size = static_cast<std::int64_t>(object.oracle.size());
    const bool unpack = upTo(1) == 0;
    const std::int64_t first = static_cast<std::int64_t>(upTo(offsets.size() - 1));
    const std::int64_t bytes =
        1 + static_cast<std::int64_t>(upTo(offsets.size() - static_cast<std::size_t>(first) - 1));
    if (span > size || (unpack && hasTwice(offsets))) {
      return;
    }
    const std::int64_t base =
        static_cast<std::int64_t>(upTo(static_cast<std::uint64_t>(size - span))) - *low;
    std::vector<std::uint8_t> plain(static_cast<std::size_t>(bytes));
    for (std::uint8_t& byte : plain) {
      byte = static_cast<std::uint8_t>(random_());
    }
    std::uint8_t* packed = plain.data();
    std::uint8_t* packedOracle = plain.data();
    Shared& other = *objects_[upTo(objects_.size() - 1)];
    if (&other != &object && other.oracle.size() >= plain.size()) {
      const std::size_t at = upTo(other.oracle.size() - plain.size());
      packed = other.data + at;
      packedOracle = other.oracle.data() + at;
    }
    const adsmType_t type = datatype::typeOf(recipe);
    check(adsmTypeCommit(type) == adsmSuccess, "commit");
    adsmPackOptions_t options = {};
    options.size = sizeof options;
    options.offset = first;
    options.bytes = bytes;
    options.blocks = static_cast<int>(upTo(2));
    // Sometimes forced, where that can be had.
    options.method = upTo(2) == 0 ? static_cast<adsmMethod_t>(upTo(5)) : adsmMethodAny;
    const adsmError_t error =
        unpack ? adsmUnpackWith(object.data + base, packed, count, type, &options)
               : adsmPackWith(packed, object.data + base, count, type, &options);
    (void)adsmTypeFree(type);
    if (error == adsmErrorNotSupported && options.method != adsmMethodAny) {
      return;
    }
    if (!fits(error, unpack ? "unpack" : "pack")) {
      return;
    }
    for (std::int64_t i = 0; i < bytes; ++i) {
      std::uint8_t& strided = object.oracle[static_cast<std::size_t>(
          base + offsets[static_cast<std::size_t>(first + i)])];
      if (unpack) {
        strided = packedOracle[i];
      } else if (packed == plain.data()) {
        if (plain[static_cast<std::size_t>(i)] != strided) {
          ADD_FAILURE() << "step " << step_ << ": packed byte " << i << " of "
                        << datatype::text(recipe) << " is "
                        << int{plain[static_cast<std::size_t>(i)]} << ", not " << int{strided};
          return;
        }
      } else {
        packedOracle[i] = strided;
      }
    }
  }

  static bool hasTwice(std::vector<std::int64_t> offsets) {
    std::sort(offsets.begin(), offsets.end());
    return std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end();
  }

  void bind() {
    Shared& object = *objects_[upTo(objects_.size() - 1)];
    const std::size_t kernel = upTo(1);
    const auto access = static_cast<adsmAccess_t>(1 + upTo(2));
    const adsmError_t error = adsmBind(object.data, kernels_[kernel], access);
    if (error == adsmErrorNotSupported) {
      EXPECT_LE(object.oracle.size(), 32u * 1024);  // small objects share their pages
      return;
    }
    check(error == adsmSuccess, "bind");
    object.bound[kernel] |= access;
  }

  std::mt19937_64 random_;
  std::uint64_t steps_;
  std::uint64_t step_ = 0;
  int devices_ = 0;
  const int file_ = ::memfd_create("random_program", MFD_CLOEXEC);
  std::array<adsmKernel_t, 2> kernels_{};
  std::vector<std::unique_ptr<Shared>> objects_;
  std::size_t bytes_ = 0;
  // Objects leave devices to make room for others.
  const bool full_ = numberFrom("GMAC_TEST_FULL", 0) != 0;
  std::size_t listed_ = 0;   // calls that list what they use,
  std::size_t refused_ = 0;  // of which so many did not fit
};

// Run by the tests below in a process of its own, with the GMAC_* variables set.
TEST(RandomProgramChild, DISABLED_Run) {
  randomProgramKit().begin();
  void* probe = adsmAlloc(1);
  if (probe == nullptr && adsmLastError() == adsmErrorNoAccelerator) {
    std::printf("%s\n", adsmLastErrorString());
    std::fflush(stdout);
    _exit(kCannotRun);
  }
  ASSERT_NE(probe, nullptr) << adsmLastErrorString();
  ASSERT_EQ(adsmFree(probe), adsmSuccess);
  Program(numberFrom("GMAC_TEST_SEED", 1), numberFrom("GMAC_TEST_STEPS", 10000)).run();
}

struct Combination {
  std::string accelerator;
  std::string protocol;
  std::string blockSize;
  std::string scheduler;  // of calls that name no device
  std::string memory = "256M";
  bool full = false;  // objects do not fit on each device
};

inline std::string nameOf(const Combination& combination) {
  std::string accelerator = combination.accelerator;
  for (char& letter : accelerator) {
    letter = letter == ':' || letter == '+' ? '_' : letter;
  }
  const std::string scheduler =
      combination.scheduler == "current" ? "" : "_" + combination.scheduler;
  return accelerator + "_" + combination.protocol + "_" + combination.blockSize + scheduler +
         (combination.full ? "_full" : "");
}
inline std::string combinationName(const ::testing::TestParamInfo<Combination>& info) {
  return nameOf(info.param);
}
// NOLINTNEXTLINE: GoogleTest's name
inline void PrintTo(const Combination& combination, std::ostream* out) {
  *out << nameOf(combination);
}

class RandomProgram : public ::testing::TestWithParam<Combination> {};

TEST_P(RandomProgram, AgreesWithPlainMemory) {
  const auto& [accelerator, protocol, blockSize, scheduler, memory, full] = GetParam();
  const std::string seed = std::to_string(newSeed());
  // (Full devices copy large objects at most steps.)
  const std::string steps = std::to_string(numberFrom("GMAC_TEST_STEPS", full ? 2000 : 10000));
  std::printf("GMAC_TEST_SEED=%s GMAC_TEST_STEPS=%s\n", seed.c_str(), steps.c_str());
  std::fflush(stdout);  // a program that hangs has shown them
  const ChildEnd end =
      runChild("RandomProgramChild.DISABLED_Run", {{"GMAC_ACCEL", accelerator},
                                                   {"GMAC_PROTOCOL", protocol},
                                                   {"GMAC_BLOCK_SIZE", blockSize},
                                                   {"GMAC_SCHEDULER", scheduler},
                                                   {"GMAC_HOST_MEMORY", memory},
                                                   {"GMAC_HOST_THREADS", "2"},
                                                   {"GMAC_TEST_FULL", full ? "1" : "0"},
                                                   {"GMAC_TEST_SEED", seed},
                                                   {"GMAC_TEST_STEPS", steps}});
  if (end.exitStatus == kCannotRun) {
    GTEST_SKIP() << "not run with GMAC_ACCEL=" << accelerator << ": " << end.output;
  }
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
  EXPECT_NE(end.output.find("[  PASSED  ] 1 test"), std::string::npos) << end.output;
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_RANDOM_PROGRAM_H_
