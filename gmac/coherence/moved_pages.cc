// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/moved_pages.h"

#include <algorithm>
#include <cstdint>

#include "gmac/coherence/waits.h"

namespace gmac {

Status proveMovedPages(accel::Accelerator& accelerator, os::Pinner& pinner) {
  constexpr std::size_t kBytes = os::kHugePageBytes;
  class Open final : public os::AccessMap {
    os::AccessRun at(std::size_t) const override { return {kBytes, os::Access::kReadWrite}; }
  };
  auto device = accelerator.allocate(kBytes, os::kHugePageBytes, accel::Placement::kAnywhere);
  if (!device.ok()) {
    return device.status();
  }
  const Status proof = [&]() -> Status {
    auto mirror = os::makeMovedMirror({nullptr, kBytes, kBytes, os::Access::kNone}, pinner);
    if (!mirror.ok()) {
      return mirror.status();
    }
    os::Mirror& pages = **mirror;
    GMAC_TRY(pages.prepare(0));
    GMAC_TRY(pages.install(0, Open()));
    // Word by word: this is part of every program's start.
    auto* const words = reinterpret_cast<std::uint64_t*>(pages.address());
    constexpr std::size_t kWords = kBytes / sizeof *words;
    const auto pattern = [](std::size_t i) { return i * 0x9E3779B97F4A7C15U + (i >> 9); };
    for (std::size_t i = 0; i < kWords; ++i) {
      words[i] = pattern(i);
    }
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kNone));
    auto in = accelerator.copyIn(*device, pages.copyAddress(0), kBytes, kDone);
    if (!in.ok()) {
      return in.status();
    }
    GMAC_TRY(accelerator.wait(*in));
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kReadWrite));
    std::fill_n(pages.address(), kBytes, std::byte{0});
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kNone));
    for (std::size_t offset = 0; offset < kBytes; offset += kMovedGranularity) {
      auto out =
          accelerator.copyOut(pages.copyAddress(offset),
                              accel::DeviceAddress{static_cast<std::uintptr_t>(*device) + offset},
                              kMovedGranularity, kDone);
      if (!out.ok()) {
        return out.status();
      }
      GMAC_TRY(accelerator.wait(*out));
    }
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kRead));
    for (std::size_t i = 0; i < kWords; ++i) {
      if (words[i] != pattern(i)) {
        return fail(adsmErrorNotSupported,
                    "copies do not reach moved pages (word {} of {} differs)", i, kWords);
      }
    }
    return {};
  }();
  const Status freed = accelerator.free(*device, kBytes);
  return proof.ok() ? freed : proof;
}

}  // namespace gmac
