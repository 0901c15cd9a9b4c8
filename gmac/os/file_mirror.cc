// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "gmac/os/mirror.h"

namespace gmac::os {
namespace {

// What a view reserves, where there is as much address space.
constexpr std::int64_t kViewBytes = std::int64_t{64} << 30;
// How far it is mapped ahead of need.
constexpr std::int64_t kMapStep = std::int64_t{64} << 20;

std::int64_t roundUpTo(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Of a limited address space (ulimit -v) the program needs the most part.
std::int64_t viewLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kViewBytes;
  }
  return std::min(kViewBytes, static_cast<std::int64_t>(limit.rlim_cur / 8));
}

}  // namespace

Result<std::unique_ptr<FileArena>> FileArena::make() {
  auto file = makeMemoryFile("gmac");
  if (!file.ok()) {
    return file.status();
  }
  std::unique_ptr<FileArena> arena(new FileArena(std::move(*file)));
  GMAC_TRY(arena->addView(1));
  GMAC_TRY(arena->mapUpTo(arena->views_.back(), 1));
  return arena;
}

Result<void*> FileArena::map(void* address, std::size_t bytes, std::int64_t offset,
                             Access access) const {
  auto fd = use();
  if (!fd.ok()) {
    return fd.status();
  }
  return mapFile(address, bytes, *fd, offset, access);
}

FileArena::~FileArena() {
  for (const View& view : views_) {
    (void)unmap(view.address, static_cast<std::size_t>(view.bytes));
  }
}

// Address space for `least` bytes more of the file, or for many more.
Status FileArena::addView(std::int64_t least) {
  least = roundUpTo(least, static_cast<std::int64_t>(pageBytes()));
  const std::int64_t begin = views_.empty() ? 0 : views_.back().begin + views_.back().bytes;
  views_.reserve(views_.size() + 1);
  for (std::int64_t bytes = std::max(viewLimit() / kMapStep * kMapStep, least);;
       bytes = std::max(bytes / 2 / kMapStep * kMapStep, least)) {
    auto place = reserve(static_cast<std::size_t>(bytes), pageBytes());
    if (place.ok()) {
      views_.push_back({begin, bytes, 0, static_cast<std::byte*>(*place)});
      return {};
    }
    if (bytes == least) {
      return place.status();
    }
  }
}

// What is mapped grows at its end: to the kernel it stays one mapping.
Status FileArena::mapUpTo(View& view, std::int64_t end) {
  if (end <= view.mapped) {
    return {};
  }
  const std::int64_t bytes = std::min(roundUpTo(end, kMapStep), view.bytes) - view.mapped;
  std::byte* const address = view.address + view.mapped;
  auto mapped =
      map(address, static_cast<std::size_t>(bytes), view.begin + view.mapped, Access::kReadWrite);
  if (!mapped.ok()) {
    return mapped.status();
  }
  GMAC_TRY(keepFromChildren(address, static_cast<std::size_t>(bytes)));
  GMAC_TRY(keepFromDumps(address, static_cast<std::size_t>(bytes)));
  view.mapped += bytes;
  return {};
}

FileArena::View& FileArena::viewOf(std::int64_t offset) {
  return *std::prev(std::upper_bound(views_.begin(), views_.end(), offset,
                                     [](std::int64_t o, const View& v) { return o < v.begin; }));
}

std::byte* FileArena::view(std::int64_t offset) {
  const std::lock_guard guard(lock_);
  const View& view = viewOf(offset);
  return view.address + (offset - view.begin);
}

bool FileArena::beginsView(std::int64_t offset) const {
  return std::any_of(views_.begin(), views_.end(),
                     [&](const View& view) { return view.begin == offset; });
}

Result<std::int64_t> FileArena::allocate(std::size_t bytes) {
  const auto wanted = static_cast<std::int64_t>(bytes);
  const std::lock_guard guard(lock_);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    if (range->second >= wanted) {
      const auto [offset, length] = *range;
      // The end of an older view may never have been used.
      View& view = viewOf(offset);
      GMAC_TRY(mapUpTo(view, offset + wanted - view.begin));
      free_.erase(range);
      if (length > wanted) {
        free_.emplace(offset + wanted, length - wanted);
      }
      return offset;
    }
  }
  std::int64_t offset = size_;
  if (offset + wanted > views_.back().begin + views_.back().bytes) {
    GMAC_TRY(addView(wanted));
    offset = views_.back().begin;
  }
  GMAC_TRY(mapUpTo(views_.back(), offset + wanted - views_.back().begin));
  auto fd = use();
  if (!fd.ok()) {
    return fd.status();
  }
  GMAC_TRY(resizeFile(*fd, offset + wanted));
  if (offset > size_) {
    giveBack(size_, offset - size_);  // the end of the view before
  }
  size_ = offset + wanted;
  return offset;
}

void FileArena::free(std::int64_t offset, std::size_t bytes) {
  const auto length = static_cast<std::int64_t>(bytes);
  // A range whose pages cannot be given back must not be handed out again: it would not read as
  // zero.
  auto fd = use();
  if (!fd.ok() || !punchHole(*fd, offset, length).ok()) {
    return;
  }
  const std::lock_guard guard(lock_);
  giveBack(offset, length);
}

void FileArena::giveBack(std::int64_t offset, std::int64_t length) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + length && !beginsView(next->first)) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && !beginsView(offset)) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += length;
      return;
    }
  }
  free_.emplace(offset, length);
}

namespace {

// A mirror of memory-file pages, which copies reach through a view of the file. Owned by its
// object; see mirror.h for threads.
class FileMirror final : public Mirror {
 public:
  FileMirror(const MirrorPlace& place, FileArena& arena, Pinner& pinner, std::int64_t offset)
      : Mirror(place.address, place.bytes, place.chunkBytes),
        arena_(arena),
        pinner_(pinner),
        offset_(offset),
        runtimeView_(arena.view(offset)),
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
    arena_.free(offset_, bytes_);
  }

  void withdraw() noexcept override {
    if (std::exchange(appMapped_, false)) {
      (void)(keepsAddress_ ? close(address_, bytes_) : unmap(address_, bytes_));
    }
  }

  Status map(Access access) {
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
  std::byte* const runtimeView_;
  bool keepsAddress_;
  bool appMapped_ = false;
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
