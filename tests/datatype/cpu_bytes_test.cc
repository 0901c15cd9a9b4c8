// SPDX-License-Identifier: Apache-2.0
//
// The short way to bytes that the CPU may use as they are (gmac/datatype/engine/cpu_bytes.h), over
// a port of the test's own.
#include "gmac/datatype/engine/cpu_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmac/coherence/memory_port.h"

namespace gmac::coherence {
namespace {

constexpr std::size_t kHalf = std::size_t{256} << 10;

// An object, each half of it current at one place, that counts how often it is asked.
class Object final : public MemoryPort {
 public:
  Object() : memory_(2 * kHalf, kOld), before_(open(ports_)) {
    shared_ranges::add(address(), address() + 2 * kHalf);
  }
  ~Object() {
    constexpr std::uintptr_t kGranule = shared_ranges::kGranuleBytes;
    shared_ranges::remove(address() / kGranule * kGranule,
                          (address() + 2 * kHalf + kGranule - 1) / kGranule * kGranule);
    open(before_);
  }
  Place placeOf(const void* address, std::size_t /*bytes*/) noexcept override {
    ++asked;
    const bool second = reinterpret_cast<std::uintptr_t>(address) >= this->address() + kHalf;
    const std::uintptr_t begin = this->address() + (second ? kHalf : 0);
    return {begin, begin + kHalf, second ? Current::kCpu : first_, placesChanged()};
  }
  void set(Current first) {
    first_ = first;
    notePlacesChanged();
  }
  std::byte* at(std::size_t offset) { return memory_.data() + offset; }

  static constexpr std::byte kOld{1};
  int asked = 0;

 private:
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory_.data()); }
  std::vector<std::byte> memory_;
  Current first_{};
  const Ports ports_{*this, work(), deviceMemory()};
  const Ports& before_;
};

class CpuBytes : public ::testing::Test {
 protected:
  // Whether so many bytes are read, and whether all of them are what the object has.
  bool reads(std::size_t offset, std::size_t bytes) {
    std::vector<std::byte> to(bytes + 1, kNone);
    const bool read = gmacReadOnCpu(to.data(), object_.at(offset), bytes) != 0;
    const auto got = static_cast<std::size_t>(std::count(to.begin(), to.end(), Object::kOld));
    EXPECT_EQ(got, read ? bytes : 0);
    return read;
  }
  // The same of writes.
  bool writes(std::size_t offset, std::size_t bytes) {
    const std::vector<std::byte> from(bytes, kNew);
    const bool wrote = gmacWriteOnCpu(object_.at(offset), from.data(), bytes) != 0;
    const auto put =
        static_cast<std::size_t>(std::count(object_.at(0), object_.at(2 * kHalf), kNew));
    EXPECT_EQ(put, wrote ? bytes : 0);
    std::fill(object_.at(0), object_.at(2 * kHalf), Object::kOld);
    return wrote;
  }

  static constexpr std::byte kNone{0};
  static constexpr std::byte kNew{2};
  Object object_;
};

TEST_F(CpuBytes, AreReadAndWrittenWhereOnlyTheCpuHasThem) {
  object_.set(Current::kCpu);
  for (const std::size_t bytes : {1, 8, 63, 64, 1000, 4096, 65536}) {
    EXPECT_TRUE(reads(10, bytes));
    EXPECT_TRUE(writes(10, bytes));
  }
  EXPECT_EQ(object_.asked, 1);
}

TEST_F(CpuBytes, AreOnlyReadWhereTheAcceleratorHasThemToo) {
  object_.set(Current::kBoth);
  EXPECT_TRUE(reads(0, 100));
  EXPECT_FALSE(writes(0, 100));
}

TEST_F(CpuBytes, AreLeftToOthersWhereTheCpuMayNotUseThem) {
  for (const Current current : {Current::kAccelerator, Current::kNotShared}) {
    object_.set(current);
    EXPECT_FALSE(reads(0, 100));
    EXPECT_FALSE(writes(0, 100));
  }
}

TEST_F(CpuBytes, AreOfOnePlaceAndFew) {
  object_.set(Current::kBoth);
  EXPECT_FALSE(reads(kHalf - 1, 2));
  EXPECT_FALSE(writes(kHalf - 1, 2));
  EXPECT_TRUE(reads(kHalf, 65536));
  EXPECT_FALSE(reads(kHalf, 65537));
  EXPECT_FALSE(writes(kHalf, 65537));
  EXPECT_FALSE(reads(kHalf, 0));
  EXPECT_FALSE(writes(kHalf, 0));
}

TEST_F(CpuBytes, ArePlainMemoryIfTheyAreNoObjects) {
  const std::byte from{3};
  std::byte to{4};
  EXPECT_EQ(gmacReadOnCpu(&to, &from, 1), 0);
  EXPECT_EQ(gmacWriteOnCpu(&to, &from, 1), 0);
  EXPECT_EQ(to, std::byte{4});
  EXPECT_EQ(object_.asked, 0);
}

}  // namespace
}  // namespace gmac::coherence
