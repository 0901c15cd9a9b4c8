// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/object.h"

namespace gmac {

Object::Object(std::unique_ptr<os::Mirror> itsMirror, accel::DeviceAddress itsDevice,
               std::size_t itsBlockBytes, State initial)
    : mirror(std::move(itsMirror)),
      device(itsDevice),
      blockBytes(itsBlockBytes),
      blockCount((mirror->bytes() + itsBlockBytes - 1) / itsBlockBytes),
      open(all()),
      chunks(mirror->chunkCount(), Chunk::kEmpty),
      uses(mirror->chunkCount(), Use::kNone),
      blocks_(this, blockCount, initial) {}

const std::byte* Object::firstInvalid(const std::byte* first, const std::byte* last) const {
  const BlockRange range = covering(first, static_cast<std::size_t>(last - first));
  for (BlockIndex i = range.begin; i < range.end;) {
    if (groupClosed(i)) {
      return std::max<const std::byte*>(first, address() + offsetOf(i));
    }
    if (!made(i)) {
      i = groupEnd(i);
      continue;
    }
    const ByteRange block = bytesOf(i);
    const ByteRange wanted{std::max(block.begin, static_cast<std::size_t>(first - address())),
                           std::min(block.end, static_cast<std::size_t>(last - address()))};
    const ByteRange current = currentOf(i);
    if (!current.contains(wanted)) {
      const bool begins = current.begin <= wanted.begin && wanted.begin < current.end;
      return address() + (begins ? current.end : wanted.begin);
    }
    i = i + 1;
  }
  return last;
}

bool Object::has(ByteRange bytes) const {
  const BlockIndex index{bytes.begin / blockBytes};
  return (*this)[index].settled() && !protectionStale_ && currentOf(index).contains(bytes) &&
         (mirror->readableBeforeInstall() || pagesReady(bytes.begin, bytes.length()));
}

bool Object::usable(ByteRange bytes, Intent intent) const {
  const BlockIndex index{bytes.begin / blockBytes};
  return has(bytes) && openOf(index).contains(bytes) &&
         (intent == Intent::kRead ||
          (isDirty((*this)[index].state) && pagesReady(bytes.begin, bytes.length())));
}

}  // namespace gmac
