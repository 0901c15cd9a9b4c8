// SPDX-License-Identifier: Apache-2.0
#include "datatypes/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "datatypes/cost.h"
#include "datatypes/failure.h"
#include "datatypes/figures.h"
#include "datatypes/ways.h"

namespace datatypes {

const Rates& Session::rates() {
  if (!rates_) {
    announce("the copy rates");
    constexpr std::int64_t kDeviceBytes = kGiB;
    constexpr std::int64_t kPinnedBytes = 256 * kMiB;
    const std::byte* const source = gpu_->source(kDeviceBytes);
    std::byte* const device = gpu_->target(Place::kDevice, kDeviceBytes);
    std::byte* const pinned = gpu_->target(Place::kPinned, kPinnedBytes);
    const auto copy = [&](std::byte* to, std::int64_t bytes) {
      return [this, to, source, bytes] {
        gpu_->copy(to, source, bytes);
        gpu_->synchronize();
      };
    };
    const Times times(
        {{"device", copy(device, kDeviceBytes), {}}, {"pinned", copy(pinned, kPinnedBytes), {}}},
        std::max<std::size_t>(rounds_, 3));
    rates_ = Rates{2.0 * kDeviceBytes / times.microseconds("device"),
                   1.0 * kPinnedBytes / times.microseconds("pinned")};
  }
  return *rates_;
}

const std::vector<Group>& groups() {
  static const std::vector<Group> all = [] {
    std::vector<Group> list = costGroups();
    for (Group& group : mpichFigures()) list.push_back(std::move(group));
    for (Group& group : openMpiFigures()) list.push_back(std::move(group));
    return list;
  }();
  return all;
}

void announce(const std::string& what) { fmt::print(stderr, "measuring: {}\n", what); }

void requireEqual(const std::string& way, const std::vector<std::byte>& expected,
                  const std::vector<std::byte>& found) {
  if (std::memcmp(expected.data(), found.data(), expected.size()) == 0) return;
  const auto [wrong, other] = std::mismatch(expected.begin(), expected.end(), found.begin());
  throw Failure(fmt::format("{}: byte {} of {} is wrong: {:#04x}, not {:#04x}", way,
                            wrong - expected.begin(), expected.size(),
                            static_cast<unsigned>(*other), static_cast<unsigned>(*wrong)));
}

}  // namespace datatypes
