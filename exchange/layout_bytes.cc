// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout_bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gmac::exchange {
namespace {

using datatype::Block;
using datatype::Dim;
using datatype::Layout;
using Wide = unsigned __int128;

struct Header {
  static constexpr std::uint32_t kMagic = 0x6c616d67;
  std::uint32_t magic;
  std::uint32_t dims;
  std::uint64_t blocks;
  std::int64_t blockBytes;  // of each; 0: lengths follow
};

constexpr std::uint64_t kMaxDims = 64;

constexpr Wide wide(std::uint64_t high, std::uint64_t low) { return Wide{high} << 64 | low; }
// Odd numbers without a pattern: the digits of pi, and those of e.
constexpr Wide kSpread = wide(0x243f6a8885a308d3, 0x13198a2e03707345);
constexpr Wide kMix = wide(0xadf85458a2bb4a9a, 0xafdc5620273d3cf1);

Wide turned(Wide value, int bits) { return value << bits | value >> (128 - bits); }

// Puts values one after the other where there is room for them.
class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}
  template <typename T>
  void put(const T& value) {
    std::memcpy(to_, &value, sizeof value);
    to_ += sizeof value;
  }

 private:
  std::byte* to_;
};

std::size_t bytesOfBlock(std::int64_t blockBytes) {
  return sizeof(std::int64_t) * (blockBytes == 0 ? 2 : 1);
}

// Takes values off the front.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  std::size_t left() const { return left_.size(); }
  template <typename T>
  T take() {
    T value{};
    if (left_.size() >= sizeof value) {
      std::memcpy(&value, left_.data(), sizeof value);
      left_ = left_.subspan(sizeof value);
    }
    return value;
  }

 private:
  std::span<const std::byte> left_;
};

}  // namespace

LayoutHash hashOf(std::span<const std::byte> bytes) {
  Wide hash = wide(0x452821e638d01377, 0xbe5466cf34e90c6c) + bytes.size();
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    hash = turned((hash ^ Wide{word} * kSpread) * kMix, 59);
  }
  // The high half depends on all bits by now, the low half not yet.
  hash ^= hash >> 67;
  hash *= kSpread;
  hash ^= hash >> 61;
  return {static_cast<std::uint64_t>(hash >> 64), static_cast<std::uint64_t>(hash)};
}

std::vector<std::byte> encode(const Layout& layout) {
  const Header header{Header::kMagic, static_cast<std::uint32_t>(layout.dims().size()),
                      layout.blocks().size(), layout.blockBytes()};
  std::vector<std::byte> bytes(sizeof header + layout.dims().size() * sizeof(Dim) +
                               layout.blocks().size() * bytesOfBlock(header.blockBytes));
  Writer writer(bytes.data());
  writer.put(header);
  for (const Dim& dim : layout.dims()) {
    writer.put(dim);
  }
  for (const Block& block : layout.blocks()) {
    writer.put(block.offset);
    if (header.blockBytes == 0) {
      writer.put(block.bytes);
    }
  }
  return bytes;
}

Result<Layout> decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const auto header = reader.take<Header>();
  const std::size_t blockRoom = bytesOfBlock(header.blockBytes);
  if (header.magic != Header::kMagic || header.dims > kMaxDims || header.blockBytes < 0 ||
      header.blocks > bytes.size() / blockRoom ||
      reader.left() != header.dims * sizeof(Dim) + header.blocks * blockRoom) {
    return fail(adsmErrorInvalidValue, "exchange: {} bytes are no layout", bytes.size());
  }
  std::vector<Dim> dims(header.dims);
  for (Dim& dim : dims) {
    dim = reader.take<Dim>();
  }
  std::vector<Block> blocks(header.blocks);
  for (Block& block : blocks) {
    block.offset = reader.take<std::int64_t>();
    block.bytes = header.blockBytes == 0 ? reader.take<std::int64_t>() : header.blockBytes;
  }
  return Layout::make(dims, blocks);
}

