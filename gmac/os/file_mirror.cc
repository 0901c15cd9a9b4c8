// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "gmac/base/own_mappings.h"
#include "gmac/base/round_up.h"
#include "gmac/os/mirror.h"

namespace gmac::os {
namespace {

// The address space that a view reserves, where there is as much.
constexpr std::int64_t kViewBytes = std::int64_t{64} << 30;
// A view is mapped so far ahead of need.
constexpr std::int64_t kMapStep = std::int64_t{64} << 20;

// Under a limit (ulimit -v) the program needs most of the address space.
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
  // Others may map it (place()), and would die of reading what is gone. A hole stays allowed.
  GMAC_TRY(keepFromShrinking(file->get()));
  std::unique_ptr<FileArena> arena(new FileArena(std::move(*file)));
  GMAC_TRY(arena->addView(1));
  GMAC_TRY(arena->mapUpTo(arena->views_.back(), 1));
  return arena;
}

namespace {
std::uint64_t nextNumber() {
  static std::atomic<std::uint64_t> made{0};
  return ++made;
}
}  // namespace

FileArena::FileArena(Descriptor file) : file_(std::move(file)), number_(nextNumber()) {}

std::optional<FilePlace> FileArena::place(std::int64_t offset) const {
  const Result<int> file = use();
  if (!file.ok()) {
    return std::nullopt;
  }
  const std::lock_guard guard(lock_);
  return FilePlace{*file, number_, size_, offset};
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
    own_mappings::remove(view.address);
    (void)unmap(view.address, static_cast<std::size_t>(view.bytes));
  }
}

// Reserves address space for at least `least` further bytes of the file, and for many more where
// there is room.
Status FileArena::addView(std::int64_t least) {
  least = roundUp(least, static_cast<std::int64_t>(pageBytes()));
  const std::int64_t begin = views_.empty() ? 0 : views_.back().begin + views_.back().bytes;
  views_.reserve(views_.size() + 1);
  for (std::int64_t bytes = std::max(viewLimit() / kMapStep * kMapStep, least);;
       bytes = std::max(bytes / 2 / kMapStep * kMapStep, least)) {
    auto place = reserve(static_cast<std::size_t>(bytes), pageBytes());
    if (place.ok()) {
      views_.push_back(
          {begin, bytes, 0, static_cast<std::byte*>(*place),
           RangeAllocator(static_cast<std::uintptr_t>(begin), static_cast<std::size_t>(bytes))});
      own_mappings::add(*place, static_cast<std::size_t>(bytes));
      return {};
    }
    if (bytes == least) {
      return place.status();
    }
  }
}

// The mapped part grows at its end: to the kernel it stays one mapping.
Status FileArena::mapUpTo(View& view, std::int64_t end) {
  if (end <= view.mapped) {
    return {};
  }
  const std::int64_t bytes = std::min(roundUp(end, kMapStep), view.bytes) - view.mapped;
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

Status FileArena::open(View& view, std::int64_t offset, std::int64_t bytes) {
  const std::int64_t end = offset + bytes;
  GMAC_TRY(mapUpTo(view, end - view.begin));
  return end <= size_ ? Status() : grow(end);
}

Status FileArena::grow(std::int64_t end) {
  auto fd = use();
  if (!fd.ok()) {
    return fd.status();
  }
  // Who has the file mapped maps it anew when it has grown. Pages that nobody touches take nothing.
  std::int64_t ahead = std::max(roundUp(end, kMapStep), 2 * size_);
  if (!resizeFile(*fd, ahead).ok()) {  // ulimit -f
    GMAC_TRY(resizeFile(*fd, end));
    ahead = end;
  }
  size_ = ahead;
  return {};
}

Result<std::int64_t> FileArena::allocate(std::size_t bytes) {
  const std::lock_guard guard(lock_);
  const auto taken = [&](View& view) -> std::optional<Result<std::int64_t>> {
    const auto place = view.free.take(bytes, 1);
    if (!place) {
      return std::nullopt;
    }
    const auto offset = static_cast<std::int64_t>(*place);
    Status status = open(view, offset, static_cast<std::int64_t>(bytes));
    if (!status.ok()) {
      view.free.giveBack(*place, bytes);
      return status;
    }
    return offset;
  };
  for (View& view : views_) {
    if (auto offset = taken(view)) {
      return *offset;
    }
  }
  GMAC_TRY(addView(static_cast<std::int64_t>(bytes)));
  return *taken(views_.back());
}

void FileArena::free(std::int64_t offset, std::size_t bytes) {
  const auto length = static_cast<std::int64_t>(bytes);
  // If its pages cannot be freed, a range must not be handed out again: it would not read as zero.
  auto fd = use();
  if (!fd.ok() || !punchHole(*fd, offset, length).ok()) {
    return;
  }
  const std::lock_guard guard(lock_);
  viewOf(offset).free.giveBack(static_cast<std::uintptr_t>(offset), bytes);
}

namespace {

// A mirror of memory-file pages; copies reach them through a view of the file. Owned by its object;
// see mirror.h for threads.
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
    removeMargin();
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

  std::byte* runtimeView(std::size_t offset) const noexcept override {
    return runtimeView_ + offset;
  }

  std::optional<FilePlace> place(std::size_t offset) const override {
    return arena_.place(offset_ + static_cast<std::int64_t>(offset));
  }

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

  // The app view has had its mapping and protections from the start.
  Status install(std::size_t, const AccessMap&) override { return {}; }

  Status protectPages(std::size_t offset, std::size_t length, Access access) override {
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
