// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/moved_pages.h"

#include <algorithm>
#include <cstdint>

#include "gmac/accel/devices.h"
#include "gmac/coherence/waits.h"

namespace gmac {

Status proveMovedPages(accel::Accelerator& accelerator, os::Pinner& pinner,
                       std::span<const std::size_t> stripes) {
  const std::size_t bytes = os::kHugePageBytes * std::max<std::size_t>(stripes.size(), 1);
  class Open final : public os::AccessMap {
   public:
    explicit Open(std::size_t bytes) : bytes_(bytes) {}
    os::AccessRun at(std::size_t offset) const override {
      return {bytes_ - offset, os::Access::kReadWrite};
    }

   private:
    const std::size_t bytes_;
  };
  auto device = stripes.empty()
                    ? accelerator.allocate(bytes, os::kHugePageBytes, accel::Placement::kAnywhere)
                    : accelerator.devices()->allocateStriped(bytes, os::kHugePageBytes,
                                                             accel::Placement::kAnywhere, stripes);
  if (!device.ok()) {
    return device.status();
  }
  const Status proof = [&]() -> Status {
    auto mirror = os::makeMovedMirror({nullptr, bytes, bytes, os::Access::kNone}, pinner);
    if (!mirror.ok()) {
      return mirror.status();
    }
    os::Mirror& pages = **mirror;
    GMAC_TRY(pages.prepare(0));
    GMAC_TRY(pages.install(0, Open(bytes)));
    // Some pieces of each huge page, word by word: this is part of every program's start.
    constexpr std::size_t kPieces = 4;
    const auto forEachWord = [&](const auto& visit) {
      for (std::size_t piece = 0; piece < bytes; piece += os::kHugePageBytes / kPieces) {
        auto* const words = reinterpret_cast<std::uint64_t*>(pages.address() + piece);
        for (std::size_t i = 0; i < kMovedGranularity / sizeof *words; ++i) {
          visit(words[i], piece + i * 0x9E3779B97F4A7C15U + (i >> 9));
        }
      }
    };
    forEachWord([](std::uint64_t& word, std::uint64_t pattern) { word = pattern; });
    GMAC_TRY(pages.protect(0, bytes, os::Access::kNone));
    auto in = accelerator.copyIn(*device, pages.copyAddress(0), bytes, kDone);
    if (!in.ok()) {
      return in.status();
    }
    GMAC_TRY(accelerator.wait(*in));
    GMAC_TRY(pages.protect(0, bytes, os::Access::kReadWrite));
    forEachWord([](std::uint64_t& word, std::uint64_t) { word = 0; });
    GMAC_TRY(pages.protect(0, bytes, os::Access::kNone));
    accel::Ticket last;
    for (std::size_t piece = 0; piece < bytes; piece += os::kHugePageBytes / kPieces) {
      auto out =
          accelerator.copyOut(pages.copyAddress(piece),
                              accel::DeviceAddress{static_cast<std::uintptr_t>(*device) + piece},
                              kMovedGranularity, kDone);
      if (!out.ok()) {
        (void)accelerator.wait(last);  // the copies before it are in flight to these pages
        return out.status();
      }
      last = *out;
    }
    GMAC_TRY(accelerator.wait(last));
    GMAC_TRY(pages.protect(0, bytes, os::Access::kRead));
    std::size_t wrong = 0;
    forEachWord(
        [&](std::uint64_t& word, std::uint64_t pattern) { wrong += word != pattern ? 1 : 0; });
    if (wrong != 0) {
      return fail(adsmErrorNotSupported, "copies do not reach moved pages ({} words differ)",
                  wrong);
    }
    return {};
  }();
  const Status freed = accelerator.free(*device, bytes);
  return proof.ok() ? freed : proof;
}

}  // namespace gmac
