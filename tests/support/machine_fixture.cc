// SPDX-License-Identifier: Apache-2.0
#include "tests/support/machine_fixture.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>

#include "gmac/coherence/work_port.h"
#include "gmac/os/fault.h"
#include "gmac/os/mappings.h"
#include "gmac/protocols/protocol.h"

namespace gmac::testing {
namespace {

#ifdef GMAC_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::atomic<CoherentMemory*> current{nullptr};

bool onFault(void* address, bool write) noexcept {
  CoherentMemory* objects = current.load();
  return objects != nullptr && objects->onFault(address, write);
}

std::unique_ptr<Protocol> makeProtocol(const MachineSetup& setup) {
  for (const NamedProtocol& protocol : kProtocols) {
    if (protocol.name == setup.protocol) {
      return protocol.make({.step = setup.rollingStep, .fixed = setup.rollingSize});
    }
  }
  throw std::invalid_argument("there is no protocol " + setup.protocol);
}

}  // namespace

std::string nameOf(const MachineSetup& setup) {
  std::string name =
      setup.protocol + "_" + std::to_string(setup.blockBytes / kKiB) + "K" +
      (setup.fake.movedPages ? "_moved" : "") + (setup.windowBytes != 0 ? "_windows" : "") +
      (setup.opensNeighbours ? "_neighbours" : "") + (setup.opensPages ? "_openPages" : "") +
      (setup.splitAfter != 0 ? "_split" : "") + (setup.fake.zeroCopy ? "_zeroCopy" : "") +
      (setup.zeroCopy.pageBytes != ZeroCopyOptions().pageBytes ? "_pages" : "") +
      (setup.listingWorth == 0 ? "_listed" : "") + (setup.managed ? "_managed" : "");
  // Tests' names have no hyphens, as protocols' may.
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// NOLINTNEXTLINE: GoogleTest's name
void PrintTo(const MachineSetup& setup, std::ostream* out) { *out << nameOf(setup); }

std::vector<MachineSetup> everySetup() {
  std::vector<MachineSetup> setups;
  for (const bool moved : {false, true}) {
    for (const NamedProtocol& protocol : kProtocols) {
      const bool whole = protocol.make({})->wholeObjects();
      for (const std::size_t blockBytes : {4 * kKiB, 64 * kKiB, kMiB}) {
        if ((whole && blockBytes != 64 * kKiB) || (moved && blockBytes < 64 * kKiB)) {
          continue;
        }
        MachineSetup setup;
        setup.protocol = protocol.name;
        setup.blockBytes = blockBytes;
        setup.fake.movedPages = moved;
        setups.push_back(setup);
      }
    }
  }
  return setups;
}

Machine::Machine(const MachineSetup& setup)
    : setup_(setup), fake_(std::make_unique<FakeAccelerator>(setup.fake)) {
  static const bool installed = os::installFaultHandler(&onFault).ok();
  EXPECT_TRUE(installed) << lastErrorText();
  CoherenceOptions options;
  options.blockBytes = setup.blockBytes;
  options.readAheadBytes = setup.readAheadBytes;
  options.chunkBytes = 2 * kMiB;
  options.populateAhead = setup.populateAhead;
  options.fetchInBackground = setup.fetchInBackground;
  options.keptBytes = setup.keptBytes;
  options.spill = setup.spill;
  options.zeroCopy = setup.zeroCopy;
  options.clock = setup.clock;
  options.mappingLimit = setup.mappingLimit;
  options.windowBytes = setup.windowBytes;
  options.opensNeighbours = setup.opensNeighbours;
  options.opensPages = setup.opensPages;
  options.splitAfter = setup.splitAfter;
  options.listingWorth = setup.listingWorth;
  options.managed = setup.managed;
  options.movedPages = setup.fake.movedPages;
  fake_->setLockCheck(&CoherentMemory::lockIsHeldHere);
  auto made = CoherentMemory::make(*fake_, makeProtocol(setup), options);
  EXPECT_TRUE(made.ok()) << lastErrorText();
  objects_ = std::move(*made);
  current = objects_.get();
  fake_->clearLog();
}

Machine::~Machine() {
  os::failNext(os::Call::kProtect, 0, 0);
  fake_->failNext(Op::Kind::kCopyIn, 0, adsmSuccess);
  objects_.reset();
  current = nullptr;
  EXPECT_EQ(fake_->liveAllocations(), 0u);
  EXPECT_EQ(fake_->livePins(), 0u);
  EXPECT_THAT(fake_->complaints(), ::testing::IsEmpty());
}

std::byte* Machine::allocate(std::size_t bytes, accel::Placement placement) {
  auto address = objects().allocate(bytes, placement);
  EXPECT_TRUE(address.ok()) << lastErrorText();
  verify();
  return address.ok() ? static_cast<std::byte*>(*address) : nullptr;
}

void Machine::free(void* object) {
  EXPECT_TRUE(objects().free(object).ok()) << lastErrorText();
  verify();
}

Status Machine::tryCall(adsmKernel_t kernel, std::vector<const void*> args) {
  std::vector<void*> pointers;
  for (const void*& argument : args) {
    pointers.push_back(&argument);
  }
  return objects().call(kernel, {{1, 1, 1}, {1, 1, 1}, 0}, pointers.data(), std::nullopt);
}

Status Machine::tryCallUsing(adsmKernel_t kernel, std::vector<const void*> args,
                             std::vector<adsmUse_t> uses) {
  std::vector<void*> pointers;
  for (const void*& argument : args) {
    pointers.push_back(&argument);
  }
  return objects().call(kernel, {{1, 1, 1}, {1, 1, 1}, 0}, pointers.data(),
                        std::span<const adsmUse_t>(uses));
}

void Machine::call(adsmKernel_t kernel, std::vector<const void*> args) {
  EXPECT_TRUE(tryCall(kernel, std::move(args)).ok()) << lastErrorText();
  verify();
}

void Machine::callUsing(adsmKernel_t kernel, std::vector<const void*> args,
                        std::vector<adsmUse_t> uses) {
  EXPECT_TRUE(tryCallUsing(kernel, std::move(args), std::move(uses)).ok()) << lastErrorText();
  verify();
}

Status Machine::tryCallRanges(adsmKernel_t kernel, std::vector<const void*> args,
                              std::vector<adsmRangeUse_t> uses) {
  std::vector<void*> pointers;
  for (const void*& argument : args) {
    pointers.push_back(&argument);
  }
  return objects().callRanges(kernel, {{1, 1, 1}, {1, 1, 1}, 0}, pointers.data(), uses);
}

void Machine::callRanges(adsmKernel_t kernel, std::vector<const void*> args,
                         std::vector<adsmRangeUse_t> uses) {
  EXPECT_TRUE(tryCallRanges(kernel, std::move(args), std::move(uses)).ok()) << lastErrorText();
  verify();
}

void Machine::sync() {
  EXPECT_TRUE(objects().sync().ok()) << lastErrorText();
  verify();
}

bool Machine::launch(accel::NativeStream stream, std::function<void()> work) {
  if (objects_->work().mayRepeat() && objects_->work().beginRepeated(stream)) {
    fake_->submit(stream, std::move(work));
    objects_->work().endRepeated(stream, true);
    return true;
  }
  const coherence::DeviceRange everything{nullptr, 0, true};
  const Status begun = objects_->work().beginDeviceWork(stream, {&everything, 1});
  EXPECT_TRUE(begun.ok()) << lastErrorText();
  if (begun.ok()) {
    fake_->submit(stream, std::move(work));
    EXPECT_TRUE(objects_->work().endDeviceWork(stream, true).ok()) << lastErrorText();
  }
  return false;
}

void Machine::launchListed(accel::NativeStream stream, const std::vector<Use>& uses,
                           std::function<void()> work) {
  std::vector<coherence::DeviceRange> ranges{{nullptr, 0, true, false, true}};
  for (const Use& use : uses) {
    ranges.push_back({use.address, 1, use.write, true});
  }
  const Status begun = objects_->work().beginDeviceWork(stream, ranges);
  EXPECT_TRUE(begun.ok()) << lastErrorText();
  if (begun.ok()) {
    fake_->submit(stream, std::move(work));
    EXPECT_TRUE(objects_->work().endDeviceWork(stream, true).ok()) << lastErrorText();
  }
}

void Machine::verify() {
  const Status status = objects().verify();
  EXPECT_TRUE(status.ok()) << lastErrorText();
}

std::ostream& operator<<(std::ostream& out, const Footprint& footprint) {
  return out << footprint.mappings << " mappings, " << footprint.fileBytes
             << " bytes in memory files, " << footprint.fileDescriptors << " descriptors";
}

Footprint measureFootprint() {
  Footprint footprint;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // Memory files, and address space without access: heaps and stacks come and go with the C
    // library. A sanitizer reserves address space of its own whenever it likes.
    const bool reserved = !kSanitized && line.find(" ---p ") != std::string::npos;
    footprint.mappings += reserved || line.find("/memfd:") != std::string::npos ? 1 : 0;
  }
  DIR* directory = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(directory)) {
    struct stat status = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    char target[256] = {};
    if (readlink(path.c_str(), target, sizeof target - 1) <= 0) {
      continue;
    }
    ++footprint.fileDescriptors;
    if (std::string(target).find("/memfd:gmac") != std::string::npos &&
        stat(path.c_str(), &status) == 0) {
      footprint.fileBytes += static_cast<std::size_t>(status.st_blocks) * 512;
    }
  }
  closedir(directory);
  return footprint;
}

os::Access accessAt(const void* address) {
  auto mappings = os::readMappings();
  EXPECT_TRUE(mappings.ok());
  return os::loosestAccess(*mappings, reinterpret_cast<std::uintptr_t>(address), 1);
}

Op copyIn(const void* device, std::size_t bytes) {
  return {Op::Kind::kCopyIn, reinterpret_cast<std::uintptr_t>(device), bytes, {}};
}

Op copyOut(const void* device, std::size_t bytes) {
  return {Op::Kind::kCopyOut, reinterpret_cast<std::uintptr_t>(device), bytes, {}};
}

}  // namespace gmac::testing
