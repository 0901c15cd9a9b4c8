// SPDX-License-Identifier: Apache-2.0
//
// Random programs on the fake, with operations that the public API cannot reach: held ranges, bulk
// copies and fills, device work on streams, refused protection changes, moved pages, population
// ahead, early copies, and queues that run as late, or as oddly, as the seam allows. The walker
// checks everything after every step. GMAC_TEST_STEPS and GMAC_TEST_SEED as in
// random_program_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"
#include "tests/support/seed.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::Placement;

struct Oracle {
  std::uint8_t* data;
  std::uint8_t* device;
  std::vector<std::uint8_t> bytes;
};

class RandomSteps {
 public:
  RandomSteps(const MachineSetup& setup, std::uint64_t seed)
      : machine_(setup), before_(coherence::open(machine_.objects().ports())), random_(seed) {
    add_ = machine_.fake().kernel("add", 3, [this](const LaunchShape&, void** args) {
      auto* data = machine_.fake().argument<std::uint8_t>(args, 0);
      const auto count = *static_cast<std::size_t*>(args[1]);
      const auto key = *static_cast<std::size_t*>(args[2]);
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = static_cast<std::uint8_t>(data[i] * 3 + key + i);
      }
    });
    // The walker meets blocks in transit, too.
    const auto look = [this] {
      if (!CoherentMemory::lockIsHeldHere() && ++copies_ % 4 == 0) machine_.verify();
    };
    machine_.fake().onCopyIn(look);
    machine_.fake().onCopyOut(look);
  }

  ~RandomSteps() { coherence::open(before_); }
  RandomSteps(const RandomSteps&) = delete;
  RandomSteps& operator=(const RandomSteps&) = delete;

  void run(std::uint64_t steps) {
    for (std::uint64_t step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      one();
      machine_.verify();
      rememberPlaces();
    }
    machine_.sync();
    leaveAlone();
    for (const auto& object : objects_) {
      compare(*object, 0, object->bytes.size());
    }
  }

 private:
  // The CPU comes for nothing any more, until something that has one copy gets two again.
  void leaveAlone() {
    const std::uint64_t ended = stats().zeroCopiesEnded.value();
    for (int i = 0; machine_.setup().fake.zeroCopy && !objects_.empty() && i < 1000 &&
                    stats().zeroCopiesEnded.value() == ended;
         ++i) {
      machine_.call(add_, {objects_.front()->device, number(0), number(0)});
      machine_.sync();
    }
  }
  // The places that this thread remembers are right: of objects, and of memory that was one.
  void rememberPlaces() {
    if (!objects_.empty()) {
      asked_[upTo(19) == 0 ? upTo(asked_.size() - 1) : 0] = objects_.front()->data;
    }
    for (const std::uint8_t* address : asked_) {
      if (address == nullptr) continue;
      const std::uint64_t before = coherence::placesChanged();
      coherence::Current remembered{};
      (void)coherence::currentPrefix(address, 1, &remembered);
      const bool shared = coherence::touchesShared(address, 1);
      const coherence::Current current = machine_.memory().placeOf(address, 1).current;
      const bool isShared = machine_.memory().touchesShared(address, 1);
      // Not by a thread of the runtime's meanwhile, and not where it depends on kernels.
      if (coherence::placesChanged() == before && !machine_.setup().managed) {
        EXPECT_EQ(remembered, current);
        EXPECT_EQ(shared, isShared);
      }
    }
  }
  std::uint64_t upTo(std::uint64_t most) { return random_() % (most + 1); }
  struct Place {
    Oracle* object;
    std::size_t offset;
    std::size_t count;
  };
  Place somewhere() {
    Oracle* object = objects_[upTo(objects_.size() - 1)].get();
    const std::size_t size = object->bytes.size();
    const std::size_t offset = upTo(size - 1);
    return {object, offset,
            1 + upTo(std::min<std::size_t>(upTo(2) == 0 ? size : 500, size - offset) - 1)};
  }
  static const void* number(std::size_t value) { return reinterpret_cast<const void*>(value); }
  static void apply(std::uint8_t* data, std::size_t count, std::size_t key) {
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = static_cast<std::uint8_t>(data[i] * 3 + key + i);
    }
  }
  static void compare(const Oracle& object, std::size_t offset, std::size_t count) {
    compare(object, offset, count, object.data + offset);
  }
  // The bytes that were read of an object, by any means.
  static void compare(const Oracle& object, std::size_t offset, std::size_t count,
                      const std::uint8_t* seen) {
    EXPECT_EQ(std::memcmp(seen, object.bytes.data() + offset, count), 0)
        << count << " bytes at " << offset << " of an object of " << object.bytes.size();
  }

  void one() {
    const std::uint64_t kind = objects_.empty() ? 0 : upTo(131);
    if (kind < 6) {
      return allocate();
    }
    auto [object, offset, count] = somewhere();
    std::uint8_t* const oracle = object->bytes.data() + offset;
    std::uint8_t* const data = object->data + offset;
    const std::size_t key = random_() % 251;
    if (kind < 9) {
      const std::size_t index = upTo(objects_.size() - 1);
      EXPECT_TRUE(machine_.objects().free(objects_[index]->data).ok()) << lastErrorText();
      manyBlocks_ = manyBlocks_ && !hasManyBlocks(objects_[index]->bytes.size());
      objects_.erase(objects_.begin() + static_cast<std::ptrdiff_t>(index));
    } else if (kind < 30) {
      beforeAccess();
      compare(*object, offset, count);
    } else if (kind < 50) {
      beforeAccess();
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = oracle[i] = static_cast<std::uint8_t>(key + i);
      }
    } else if (kind < 60) {
      machine_.call(add_, {object->device + offset, number(count), number(key)});
      apply(oracle, count, key);
      if (upTo(2) == 0) {
        beforeAccess();
        compare(*object, offset, count);
      }
    } else if (kind < 68) {
      machine_.callUsing(add_, {object->device + offset, number(count), number(key)},
                         {{data, adsmReadWrite}});
      apply(oracle, count, key);
    } else if (kind < 74) {
      machine_.sync();
    } else if (kind < 82) {
      const auto purpose = static_cast<coherence::HoldFor>(upTo(2));
      ASSERT_TRUE(machine_.memory().hold(data, count, purpose).ok()) << lastErrorText();
      machine_.verify();
      if (purpose != coherence::HoldFor::kOverwrite) {
        compare(*object, offset, count);
      }
      if (purpose != coherence::HoldFor::kRead) {
        std::memset(data, static_cast<int>(key), count);
        std::memset(oracle, static_cast<int>(key), count);
      }
      machine_.memory().unhold(data, count);
    } else if (kind < 90) {
      deviceWork(*object, offset, count, key);
    } else if (kind < 94 && std::exchange(manyBlocks_, false)) {
      os::failNext(os::Call::kProtect, 1 + static_cast<int>(upTo(3)), ENOMEM);
    } else if (kind < 97) {
      (void)machine_.objects().populateNext();
    } else if (kind < 100) {
      machine_.fake().runAll();
      if (upTo(1) == 0) {
        EXPECT_TRUE(machine_.work().afterDeviceWait().ok()) << lastErrorText();
      }
    } else if (kind < 103) {
      const Status flushed = machine_.memory().startFlush(data, count);
      // Where the kernel has no mappings left, nothing is flushed early.
      EXPECT_TRUE(flushed.ok() || flushed.code() == adsmErrorHostMemory) << lastErrorText();
    } else if (kind < 106) {
      EXPECT_TRUE(machine_.memory().startFetch(data, count).ok()) << lastErrorText();
    } else if (kind < 107) {
      for (std::uint64_t fetches = upTo(4); fetches > 0; --fetches) {
        (void)machine_.objects().fetchNext();
      }
    } else if (kind < 127) {
      bulk(*object, offset, count, static_cast<int>(key));
    } else if (kind < 130) {
      // A kernel on a stream, which may use everything and writes one byte, or nothing.
      deviceWork(*object, offset, upTo(1), key, true);
    } else {
      pingPong(*object, offset, std::min(count, 1 + upTo(15)));
    }
  }

  // Rounds of device work, a wait, and the CPU's look at the same bytes, which come to be copied
  // after the work.
  void pingPong(Oracle& object, std::size_t offset, std::size_t count) {
    std::uint8_t* const oracle = object.bytes.data() + offset;
    std::uint8_t* const data = object.data + offset;
    const bool onStreams = upTo(1) == 0;
    for (std::uint64_t rounds = 2 + upTo(22); rounds > 0; --rounds) {
      const std::size_t key = random_() % 251;
      if (onStreams) {
        deviceWork(object, offset, count, key, upTo(1) == 0);
        for (std::uint64_t more = upTo(3); more > 1; --more) {
          deviceWork(object, offset, count, key, true);
        }
      } else if (upTo(1) == 0) {
        machine_.callUsing(add_, {object.device + offset, number(count), number(key)},
                           {{data, adsmReadWrite}});
        apply(oracle, count, key);
      } else {
        machine_.call(add_, {object.device + offset, number(count), number(key)});
        apply(oracle, count, key);
      }
      switch (upTo(7)) {
        case 0:
          break;
        case 1:  // a wait for another stream, or for none of what is under way
          machine_.work().beforeDeviceWait(accel::NativeStream{upTo(2)});
          EXPECT_TRUE(machine_.work().afterDeviceWait().ok()) << lastErrorText();
          break;
        case 2:
        case 3: {
          const coherence::DeviceWait wait = machine_.work().beforeDeviceWait(std::nullopt);
          machine_.fake().runAll();
          EXPECT_TRUE(machine_.work().afterDeviceWait(wait).ok()) << lastErrorText();
          break;
        }
        default:
          machine_.sync();
      }
      machine_.verify();
      beforeAccess();
      if (upTo(7) != 0) {
        compare(object, offset, count);
      }
      if (upTo(3) != 0) {
        std::memset(data, static_cast<int>(rounds), count);
        std::memset(oracle, static_cast<int>(rounds), count);
      }
    }
  }

  // The CPU is about to touch objects: a program for managed memory waits before.
  void beforeAccess() {
    if (machine_.setup().managed) {
      machine_.work().beforeDeviceWait(std::nullopt);
      machine_.fake().runAll();
      EXPECT_TRUE(machine_.work().afterDeviceWait().ok()) << lastErrorText();
    }
  }

  bool hasManyBlocks(std::size_t size) const {
    return machine_.setup().protocol == "rolling" && size >= 32 * machine_.setup().blockBytes;
  }

  void allocate() {
    if (objects_.size() >= 10) {
      return;
    }
    os::failNext(os::Call::kProtect, 0, 0);
    const std::size_t size = 1 + (random_() >> (64 - 1 - upTo(21)));
    beforeAccess();
    // (Nothing is listed while an object has two addresses.)
    const bool anywhere = upTo(5) == 0 && machine_.setup().listingWorth != 0;
    auto* data = reinterpret_cast<std::uint8_t*>(
        machine_.allocate(size, anywhere ? Placement::kAnywhere : Placement::kSameAddress));
    ASSERT_NE(data, nullptr);
    auto device = machine_.objects().deviceAddress(data);
    ASSERT_TRUE(device.ok());
    manyBlocks_ |= hasManyBlocks(size);
    // A small object takes the place of another, so its first contents are the CPU's to tell.
    objects_.push_back(std::make_unique<Oracle>(Oracle{
        data, static_cast<std::uint8_t*>(*device), std::vector<std::uint8_t>(data, data + size)}));
  }

  // memmove and memset as the interposer asks for them.
  void bulk(Oracle& object, std::size_t offset, std::size_t count, int value) {
    std::uint8_t* const to = object.data + offset;
    std::uint8_t* const oracle = object.bytes.data() + offset;
    const Place other = somewhere();
    count = std::min(count, other.object->bytes.size() - other.offset);
    const std::uint64_t kind = upTo(3);
    const std::uint8_t* const from = other.object->data + other.offset;
    switch (kind) {
      case 0:
        machine_.memory().fill(to, value, count, &std::memset);
        std::memset(oracle, value, count);
        break;
      case 1: {
        std::vector<std::uint8_t> plain(count);
        machine_.memory().copy(plain.data(), from, count, &std::memmove);
        compare(*other.object, other.offset, count, plain.data());
        return;
      }
      case 2: {
        std::vector<std::uint8_t> plain(count);
        std::generate(plain.begin(), plain.end(),
                      [&] { return static_cast<std::uint8_t>(random_()); });
        machine_.memory().copy(to, plain.data(), count, &std::memmove);
        std::memcpy(oracle, plain.data(), count);
        break;
      }
      default:
        machine_.memory().copy(to, from, count, &std::memmove);
        std::memmove(oracle, other.object->bytes.data() + other.offset, count);
        break;
    }
  }

  // As the interposer brackets what a program submits to a stream: work that writes the range, or
  // only reads it.
  void deviceWork(Oracle& object, std::size_t offset, std::size_t count, std::size_t key,
                  bool usesEverything = false) {
    // The application's streams are in no order among themselves. Launches that list an object are
    // under way together, those with the same one on the same stream.
    const bool lists = usesEverything && machine_.setup().listingWorth == 0 && upTo(3) != 0;
    const bool write = (usesEverything && !lists) || upTo(1) == 0;
    accel::NativeStream stream{upTo(2)};
    std::vector<coherence::DeviceRange> ranges{
        {usesEverything ? nullptr : object.data + offset, count, write}};
    if (lists) {
      stream = accel::NativeStream{reinterpret_cast<std::uintptr_t>(object.data) / kPage % 3};
      ranges = {{nullptr, 0, true, false, true}, {object.data + offset, 1, write, true}};
      if (upTo(3) == 0) {
        ranges.push_back({somewhere().object->data, 1, upTo(1) == 0, true});
      }
      count = std::min(object.bytes.size() - offset, count + upTo(40));
    }
    if (!std::exchange(allListed_, lists) || !lists) {
      machine_.fake().runAll();
    }
    const bool repeats = !lists && machine_.work().beginRepeated(stream, !usesEverything);
    if (!repeats) {
      const Status begun = machine_.work().beginDeviceWork(stream, ranges);
      ASSERT_TRUE(begun.ok()) << lastErrorText();
    }
    std::uint8_t* const at = machine_.fake().at(object.device + offset);
    if (write) {
      machine_.fake().submit(stream, [at, count, key] { apply(at, count, key); });
      apply(object.bytes.data() + offset, count, key);
    } else {
      std::vector<std::uint8_t> expected(
          object.bytes.begin() + static_cast<std::ptrdiff_t>(offset),
          object.bytes.begin() + static_cast<std::ptrdiff_t>(offset + count));
      machine_.fake().submit(stream, [at, expected = std::move(expected)] {
        EXPECT_EQ(std::memcmp(at, expected.data(), expected.size()), 0)
            << "device work saw later bytes";
      });
    }
    if (repeats) {
      machine_.work().endRepeated(stream, true);
    } else {
      const Status ended = machine_.work().endDeviceWork(stream, true);
      ASSERT_TRUE(ended.ok()) << lastErrorText();
    }
  }

  Machine machine_;
  const coherence::Ports& before_;
  std::mt19937_64 random_;
  std::array<const std::uint8_t*, 6> asked_{};
  adsmKernel_t add_;
  std::vector<std::unique_ptr<Oracle>> objects_;
  std::uint32_t copies_ = 0;
  bool allListed_ = false;  // what runs on streams
  // An object of many blocks has come since a protection change was last refused. The kernel
  // refuses none that keeps a mapping whole, so there must be blocks left to join.
  bool manyBlocks_ = false;
};

