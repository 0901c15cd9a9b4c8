// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/layout/block_list.h"

namespace gmac::datatype {

BlockListPtr BlockListBuilder::finish() {
  BlockList list = std::exchange(list_, {});
  const std::int64_t unlike = std::exchange(unlike_, 0);
  std::int64_t span = 0;
  if (__builtin_sub_overflow(list.bounds.last, list.bounds.first, &span)) {
    return nullptr;
  }
  if (!list.blocks.empty()) {
    const std::int64_t first = list.blocks.front().bytes;
    list.blockBytes = unlike == 0 && list.blocks.back().bytes == first ? first : 0;
  }
  // Blocks that were joined or empty have left unused capacity.
  if (list.blocks.capacity() > 2 * list.blocks.size()) {
    list.blocks.shrink_to_fit();
  }
  return std::make_shared<const BlockList>(std::move(list));
}

}  // namespace gmac::datatype
