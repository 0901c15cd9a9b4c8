// SPDX-License-Identifier: Apache-2.0
#include "gmac/object.h"

namespace gmac {

Object::Object(std::unique_ptr<os::Mirror> itsMirror, accel::DeviceAddress itsDevice,
               std::size_t itsBlockBytes, State initial)
    : mirror(std::move(itsMirror)),
      device(itsDevice),
      blockBytes(itsBlockBytes),
      blockCount((mirror->bytes() + itsBlockBytes - 1) / itsBlockBytes),
      blocks(std::make_unique<Block[]>(blockCount)),
      open(all()),
      chunks(mirror->chunkCount(), Chunk::kEmpty),
      uses(mirror->chunkCount(), Use::kNone) {
  for (std::size_t i = 0; i < blockCount; ++i) {
    blocks[i].owner = this;
    blocks[i].state = initial;
  }
}

}  // namespace gmac
