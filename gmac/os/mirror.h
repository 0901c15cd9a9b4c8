// SPDX-License-Identifier: Apache-2.0
//
// The CPU side of an object: pages at the object's own address (the app view) that copies access
// whatever their protection is. There are two kinds:
//
//  - memory file: pages of a file, mapped at the object's address and a second time where the
//    runtime and the accelerator's copies access them;
//  - moved pages: anonymous huge pages that are pinned at a staging address and then moved under
//    the object's address; copies keep using the staging address.
//
// Pages come in chunks. A chunk is prepared (populated and pinned; long) and then installed (put
// under the app view with the protections that its bytes have by then; short). Only bytes of
// installed chunks may be copied or accessed.
//
// Shared preconditions: offsets and lengths are multiples of the page size inside the mirror. A
// mirror keeps no lock: the caller serialises install and protect (which may run beside prepare),
// prepares a chunk from one thread at a time, and destroys a mirror when no copy names it. None of
// these functions touches an app view.
#ifndef GMAC_OS_MIRROR_H_
#define GMAC_OS_MIRROR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gmac/base/descriptor.h"
#include "gmac/base/range_allocator.h"
#include "gmac/base/status.h"
#include "gmac/os/memory.h"

namespace gmac::os {

// Makes pages accessible to copies; implemented by the code that knows the accelerator.
class Pinner {
 public:
  virtual ~Pinner() = default;
  // `fd` is the memory file behind the range (`offset` in it), or -1. May populate the range.
  // Blocks.
  virtual Status pin(void* address, std::size_t bytes, int fd, std::int64_t offset) = 0;
  virtual Status unpin(void* address, std::size_t bytes, int fd, std::int64_t offset) = 0;
};

// Where bytes of a mirror are that is a memory file.
struct FilePlace {
  int file;                  // the descriptor, to be used at once
  std::uint64_t fileNumber;  // of no other file of this process, ever
  std::int64_t fileBytes;    // its length, which only grows
  std::int64_t offset;
};

// One run of equal protection.
struct AccessRun {
  std::size_t bytes;
  Access access;
};

// The protection that the bytes from an offset on must have. Called by install; must not fail.
class AccessMap {
 public:
  virtual AccessRun at(std::size_t offset) const = 0;

 protected:
  ~AccessMap() = default;
};

class Mirror {
 public:
  virtual ~Mirror() = default;

  std::byte* address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t chunkBytes() const noexcept { return chunkBytes_; }
  std::size_t chunkCount() const noexcept { return (bytes_ + chunkBytes_ - 1) / chunkBytes_; }

  // "file" or "moved".
  virtual const char* kind() const noexcept = 0;

  // The address that copies use for the byte at `offset`.
  virtual void* copyAddress(std::size_t offset) const noexcept = 0;

  // Where the CPU may store the byte at `offset` of an installed chunk whatever the app view's
  // protection is. NULL: nowhere.
  virtual std::byte* runtimeView(std::size_t) const noexcept { return nullptr; }

  // Where the byte at `offset` is in a memory file that cannot shrink. Nothing: it is in none.
  virtual std::optional<FilePlace> place(std::size_t) const { return std::nullopt; }

  // Whether the app view's pages exist before the chunk is installed (they are zero and current
  // then).
  virtual bool readableBeforeInstall() const noexcept = 0;

  // Populates and pins a chunk. Undone by the destructor. Exempt from the fault path's rule against
  // allocation: the driver may allocate.
  virtual Status prepare(std::size_t chunk) = 0;
  // Puts a prepared chunk under the app view with the protections of `map`. Never gives a byte more
  // access than `map` does, not even for a moment. Fault path.
  virtual Status install(std::size_t chunk, const AccessMap& map) = 0;
  // Changes the protection of the app view, but for what is a part's. Bytes of chunks that are not
  // installed get their protection from install. Fault path.
  Status protect(std::size_t offset, std::size_t length, Access access);
  // Removes the app view, as the destructor would; pages stay pinned. The rest of the destructor's
  // work (the driver unpins page by page) may then be done later and by any thread. Only
  // destruction may follow.
  virtual void withdraw() noexcept = 0;

