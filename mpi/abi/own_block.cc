// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/own_block.h"

#include <algorithm>
#include <utility>

namespace gmac::mpi::GMAC_MPI_ABI {

bool OwnBlock::take(std::vector<Block>& sent, std::vector<Block>& received, int own) {
  const auto process = static_cast<std::size_t>(own);
  if (process >= std::min(sent.size(), received.size())) {
    return false;
  }
  const auto prepared = [](const Block& block, Elements& elements) {
    return elements.prepare(block.address, block.count, block.type) == Ready::kYes;
  };
  Elements from;
  Elements to;
  const Block& source = sent[process];
  const Block& target = received[process];
  if (source.count <= 0 || target.count <= 0 ||
      (!needsStaging(source.address, source.count, source.type) &&
       !needsStaging(target.address, target.count, target.type)) ||
      !prepared(source, from) || !prepared(target, to) || !from.canTransferTo(to)) {
    return false;
  }
  sent[process].count = 0;
  received[process].count = 0;
  process_ = process;
  from_ = std::move(from);
  to_ = std::move(to);
  inUse_ = true;
  return true;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
