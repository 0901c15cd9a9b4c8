// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <utility>

#include "gmac/os/mirror.h"

namespace gmac::os {
namespace {

// A mirror of anonymous huge pages that are pinned at a staging address and moved under the
// app view chunk by chunk. Owned by its object; see mirror.h for threads.
class MovedMirror final : public Mirror {
 public:
  MovedMirror(const MirrorPlace& place, Pinner& pinner)
      : Mirror(place.address, place.bytes, place.chunkBytes),
        pinner_(pinner),
        keepsAddress_(place.address != nullptr),
        chunks_(chunkCount()) {}

  ~MovedMirror() override {
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      if (chunks_[chunk] != Chunk::kEmpty) {
        (void)pinner_.unpin(staging_ + chunk * chunkBytes_, lengthOf(chunk), -1, 0);
      }
    }
    withdraw();
    if (staging_ != nullptr) {
      (void)unmap(staging_, bytes_);
    }
  }

  void withdraw() noexcept override {
    removeMargin();
    if (std::byte* const address = std::exchange(address_, nullptr); address != nullptr) {
      (void)(keepsAddress_ ? close(address, bytes_) : unmap(address, bytes_));
    }
  }

  Status map() {
    if (!keepsAddress_) {
      auto place = reserve(bytes_, kHugePageBytes);
      if (!place.ok()) {
        return place.status();
      }
      address_ = static_cast<std::byte*>(*place);
    }
    auto staging = reserve(bytes_, kHugePageBytes);
    if (!staging.ok()) {
      return staging.status();
    }
    staging_ = static_cast<std::byte*>(*staging);
    GMAC_TRY(mapAnonymous(staging_, bytes_));
    GMAC_TRY(keepFromChildren(staging_, bytes_));
    GMAC_TRY(close(address_, bytes_));
    return keepFromChildren(address_, bytes_);
  }

  const char* kind() const noexcept override { return "moved"; }

  void* copyAddress(std::size_t offset) const noexcept override { return staging_ + offset; }

  bool readableBeforeInstall() const noexcept override { return false; }

  Status prepare(std::size_t chunk) override {
    // Already prepared if an install failed; its staging pages may be closed or unmapped.
    if (chunks_[chunk] != Chunk::kEmpty) {
      return {};
    }
    std::byte* begin = staging_ + chunk * chunkBytes_;
    const std::size_t length = lengthOf(chunk);
    // One byte per huge page: where the system has none, pinning populates the rest.
    for (std::size_t offset = 0; offset < length; offset += kHugePageBytes) {
      *const_cast<volatile std::byte*>(begin + offset) = std::byte{0};
    }
    GMAC_TRY(pinner_.pin(begin, length, -1, 0));
    chunks_[chunk] = Chunk::kPinned;
    return {};
  }

  Status install(std::size_t chunk, const AccessMap& map) override {
    const std::size_t begin = chunk * chunkBytes_;
    const std::size_t length = lengthOf(chunk);
    // The chunk is closed while it moves and opened at its place, run by run. One mapping moves,
    // whatever its blocks' states.
    if (chunks_[chunk] != Chunk::kInstalled) {
      GMAC_TRY(os::protect(staging_ + begin, length, Access::kNone));
      GMAC_TRY(movePages(staging_ + begin, address_ + begin, length));
      chunks_[chunk] = Chunk::kInstalled;
    }
    for (std::size_t offset = begin; offset < begin + length;) {
      const AccessRun run = map.at(offset);
      const std::size_t bytes = std::min(run.bytes, begin + length - offset);
      if (run.access != Access::kNone) {
        GMAC_TRY(os::protect(address_ + offset, bytes, run.access));
      }
      offset += bytes;
    }
    return {};
  }

  Status protectPages(std::size_t offset, std::size_t length, Access access) override {
    const std::size_t end = offset + length;
    while (offset < end) {
      std::size_t chunk = offset / chunkBytes_;
      const bool installed = chunks_[chunk] == Chunk::kInstalled;
      while (chunk < chunks_.size() && chunk * chunkBytes_ < end &&
             (chunks_[chunk] == Chunk::kInstalled) == installed) {
        ++chunk;
      }
      const std::size_t stop = std::min(chunk * chunkBytes_, end);
      if (installed) {
        GMAC_TRY(os::protect(address_ + offset, stop - offset, access));
      }
      offset = stop;
    }
    return {};
  }

 private:
  enum class Chunk : std::uint8_t { kEmpty, kPinned, kInstalled };

  std::size_t lengthOf(std::size_t chunk) const {
    return std::min(chunkBytes_, bytes_ - chunk * chunkBytes_);
  }

  Pinner& pinner_;
  bool keepsAddress_;
  std::byte* staging_ = nullptr;
  // Atomic: prepare() of one chunk runs beside protect() of others. Of a chunk that is being
  // prepared they only ask whether it is installed.
  std::vector<std::atomic<Chunk>> chunks_;
};

}  // namespace

Result<std::unique_ptr<Mirror>> makeMovedMirror(const MirrorPlace& place, Pinner& pinner) {
  auto mirror = std::make_unique<MovedMirror>(place, pinner);
  GMAC_TRY(mirror->map());
  return std::unique_ptr<Mirror>(std::move(mirror));
}

}  // namespace gmac::os