  // Some of one installed chunk's pages as a mirror of their own, of one chunk, which is installed.
  // protect() passes over them until that is destroyed, before this one; it does not run when that
  // is made or destroyed. Throws std::bad_alloc.
  std::unique_ptr<Mirror> part(std::size_t offset, std::size_t bytes);

  // Puts readable and writable pages after the mirror's last one, in place of what is mapped there,
  // until removeMargin() or withdraw(), which leave a mapping without access. Where a device uses
  // the app view's pages, what reaches over their end finds these. They are no part of the mirror.
  Status addMargin(std::size_t bytes);
  void removeMargin() noexcept;

 protected:
  Mirror(void* address, std::size_t bytes, std::size_t chunkBytes)
      : address_(static_cast<std::byte*>(address)), bytes_(bytes), chunkBytes_(chunkBytes) {}

  // As protect(), of parts, too.
  virtual Status protectPages(std::size_t offset, std::size_t length, Access access) = 0;

  std::byte* address_;
  std::size_t bytes_;
  std::size_t chunkBytes_;

 private:
  friend class MirrorPart;
  struct Part {
    std::size_t begin, end;
  };

  std::size_t marginBytes_ = 0;
  std::vector<Part> parts_;  // in order
};

// Ranges of one growing memory file: any number of objects takes one file descriptor. They share
// views of the file, so the runtime's access to an object takes no mapping of its own. If the
// program closes the descriptor, existing mappings stay and the program's new file under that
// number is left alone; allocate, map and pinnable then fail with adsmErrorSystem, and freed ranges
// are not reused. Thread-safe.
class FileArena {
 public:
  static Result<std::unique_ptr<FileArena>> make();
  ~FileArena();
  FileArena(const FileArena&) = delete;
  FileArena& operator=(const FileArena&) = delete;

  // The descriptor's number, only to tell ranges apart.
  int fd() const noexcept { return file_.get(); }
  // The descriptor, for mapping or sending it at once.
  Result<int> use() const noexcept { return file_.use("the memory file of shared objects"); }
  // A shared mapping of a range at a fixed address (address != NULL) or anywhere.
  Result<void*> map(void* address, std::size_t bytes, std::int64_t offset, Access access) const;
  // A range of the file that reads as zero; page-aligned.
  Result<std::int64_t> allocate(std::size_t bytes);
  void free(std::int64_t offset, std::size_t bytes);
  // Where that is for others. Nothing: the descriptor is closed.
  std::optional<FilePlace> place(std::int64_t offset) const;
  // The address of such a range's bytes, readable and writable until it is freed.
  std::byte* view(std::int64_t offset);

 private:
  // Consecutive bytes of the file at consecutive addresses. The addresses are reserved as a whole
  // and mapped as far as the file goes, plus a step.
  struct View {
    std::int64_t begin;
    std::int64_t bytes;
    std::int64_t mapped;
    std::byte* address;
    RangeAllocator free;  // its ranges, by their offsets in the file
  };

  explicit FileArena(Descriptor file);

  const Descriptor file_;
  const std::uint64_t number_;
  mutable std::mutex lock_;
  Status addView(std::int64_t least);
  Status mapUpTo(View& view, std::int64_t end);
  View& viewOf(std::int64_t offset);
  // Makes [offset, offset + bytes) of the file and its view usable.
  Status open(View& view, std::int64_t offset, std::int64_t bytes);
  // Lengthens the file, ahead of need where it may, so that its length seldom changes.
  Status grow(std::int64_t end);

  std::int64_t size_ = 0;    // of the file: no range ends after it
  std::vector<View> views_;  // by their beginnings
};

struct MirrorPlace {
  void* address;           // of the app view, or NULL: anywhere; aligned to 2 MiB for moved pages
  std::size_t bytes;       // a multiple of the page size
  std::size_t chunkBytes;  // a multiple of 2 MiB
  Access access;           // the app view's first protection
};

// When destroyed, both leave a mapping without access if the place named an address, and nothing
// otherwise.
Result<std::unique_ptr<Mirror>> makeFileMirror(const MirrorPlace& place, FileArena& arena,
                                               Pinner& pinner);
Result<std::unique_ptr<Mirror>> makeMovedMirror(const MirrorPlace& place, Pinner& pinner);

}  // namespace gmac::os

#endif  // GMAC_OS_MIRROR_H_
