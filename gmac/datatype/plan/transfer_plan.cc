// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/plan/transfer_plan.h"

#include <algorithm>

#include "gmac/datatype/plan/device_numbers.h"

namespace gmac::datatype {
namespace {

// The launch of a pack of the same part of one side, whose parameters say where its elements lie.
class SideLaunch {
 public:
  // `width`: the mover's, for both sides.
  SideLaunch(const TransferSide& side, std::uint32_t width) : side_(side), width_(width) {}

  std::int64_t make(std::int64_t offset, std::int64_t bytes) {
    DeviceJob job;
    job.strided = side_.strided;
    job.packed = asBits(offset);
    job.offset = offset;
    job.bytes = bytes;
    job.table = side_.table;
    job.ofTransfer = true;
    job.width = width_;
    return side_.plan->makeLaunch(job, 0, launch_);
  }

  template <typename Params>
  Params as() const {
    Params params;
    std::memcpy(&params, launch_.params, sizeof params);
    return params;
  }
  Shape shape() const { return launch_.kernel.shape; }
  bool inRows() const {
    return shape() == Shape::kLine || shape() == Shape::kRows1 || shape() == Shape::kRows2 ||
           shape() == Shape::kRows3;
  }
  // The whole elements, and the bytes at the ends.
  TransferPart part() const {
    if (shape() == Shape::kLongList || shape() == Shape::kWideList) {
      const auto list = as<LongListParams>();
      return {static_cast<std::uint32_t>(list.end - list.begin), list.part.head, list.part.tail};
    }
    const Part part = as<Part>();
    return {part.end - part.begin, part.head, part.tail};
  }

  // Up to three dimensions; those that are missing have one index.
  RowsParams<3> rows3() const {
    RowsParams<3> rows{as<Part>(), Divisor::of(kMaxDividend), {}};
    for (DimParams& dim : rows.dims) dim = {Divisor::of(kMaxDividend), 0};
    const auto take = [&]<int N>(const RowsParams<N>& from) {
      rows.piece = from.piece;
      std::copy(from.dims, from.dims + N, rows.dims);
      // The slowest one's count was not used; now it is divided.
      rows.dims[N - 1].count = Divisor::of(kMaxDividend);
    };
    if (shape() == Shape::kRows1) take(as<RowsParams<1>>());
    if (shape() == Shape::kRows2) take(as<RowsParams<2>>());
    if (shape() == Shape::kRows3) take(as<RowsParams<3>>());
    return rows;
  }

  void fill(AnySideParams& side) const {
    switch (shape()) {
      case Shape::kAnyRows:
        side.form = SideForm::kRows;
        side.rows = as<AnyRowsParams>();
        return;
      case Shape::kEvenList:
        side.form = SideForm::kEvenList;
        side.even = as<EvenListParams>();
        return;
      case Shape::kShortList:
        side.form = SideForm::kShortList;
        side.list = as<ShortListParams>();
        return;
      case Shape::kMarkedList:
        side.form = SideForm::kMarkedList;
        side.marked = as<MarkedListParams>();
        return;
      case Shape::kLongList:
      case Shape::kWideList:
        side.form = shape() == Shape::kLongList ? SideForm::kLongList : SideForm::kWideList;
        side.units = as<LongListParams>();
        return;
      default:
        break;
    }
    const RowsParams<3> rows = rows3();
    side.form = SideForm::kRows;
    side.rows = {rows.part, rows.piece, 3, {}};
    std::copy(rows.dims, rows.dims + 3, side.rows.dims);
  }

 private:
  const TransferSide& side_;
  const std::uint32_t width_;
  DeviceLaunch launch_;
};

// The widest word that both sides consist of; 0 for the mover of bytes.
std::uint32_t widthFor(const TransferJob& job, std::int64_t offset, std::int64_t bytes) {
  const DevicePlan& to = *job.target.plan;
  const DevicePlan& from = *job.source.plan;
  const std::uint32_t width =
      widthOf(to.alignmentAt(job.target.strided) | from.alignmentAt(job.source.strided));
  if ((offset + bytes) / width < ceilDivide(offset, width)) return 1;  // inside of one element
  const std::int64_t piece = std::min(to.layout().meanBlockBytes(), from.layout().meanBlockBytes());
  const std::int64_t least = from.tuning().wordLeast;
  const bool ofBytes = (width == 1 && piece >= least) || (width == 2 && piece >= 2 * least);
  return ofBytes ? 0 : width;
}

template <typename Params>
void setParams(TransferLaunch& launch, TransferShape shape, const Params& params) {
  static_assert(sizeof params <= sizeof launch.params);
  launch.kernel.shape = shape;
  std::memcpy(launch.params, &params, sizeof params);
  launch.paramBytes = sizeof params;
}

void setGrid(const TransferJob& job, std::uint32_t elements, TransferLaunch& launch) {
  const PlanTuning& tuning = job.source.plan->tuning();
  launch.threads = job.maxBlocks == 0 ? tuning.threads : tuning.limitedThreads;
  std::uint32_t work = elements;
  if (launch.kernel.width == 0) work = elements / kScatteredBytes + 2;
  if (launch.kernel.shape == TransferShape::kAny || launch.kernel.width == 0) {
    launch.threads = std::min(launch.threads, kMaxHeavyThreads);
  }
  if (job.overLink && launch.kernel.width != 0 && elements > tuning.oneEachOverLink) {
    work = (elements + kLoadsUnderWay - 1) / kLoadsUnderWay;
  }
  const std::uint32_t most = job.maxBlocks == 0 ? kMaxDividend : job.maxBlocks;
  launch.blocks = std::clamp((work + launch.threads - 1) / launch.threads, std::uint32_t{1}, most);
}

}  // namespace

std::int64_t makeTransferLaunch(const TransferJob& job, std::int64_t done, TransferLaunch& launch) {
  const std::int64_t offset = job.offset + done;
  std::int64_t bytes = job.bytes - done;
  const std::uint32_t width = widthFor(job, offset, bytes);
  // Elements are numbered by 31 bits. (Lists in units have launches of more.)
  const std::int64_t element = std::max(width, 1U);
  const std::int64_t end = (offset / element + job.source.plan->tuning().mostElements) * element;
  bytes = std::min(bytes, end - offset);

  // Each side may have room for less in one launch; the shorter one counts.
  SideLaunch source(job.source, width);
  SideLaunch target(job.target, width);
  bytes = source.make(offset, bytes);
  const std::int64_t fit = target.make(offset, bytes);
  if (fit < bytes) bytes = source.make(offset, fit);

  launch.kernel.width = static_cast<std::uint8_t>(width);
  launch.bytes = asBits(bytes);
  const TransferPart part = source.part();
  if (source.shape() == Shape::kRows1 && target.shape() == Shape::kRows1) {
    setParams(launch, TransferShape::kRows1,
              Rows1TransferParams{part, source.as<RowsParams<1>>(), target.as<RowsParams<1>>()});
  } else if (source.inRows() && target.inRows()) {
    setParams(launch, TransferShape::kRows3,
              Rows3TransferParams{part, source.rows3(), target.rows3()});
  } else {
    AnyTransferParams params;
    params.part = part;
    source.fill(params.source);
    target.fill(params.target);
    setParams(launch, TransferShape::kAny, params);
  }
  setGrid(job, part.elements, launch);
  return bytes;
}

}  // namespace gmac::datatype
