// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/plan/arrival_plan.h"

#include <algorithm>
#include <cstring>

#include "gmac/datatype/plan/device_numbers.h"

namespace gmac::datatype {
namespace {

// The widest words of a kernel, in bytes.
constexpr std::int64_t kMaxWidth = 16;

}  // namespace

std::optional<ArrivalLaunch> makeArrivalLaunch(const DevicePlan& plan, const ArrivalJob& job) {
  const std::int64_t chunk = std::min(job.fragmentBytes, std::int64_t{kArrivalChunkBytes});
  if (plan.shape() != Shape::kRows1 || job.slots == 0 || job.slots > kMaxArrivalSlots ||
      chunk <= 0 || job.fragmentBytes % chunk != 0 || chunk % kMaxWidth != 0 || job.bytes <= 0 ||
      job.bytes > plan.layout().bytes()) {
    return std::nullopt;
  }
  DeviceJob unpack;
  unpack.direction = Direction::kUnpack;
  unpack.strided = job.strided;
  unpack.packed = job.ring;
  unpack.bytes = job.bytes;
  DeviceLaunch launch;
  const std::int64_t moved = plan.makeLaunch(unpack, 0, launch);
  const std::uint8_t width = launch.kernel.width;
  // (A message that is split into launches, or whose rows are moved byte by byte, has none.)
  if (moved != job.bytes || launch.kernel.shape != Shape::kRows1 || width < 4) {
    return std::nullopt;
  }
  ArrivalLaunch arrival{{width}, {}};
  ArrivalParams& params = arrival.params;
  std::memcpy(&params.rows, launch.params, sizeof params.rows);
  if (params.rows.part.begin != 0 || params.rows.part.head != 0 || params.rows.part.tail != 0) {
    return std::nullopt;
  }
  params.ring = job.ring;
  params.words = job.words;
  params.state = job.state;
  params.firstPatience = job.firstPatience;
  params.patience = job.patience;
  params.slots = job.slots;
  params.fragments = narrow(ceilDivide(job.bytes, job.fragmentBytes));
  params.chunks = narrow(ceilDivide(job.bytes, chunk));
  params.chunksOfFragment = narrow(job.fragmentBytes / chunk);
  params.chunkElements = narrow(chunk / width);
  return arrival;
}

}  // namespace gmac::datatype