class RandomOnTheFake : public ::testing::TestWithParam<MachineSetup> {};

TEST_P(RandomOnTheFake, AgreesWithPlainMemory) {
  const std::uint64_t seed = newSeed();
  const std::uint64_t steps = numberFrom("GMAC_TEST_STEPS", 10000) / 10;
  std::printf("GMAC_TEST_SEED=%llu, %llu steps\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(steps));
  const std::uint64_t windows = stats().windows.value();
  const std::uint64_t outgrown = stats().windowsOutgrown.value();
  const std::uint64_t readBacks = stats().readBacks.value();
  const std::uint64_t listedCalls = stats().listedCalls.value();
  const std::uint64_t zeroCopies = stats().zeroCopies.value();
  const std::uint64_t zeroCopiesEnded = stats().zeroCopiesEnded.value();
  for (const auto run : {FakeOptions::Run::kDeferred, FakeOptions::Run::kRandom}) {
    MachineSetup setup = GetParam();
    setup.fake.run = run;
    setup.fake.seed = seed;
    RandomSteps(setup, seed).run(steps);
  }
  // A program of many steps comes to all states.
  if (GetParam().windowBytes != 0 && steps >= 1000) {
    EXPECT_GT(stats().windows.value(), windows);
    EXPECT_GT(stats().windowsOutgrown.value(), outgrown);
  }
  if (GetParam().listingWorth == 0 && !GetParam().fake.zeroCopy && steps >= 1000) {
    EXPECT_GT(stats().listedCalls.value(), listedCalls);
  }
  // (Few programs come for one page of a large object for so long.)
  if (GetParam().fake.zeroCopy && GetParam().zeroCopy.mostBytes == SIZE_MAX && steps >= 1000) {
    EXPECT_GT(stats().zeroCopies.value(), zeroCopies);
    EXPECT_GT(stats().zeroCopiesEnded.value(), zeroCopiesEnded);
  }
  if (GetParam().protocol != "batch" && GetParam().blockBytes <= 64 * kKiB && steps >= 1000) {
    EXPECT_GT(stats().readBacks.value(), readBacks);
  }
}

std::vector<MachineSetup> randomSetups() {
  std::vector<MachineSetup> setups = everySetup();
  bool keeps = false;
  for (MachineSetup& setup : setups) {
    setup.rollingSize = 3;
    setup.readAheadBytes = 8 * setup.blockBytes;
    // Every other one uses the memory of freed objects again.
    keeps = !keeps;
    setup.keptBytes = keeps ? 64 * kMiB : 0;
  }
  // Blocks larger than a chunk of the mirror, read ahead.
  MachineSetup large;
  large.blockBytes = 4 * kMiB;
  large.readAheadBytes = 16 * kMiB;
  large.fake.movedPages = true;
  setups.push_back(large);
  // A rolling size that follows what is written.
  MachineSetup adaptive;
  adaptive.blockBytes = 16 * kKiB;
  adaptive.rollingStep = 1;
  setups.push_back(adaptive);
  // Blocks that are open in part, of either mirror.
  MachineSetup windows;
  windows.blockBytes = 16 * kKiB;
  windows.windowBytes = kPage;
  windows.rollingSize = 3;
  windows.readAheadBytes = 8 * windows.blockBytes;
  setups.push_back(windows);
  // Small blocks that are opened together, as far as the rolling size leaves room.
  for (const std::size_t blockBytes : {4 * kKiB, 64 * kKiB}) {
    MachineSetup neighbours;
    neighbours.blockBytes = blockBytes;
    neighbours.opensNeighbours = true;
    neighbours.rollingStep = 1;
    neighbours.readAheadBytes = 8 * blockBytes;
    neighbours.fake.movedPages = neighbours.opensPages = blockBytes > 4 * kKiB;
    setups.push_back(neighbours);
  }
  // Windows with objects, or pages of them, that get one copy after few rounds, and two again.
  const auto addZeroCopy = [&setups](MachineSetup setup) {
    setup.fake.movableMemory = true;
    setup.fake.zeroCopy = true;
    setup.zeroCopy = {.mostBytes = SIZE_MAX,
                      .limits = {.leastRounds = 1, .longest = UINT64_MAX, .few = SIZE_MAX},
                      .prompt = {.leastRounds = 1, .soon = UINT64_MAX}};
    setups.push_back(setup);
    setup.managed = true;
    setups.push_back(setup);
    setup.zeroCopy.mostBytes = setup.zeroCopy.pageBytes = 2 * setup.blockBytes;
    setups.push_back(setup);
    setup.managed = false;
    setups.push_back(setup);
  };
  addZeroCopy(windows);
  // Launches that list their objects.
  for (const char* const protocol : {"lazy", "rolling"}) {
    MachineSetup listed = windows;
    listed.protocol = protocol;
    listed.listingWorth = 0;
    listed.windowBytes = listed.protocol == "lazy" ? 0 : windows.windowBytes;
    setups.push_back(listed);
    addZeroCopy(listed);
  }
  windows.blockBytes = 512 * kKiB;
  windows.windowBytes = 64 * kKiB;
  windows.fake.movedPages = windows.opensPages = true;
  setups.push_back(windows);
  addZeroCopy(windows);
  // Blocks that are split where the CPU comes for few places of each.
  windows.blockBytes = 2 * kMiB;
  windows.opensNeighbours = true;
  windows.splitAfter = 1;
  setups.push_back(windows);
  addZeroCopy(windows);
  return setups;
}

INSTANTIATE_TEST_SUITE_P(, RandomOnTheFake, ::testing::ValuesIn(randomSetups()),
                         [](const auto& info) { return nameOf(info.param); });

}  // namespace
}  // namespace gmac::testing
