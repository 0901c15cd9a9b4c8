// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "gmac/os/mirror.h"

namespace gmac::os {

Result<std::unique_ptr<FileArena>> FileArena::make() {
  auto file = makeMemoryFile("gmac");
  if (!file.ok()) {
    return file.status();
  }
  return std::unique_ptr<FileArena>(new FileArena(std::move(*file)));
}

Result<void*> FileArena::map(void* address, std::size_t bytes, std::int64_t offset,
                             Access access) const {
  auto fd = use();
  if (!fd.ok()) {
    return fd.status();
  }
  return mapFile(address, bytes, *fd, offset, access);
}

Result<std::int64_t> FileArena::allocate(std::size_t bytes) {
  const auto wanted = static_cast<std::int64_t>(bytes);
  const std::lock_guard guard(lock_);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    if (range->second >= wanted) {
      const auto [offset, length] = *range;
      free_.erase(range);
      if (length > wanted) {
        free_.emplace(offset + wanted, length - wanted);
      }
      return offset;
    }
  }
  const std::int64_t offset = size_;
  auto fd = use();
  if (!fd.ok()) {
    return fd.status();
  }
  GMAC_TRY(resizeFile(*fd, size_ + wanted));
  size_ += wanted;
  return offset;
}

void FileArena::free(std::int64_t offset, std::size_t bytes) {
  auto length = static_cast<std::int64_t>(bytes);
  // A range whose pages cannot be given back must not be handed out again: it would not read as
  // zero.
  auto fd = use();
  if (!fd.ok() || !punchHole(*fd, offset, length).ok()) {
    return;
  }
  const std::lock_guard guard(lock_);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + length) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += length;
      return;
    }
  }
  free_.emplace(offset, length);
}

namespace {

// Role: a mirror of memory-file pages with a second mapping for copies. Owned by its object; see
// mirror.h for threads.
class FileMirror final : public Mirror {
 public:
  FileMirror(const MirrorPlace& place, FileArena& arena, Pinner& pinner, std::int64_t offset)
      : Mirror(place.address, place.bytes, place.chunkBytes),
        arena_(arena),
        pinner_(pinner),
        offset_(offset),
        keepsAddress_(place.address != nullptr),
        pinned_(chunkCount(), false) {}

  ~FileMirror() override {
    for (std::size_t chunk = 0; chunk < pinned_.size(); ++chunk) {
      if (pinned_[chunk]) {
        (void)pinner_.unpin(runtimeView_ + chunk * chunkBytes_, lengthOf(chunk), arena_.fd(),
                            offset_ + static_cast<std::int64_t>(chunk * chunkBytes_));
      }
    }
    withdraw();
    if (runtimeView_ != nullptr) {
      (void)unmap(runtimeView_, bytes_);
    }
    arena_.free(offset_, bytes_);
  }

  void withdraw() noexcept override {
    if (std::exchange(appMapped_, false)) {
      (void)(keepsAddress_ ? close(address_, bytes_) : unmap(address_, bytes_));
    }
  }

  Status map(Access access) {
    auto view = arena_.map(nullptr, bytes_, offset_, Access::kReadWrite);
    if (!view.ok()) {
      return view.status();
    }
    runtimeView_ = static_cast<std::byte*>(*view);
    GMAC_TRY(keepFromChildren(runtimeView_, bytes_));
    GMAC_TRY(keepFromDumps(runtimeView_, bytes_));
    auto app = arena_.map(address_, bytes_, offset_, access);
    if (!app.ok()) {
      return app.status();
    }
    address_ = static_cast<std::byte*>(*app);
    appMapped_ = true;
    return keepFromChildren(address_, bytes_);
  }

  const char* kind() const noexcept override { return "file"; }

  void* copyAddress(std::size_t offset) const noexcept override { return runtimeView_ + offset; }

  bool readableBeforeInstall() const noexcept override { return true; }

  Status prepare(std::size_t chunk) override {
    const std::size_t begin = chunk * chunkBytes_;
    auto fd = arena_.use();
    if (!fd.ok()) {
      return fd.status();
    }
    GMAC_TRY(pinner_.pin(runtimeView_ + begin, lengthOf(chunk), *fd,
                         offset_ + static_cast<std::int64_t>(begin)));
    pinned_[chunk] = true;
    return {};
  }

  // The app view has been there from the start, with its protections.
  Status install(std::size_t, const AccessMap&) override { return {}; }

  Status protect(std::size_t offset, std::size_t length, Access access) override {
    return os::protect(address_ + offset, length, access);
  }

 private:
  std::size_t lengthOf(std::size_t chunk) const {
    return std::min(chunkBytes_, bytes_ - chunk * chunkBytes_);
  }

  FileArena& arena_;
  Pinner& pinner_;
  std::int64_t offset_;
  bool keepsAddress_;
  bool appMapped_ = false;
  std::byte* runtimeView_ = nullptr;
  std::vector<char> pinned_;
};

}  // namespace

Result<std::unique_ptr<Mirror>> makeFileMirror(const MirrorPlace& place, FileArena& arena,
                                               Pinner& pinner) {
  auto offset = arena.allocate(place.bytes);
  if (!offset.ok()) {
    return offset.status();
  }
  auto mirror = std::make_unique<FileMirror>(place, arena, pinner, *offset);
  GMAC_TRY(mirror->map(place.access));
  return std::unique_ptr<Mirror>(std::move(mirror));
}

}  // namespace gmac::os
