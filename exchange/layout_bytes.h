// SPDX-License-Identifier: Apache-2.0
//
// Layouts as bytes, for other processes of the same host, and the names by which they know them.
#ifndef GMAC_EXCHANGE_LAYOUT_BYTES_H_
#define GMAC_EXCHANGE_LAYOUT_BYTES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "gmac/base/status.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange {

// Of the bytes of a layout: equal layouts have equal ones, as layouts are canonical. Not
// cryptographic: the processes of a job trust each other with their data anyway.
using LayoutHash = std::array<std::uint64_t, 2>;
LayoutHash hashOf(std::span<const std::byte> bytes);

// In the canonical form: a strided layout of d dims takes 32 + 16 d bytes; a list 8 bytes a block
// more where all blocks are of one length, else 16.
std::vector<std::byte> encode(const datatype::Layout& layout);
// adsmErrorInvalidValue: these are no bytes of encode()'s. Reads each byte once, so that whoever
// else writes there meanwhile can do no harm.
Result<datatype::Layout> decode(std::span<const std::byte> bytes);

// Reads a list without dims from its bytes, part by part, as they come to be there. As decode(), it
// reads each byte once.
class LayoutReader {
 public:
  // All bytes of encode() will be there; of more than a header.
  explicit LayoutReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  // Whether the layout's bytes can be read so.
  static bool reads(const datatype::Layout& layout) {
    return layout.dims().empty() && layout.blocks().size() > 1;
  }

  struct Part {
    // The blocks of the part behind a block of `first` bytes, of which nothing may be used: so each
    // byte has the same place in packed order as in the whole.
    datatype::Layout layout;
    std::int64_t first;  // in packed order
    std::int64_t last;
    datatype::Bounds bounds;  // of the part
  };
  // The blocks that follow the last part's, as far as their bytes are among the first `there`; at
  // most kMaxBlocks. Nothing: there is no such block yet, or it was the last. adsmErrorInvalidValue
  // as of decode(), or the layout cannot be read so.
  Result<std::optional<Part>> next(std::size_t there);

 private:
  static constexpr std::uint64_t kMaxBlocks = 8192;

  const std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint64_t left_ = 0;  // blocks
  std::int64_t blockBytes_ = 0;
  std::int64_t packed_ = 0;
};

// A layout that may be sent: its bytes and their hash. Made once for a datatype, as it takes
// O(blocks), and shared by any number of messages. Immutable.
struct SharedLayout {
  datatype::Layout layout;
  std::vector<std::byte> bytes;
  LayoutHash hash;
};
using SharedLayoutPtr = std::shared_ptr<const SharedLayout>;
SharedLayoutPtr shareLayout(datatype::Layout layout);

// Layouts of others by their hash: those that they have sent, and those of any number of elements
// of the types that all processes have made; of both the ones that were used last. Thread-safe.
class LayoutTable {
 public:
  explicit LayoutTable(std::size_t most) : most_(most) {}
  // The layout of that hash, with so many bytes of payload; NULL: it is not known, or not any more.
  // O(blocks) for each type of which as many bytes are a whole number of elements, where the layout
  // was not found before.
  std::shared_ptr<const datatype::Layout> find(const LayoutHash& hash, std::int64_t bytes);
  void add(const LayoutHash& hash, std::shared_ptr<const datatype::Layout> layout);
  // A type: an element, and the bytes from one to the next. A type that is added twice is to be
  // removed twice.
  void addType(std::shared_ptr<const datatype::Layout> element, std::int64_t extent);
  void removeType(const datatype::Layout& element, std::int64_t extent);
  // A layout was known, though it is not from here.
  void countHit();

  struct Counts {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
  };
  Counts counts() const;

 private:
  struct Entry {
    LayoutHash hash;
    std::shared_ptr<const datatype::Layout> layout;
  };
  struct Type {
    std::shared_ptr<const datatype::Layout> element;
    std::int64_t extent;
  };
  static std::shared_ptr<const datatype::Layout> ofType(const Type& type, const LayoutHash& hash,
                                                        std::int64_t bytes);
  std::shared_ptr<const datatype::Layout> findAdded(const LayoutHash& hash);
  std::vector<Type> types() const;

  const std::size_t most_;
  mutable std::mutex lock_;  // guards what follows
  std::vector<Type> types_;  // last added last; at most most_
  std::list<Entry> used_;    // last used first
  std::map<LayoutHash, std::list<Entry>::iterator> places_;
  Counts counts_;
};

}  // namespace gmac::exchange

#endif  // GMAC_EXCHANGE_LAYOUT_BYTES_H_