Result<std::optional<LayoutReader::Part>> LayoutReader::next(std::size_t there) {
  const auto refused = [&] {
    return fail(adsmErrorInvalidValue, "exchange: {} bytes are no list of blocks", bytes_.size());
  };
  there = std::min(there, bytes_.size());
  if (at_ == 0) {
    if (bytes_.size() <= sizeof(Header)) {
      return refused();
    }
    if (there < sizeof(Header)) {
      return std::optional<Part>();
    }
    const auto header = Reader(bytes_).take<Header>();
    const std::size_t room = bytesOfBlock(header.blockBytes);
    if (header.magic != Header::kMagic || header.dims != 0 || header.blockBytes < 0 ||
        header.blocks > bytes_.size() / room ||
        bytes_.size() != sizeof header + header.blocks * room) {
      return refused();
    }
    at_ = sizeof header;
    left_ = header.blocks;
    blockBytes_ = header.blockBytes;
  }
  const std::size_t room = bytesOfBlock(blockBytes_);
  const std::uint64_t count = std::min({left_, (there - at_) / room, kMaxBlocks});
  if (count == 0) {
    return std::optional<Part>();
  }
  Part part{{}, packed_, packed_, {INT64_MAX, INT64_MIN}};
  std::vector<Block> blocks(count + 1);
  blocks[0] = {0, packed_};
  Reader reader(bytes_.subspan(at_, count * room));
  for (std::uint64_t i = 1; i <= count; ++i) {
    Block& block = blocks[i];
    block.offset = reader.take<std::int64_t>();
    block.bytes = blockBytes_ == 0 ? reader.take<std::int64_t>() : blockBytes_;
    std::int64_t end = 0;
    if (block.bytes < 0 || __builtin_add_overflow(block.offset, block.bytes, &end) ||
        __builtin_add_overflow(part.last, block.bytes, &part.last)) {
      return refused();
    }
    part.bounds.first = std::min(part.bounds.first, block.offset);
    part.bounds.last = std::max(part.bounds.last, end);
  }
  Result<Layout> layout = Layout::make({}, blocks);
  GMAC_TRY(layout.status());
  part.layout = std::move(*layout);
  packed_ = part.last;
  at_ += count * room;
  left_ -= count;
  return std::optional<Part>(std::move(part));
}

SharedLayoutPtr shareLayout(Layout layout) {
  std::vector<std::byte> bytes = encode(layout);
  const LayoutHash hash = hashOf(bytes);
  return std::make_shared<const SharedLayout>(
      SharedLayout{std::move(layout), std::move(bytes), hash});
}

std::shared_ptr<const Layout> LayoutTable::find(const LayoutHash& hash, std::int64_t bytes) {
  if (auto added = findAdded(hash)) {
    return added;
  }
  for (const Type& type : types()) {
    if (auto layout = ofType(type, hash, bytes)) {
      add(hash, layout);
      countHit();
      return layout;
    }
  }
  const std::lock_guard guard(lock_);
  ++counts_.misses;
  return nullptr;
}

std::shared_ptr<const Layout> LayoutTable::findAdded(const LayoutHash& hash) {
  const std::lock_guard guard(lock_);
  const auto found = places_.find(hash);
  if (found == places_.end()) {
    return nullptr;
  }
  ++counts_.hits;
  used_.splice(used_.begin(), used_, found->second);
  return found->second->layout;
}

// The layout of as many elements as have so many bytes, if that is the one with that hash.
std::shared_ptr<const Layout> LayoutTable::ofType(const Type& type, const LayoutHash& hash,
                                                  std::int64_t bytes) {
  const std::int64_t size = type.element->bytes();
  if (size == 0 || bytes % size != 0) {
    return nullptr;
  }
  Result<Layout> all = type.element->repeated(bytes / size, type.extent);
  if (!all.ok() || hashOf(encode(*all)) != hash) {
    return nullptr;
  }
  return std::make_shared<const Layout>(std::move(*all));
}

std::vector<LayoutTable::Type> LayoutTable::types() const {
  const std::lock_guard guard(lock_);
  return {types_.rbegin(), types_.rend()};
}

void LayoutTable::addType(std::shared_ptr<const Layout> element, std::int64_t extent) {
  const std::lock_guard guard(lock_);
  if (most_ == 0) {
    return;
  }
  if (types_.size() == most_) {
    types_.erase(types_.begin());
  }
  types_.push_back({std::move(element), extent});
}

void LayoutTable::removeType(const Layout& element, std::int64_t extent) {
  const std::lock_guard guard(lock_);
  const auto found = std::find_if(types_.rbegin(), types_.rend(), [&](const Type& type) {
    return type.extent == extent && *type.element == element;
  });
  if (found != types_.rend()) {
    types_.erase(std::next(found).base());
  }
}

void LayoutTable::add(const LayoutHash& hash, std::shared_ptr<const Layout> layout) {
  const std::lock_guard guard(lock_);
  if (most_ == 0 || places_.contains(hash)) {
    return;
  }
  if (used_.size() == most_) {
    places_.erase(used_.back().hash);
    used_.pop_back();
  }
  used_.push_front({hash, std::move(layout)});
  places_.emplace(hash, used_.begin());
}

void LayoutTable::countHit() {
  const std::lock_guard guard(lock_);
  ++counts_.hits;
}

LayoutTable::Counts LayoutTable::counts() const {
  const std::lock_guard guard(lock_);
  return counts_;
}

}  // namespace gmac::exchange
