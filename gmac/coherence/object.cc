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

bool Object::usable(std::size_t offset, std::size_t length, Intent intent) const {
  const Block& block = blocks[offset / blockBytes];
  if (block.busy || strict) {
    return false;
  }
  const bool write = intent == Intent::kWrite;
  const bool allowed = block.state == State::kDirty || (!write && block.state == State::kReadOnly);
  return allowed && ((!write && mirror->readableBeforeInstall()) || pagesReady(offset, length));
}

}  // namespace gmac
