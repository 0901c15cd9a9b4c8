// SPDX-License-Identifier: Apache-2.0
#include "tests/support/own_mappings.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>

#include "gmac/os/mapping_budget.h"

namespace gmac::testing {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

std::size_t mappingCount() {
  std::array<char, 4096> buffer;
  const auto count = os::countMappings(buffer.data(), buffer.size());
  EXPECT_TRUE(count.has_value());
  return count.value_or(0);
}

// Pages with turns of access, between two of another kind than whatever is beside them: the first
// and the last page are closed, and count with what is reserved around them.
OwnMappings::OwnMappings(std::size_t count) : bytes_((count + 1) * kPageBytes) {
  address_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(address_, MAP_FAILED);
  for (std::size_t page = 1; page < count; page += 2) {
    EXPECT_EQ(mprotect(static_cast<char*>(address_) + page * kPageBytes, kPageBytes, PROT_READ), 0);
  }
}

OwnMappings::~OwnMappings() { munmap(address_, bytes_); }

}  // namespace gmac::testing
