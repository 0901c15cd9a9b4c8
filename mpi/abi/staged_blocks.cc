// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/staged_blocks.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gmac::mpi::GMAC_MPI_ABI {

Ready StagedBlocks::prepare(std::span<const Block> blocks) {
  const bool shared = std::any_of(blocks.begin(), blocks.end(), [](const Block& block) {
    return needsStaging(block.address, block.count, block.type);
  });
  if (!shared) {
    return Ready::kYes;
  }
  for (const Block& block : blocks) {
    const Ready ready = add(block);
    if (ready != Ready::kYes) {
      return ready;
    }
  }
  memory_ = StagingMemory(static_cast<std::size_t>(bytes_));
  if (memory_.data() == nullptr) {
    reason_ = "no memory for " + std::to_string(bytes_) + " bytes";
    return Ready::kFailed;
  }
  // Else the device's bytes come through a pinned buffer, by a copy of the CPU's for each.
  memory_.pin(kPinning);
  return Ready::kYes;
}

Ready StagedBlocks::add(const Block& block) {
  offsets_.push_back(bytes_);
  if (block.count < 0) {
    return Ready::kLetMpiRefuse;
  }
  if (block.count == 0) {
    datatypes_.push_back(block.type);
    return Ready::kYes;
  }
  if (!runs_.empty() && runs_.back().elements.extend(block.address, block.count, block.type)) {
    datatypes_.push_back(runs_.back().elements.type().wire);
    bytes_ = runs_.back().offset + runs_.back().elements.bytes();
    return Ready::kYes;
  }
  Elements elements;
  const Ready ready = elements.prepare(block.address, block.count, block.type);
  if (ready != Ready::kYes) {
    reason_ = elements.reason();
    return ready;
  }
  datatype_ = elements.type().wire;
  elementBytes_ = elements.type().size;
  datatypes_.push_back(datatype_);
  const std::int64_t offset = bytes_;
  if (elements.bytes() > std::numeric_limits<std::int64_t>::max() - bytes_) {
    reason_ = "the blocks have more bytes than there are addresses";
    return Ready::kFailed;
  }
  bytes_ += elements.bytes();
  runs_.push_back({std::move(elements), offset});
  return Ready::kYes;
}

bool StagedBlocks::pack() {
  for (Run& run : runs_) {
    if (!run.elements.pack(memory_.data() + run.offset)) {
      reason_ = run.elements.reason();
      return false;
    }
  }
  return true;
}

bool StagedBlocks::unpack() {
  for (Run& run : runs_) {
    if (!run.elements.unpack(memory_.data() + run.offset, run.elements.bytes())) {
      reason_ = run.elements.reason();
      return false;
    }
  }
  return true;
}

template <typename Displacement>
const Displacement* StagedBlocks::places(bool inBytes) {
  std::vector<Displacement>& places = list(static_cast<const Displacement*>(nullptr));
  places.clear();
  const std::int64_t unit = inBytes ? 1 : std::max<std::int64_t>(elementBytes_, 1);
  for (const std::int64_t offset : offsets_) {
    if (offset / unit > std::numeric_limits<Displacement>::max()) {
      reason_ = "the packed blocks have " + std::to_string(bytes_) +
                " bytes, and a displacement of this call is an int";
      return nullptr;
    }
    places.push_back(static_cast<Displacement>(offset / unit));
  }
  return places.data();
}

template const int* StagedBlocks::places<int>(bool);
template const MPI_Aint* StagedBlocks::places<MPI_Aint>(bool);

}  // namespace gmac::mpi::GMAC_MPI_ABI
