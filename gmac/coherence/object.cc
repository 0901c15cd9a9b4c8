// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/object.h"

namespace gmac {

Object::Object(std::unique_ptr<os::Mirror> itsMirror, accel::DeviceAddress itsDevice,
               std::size_t itsBlockBytes, State initial)
    : mirror(std::move(itsMirror)),
      device(itsDevice),
      blockBytes(itsBlockBytes),
      blockCount((mirror->bytes() + itsBlockBytes - 1) / itsBlockBytes),
      blocks(this, blockCount, initial),
      open(all()),
      chunks(mirror->chunkCount(), Chunk::kEmpty),
      uses(mirror->chunkCount(), Use::kNone) {}

bool Object::usable(ByteRange bytes, Intent intent) const {
  const BlockIndex index{bytes.begin / blockBytes};
  const Block& block = blocks[static_cast<std::size_t>(index)];
  if (block.busy || strict) {
    return false;
  }
  const bool write = intent == Intent::kWrite;
  return currentOf(index).contains(bytes) && (!write || isDirty(block.state)) &&
         ((!write && mirror->readableBeforeInstall()) || pagesReady(bytes.begin, bytes.length()));
}

}  // namespace gmac
