// SPDX-License-Identifier: Apache-2.0
//
// From a plan and a job to the parameters of its launches.
#include <bit>

#include "gmac/datatype/plan/device_numbers.h"
#include "gmac/datatype/plan/device_plan.h"

namespace gmac::datatype {

// Mixed radices of element numbers, the fastest first. The first is the piece, or the whole of a
// list; `table` is the level that counts a table's entries.
struct DevicePlan::Levels {
  // Dimensions count to 2 at least, and bytes fit into 63 bits.
  static constexpr int kMax = 66;
  int used = 0;
  int table = -1;
  std::int64_t count[kMax];
  std::int64_t stride[kMax];

  void add(std::int64_t entries, std::int64_t bytes) {
    count[used] = entries;
    stride[used] = bytes;
    ++used;
  }
  // The layout's dimensions, and the job's repetitions.
  void addOuter(const Layout& layout, const DeviceJob& job) {
    const auto& dims = layout.dims();
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) add(dim->count, dim->stride);
    if (job.repeat.count > 1) add(job.repeat.count, job.repeat.stride);
  }
};

// Elements [first, first + elements) of all as one launch sees them: `begin` is the number that it
// gives to the first of them, `level` the slowest level in it, `base` the strided side's address of
// its element 0, `entry` the table's entry that is its first.
struct DevicePlan::Span {
  std::int64_t begin = 0;
  std::int64_t elements = 0;
  int level = 0;
  std::int64_t base = 0;
  std::int64_t entry = 0;

  // `slowest`: the slowest level that the launch's parameters have room for.
  Span(const Levels& levels, int slowest, std::int64_t limit, std::int64_t first,
       std::int64_t most) {
    std::int64_t inner = 1;  // elements of one index of `level`
    while (level < std::min(levels.used - 1, slowest) && levels.count[level] <= limit / inner) {
      inner *= levels.count[level];
      ++level;
    }
    std::int64_t rest = first / inner;
    begin = first % inner;
    const std::int64_t index = rest % levels.count[level];
    rest /= levels.count[level];
    elements = std::min({most, std::max(limit - begin, std::int64_t{1}),
                         (levels.count[level] - index) * inner - begin});
    // The slowest index begins at 0 where the launch can hold it: one form for most jobs.
    const bool whole = level + 1 == levels.used && levels.count[level] <= limit / inner;
    if (whole) {
      begin = first;
      elements = most;
    } else if (level == levels.table) {
      entry = index;
    } else {
      base = index * levels.stride[level];
    }
    for (int l = level + 1; l < levels.used; ++l) {
      if (l == levels.table) entry = rest % levels.count[l];
      base += rest % levels.count[l] * levels.stride[l];
      rest /= levels.count[l];
    }
  }
};

// The common half of a launch's parameters, whatever its shape: its part, and `dims` levels from
// `from` on.
struct DevicePlan::Frame {
  const Levels& levels;
  const Span& span;
  int from;
  int dims;
  const Part& part;

  // The slowest level of the launch is not divided, so its count may be anything.
  Divisor divisor(int level) const {
    return Divisor::of(level == span.level ? 1 : narrow(levels.count[level]));
  }
  // A single piece or list is divided all the same.
  Divisor lowest() const {
    return span.level == 0 ? Divisor::of(kMaxDividend) : Divisor::of(narrow(levels.count[0]));
  }
  void setDims(DimParams* out) const {
    for (int d = 0; d < dims; ++d) {
      out[d] = {divisor(from + d), levels.stride[from + d]};
    }
  }
  template <int kDims>
  RowsParams<kDims> rows() const {
    RowsParams<kDims> params{part, lowest(), {}};
    setDims(params.dims);
    return params;
  }
};

// 0 for the word mover.
std::uint32_t DevicePlan::widthFor(const DeviceJob& job, std::int64_t offset,
                                   std::int64_t bytes) const {
  std::uint64_t bits = alignmentAt(job.strided) | (job.packed - asBits(job.offset));
  if (job.repeat.count > 1) bits |= asBits(job.repeat.stride);
  const std::uint32_t width = widthOf(bits);
  const std::int64_t whole = (offset + bytes) / width - ceilDivide(offset, width);
  if (whole < 0) return 1;  // inside of one element
  const std::int64_t piece = layout_.meanBlockBytes();
  const bool words = width == 1   ? piece >= tuning_.wordLeast
                     : width == 2 ? piece >= 2 * tuning_.wordLeast
                                  : false;
  return words ? 0 : width;
}

// The number of windows of an unpack of the part by the word mover.
std::uint64_t DevicePlan::setWindows(const DeviceJob& job, std::int64_t pieceBytes,
                                     Part& part) const {
  constexpr std::int64_t kBytes = kScatteredBytes;
  // Pieces may begin at different distances from the beginning of a window: the worst case counts.
  const std::uint64_t apart = apart_ | (job.repeat.count > 1 ? asBits(job.repeat.stride) : 0);
  const bool same = (apart & (kBytes - 1)) == 0;
  const std::int64_t skew =
      same ? static_cast<std::int64_t>(part.strided & (kBytes - 1)) : kBytes - 1;
  part.windows = Divisor::of(narrow(ceilDivide(skew + pieceBytes, kBytes)));
  const std::int64_t pieces = ceilDivide(part.end, pieceBytes) - part.begin / pieceBytes;
  return asBits(pieces) * part.windows.divisor;
}

Caching DevicePlan::caching(std::int64_t bytes) const {
  if (bytes >= tuning_.onceFrom && meanPiece_ >= tuning_.onceLeast) return Caching::kNowhere;
  const std::int64_t lines = opensRows() ? linesOfRows(bytes) : 0;
  return lines > tuning_.cachedMost && lines <= tuning_.secondLevelMost ? Caching::kSecondLevel
                                                                        : Caching::kUsual;
}

void DevicePlan::setGrid(const DeviceJob& job, std::uint64_t work, bool unrollable,
                         DeviceLaunch& launch, std::uint8_t* unrolled) const {
  launch.threads = job.maxBlocks == 0 ? tuning_.threads : tuning_.limitedThreads;
  if (job.maxBlocks == 0 && job.bytes >= tuning_.onceFrom && layout_.blocks().size() == 1 &&
      pieceBytes_ <= tuning_.shortRowMost) {
    launch.threads = tuning_.shortRowThreads;
  }
  if (launch.kernel.shape == Shape::kTile) launch.threads = kTileThreads;
  if (inUnits() || launch.kernel.width == 0) {
    launch.threads = std::min(launch.threads, kMaxHeavyThreads);
  }
  std::uint64_t most = job.maxBlocks == 0 ? std::uint64_t{kMaxDividend} : job.maxBlocks;
  std::uint64_t perBlock = launch.threads;
  if (launch.kernel.shape == Shape::kTile) perBlock = 1;
  if (inUnits()) perBlock = launch.threads / kGroup;
  const std::uint64_t oneEach =
      launch.kernel.shape == Shape::kShortList ? tuning_.oneEachOfShortList
      : job.bytes <= cachedMost_               ? std::min(tuning_.oneEach, tuning_.oneEachOfCached)
                                               : tuning_.oneEach;
  const bool many = unrollable && (work > oneEach || work > most * perBlock);
  if (many) perBlock *= kUnroll;
  if (unrolled != nullptr) *unrolled = many ? 1 : 0;
  // A part that is ends only still takes a block.
  const std::uint64_t blocks = std::max<std::uint64_t>((work + perBlock - 1) / perBlock, 1);
  launch.blocks = static_cast<std::uint32_t>(std::min(blocks, most));
}

// Makes the launch one of the paced kernel, if the device has an issue rate and the rows are such.
bool DevicePlan::makePaced(const DeviceJob& job, const RowsParams<1>& rows,
                           DeviceLaunch& launch) const {
  const std::uint32_t width = launch.kernel.width;
  if (job.issueRate == nullptr || job.direction != Direction::kPack || job.maxBlocks != 0 ||
      width < 4 || !isPaced(job.bytes)) {
    return false;
  }
  const std::int64_t wordsOfRow = pieceBytes_ / width;
  // Rows of more words would have too few loads in flight.
  constexpr std::int64_t kMaxWords = 2;
  const double part = rows.part.caching == Caching::kSecondLevel ? tuning_.secondLevelInterval : 1;
  const std::uint32_t interval =
      job.issueRate->interval(part * kGroup / static_cast<double>(wordsOfRow), pieceBytes_);
  if (interval == 0 || wordsOfRow > kMaxWords) return false;
  launch.kernel.shape = Shape::kPacedRows;
  launch.blocks = job.issueRate->multiprocessors;
  launch.threads = wordsOfRow > 1 ? tuning_.pacedThreadsOfTwo : tuning_.pacedThreads;
  PacedRowsParams params{rows, interval};
  params.rows.part.unrolled = 0;
  launch.setParams(params);
  return true;
}

void DevicePlan::setParams(const DeviceJob& job, const Frame& frame, std::uint32_t element,
                           DeviceLaunch& launch) const {
  const auto dims = static_cast<std::uint32_t>(frame.dims);
  switch (launch.kernel.shape) {
    case Shape::kLine:
      launch.setParams(LineParams{frame.part});
      break;
    case Shape::kRows1: {
      const auto params = frame.rows<1>();
      if (!makePaced(job, params, launch)) launch.setParams(params);
      break;
    }
    case Shape::kRows2:
      launch.setParams(frame.rows<2>());
      break;
    case Shape::kRows3:
      launch.setParams(frame.rows<3>());
      break;
    case Shape::kAnyRows: {
      AnyRowsParams params{frame.part, frame.lowest(), dims, {}};
      frame.setDims(params.dims);
      launch.setParams(params);
      break;
    }
    case Shape::kEvenList: {
      EvenListParams params{};
      params.part = frame.part;
      params.piece = frame.lowest();
      params.pieces = frame.divisor(1);
      params.offsets =
          job.table + table_.piecesAt + asBits(frame.span.entry) * sizeof(std::uint32_t);
      params.scale = scale_;
      params.dimCount = dims;
      frame.setDims(params.dims);
      launch.setParams(params);
      break;
    }
    case Shape::kShortList: {
      const auto blocks = layout_.blocks();
      ShortListParams params;
      params.part = frame.part;
      params.list = frame.lowest();
      params.pieces = static_cast<std::uint32_t>(blocks.size());
      params.scale = scale_;
      params.dimCount = dims;
      frame.setDims(params.dims);
      const int elementShift = std::countr_zero(element);
      const int scaleShift = std::countr_zero(scale_);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        params.table[i] = {narrow(layout_.startOf(i) >> elementShift),
                           narrow((blocks[i].offset - lowest_) >> scaleShift)};
      }
      params.table[blocks.size()] = {narrow(layout_.listBytes() >> elementShift), 0};
      launch.setParams(params);
      break;
    }
    case Shape::kMarkedList: {
      MarkedListParams params{};
      params.part = frame.part;
      params.list = frame.lowest();
      params.marks = job.table;
      params.offsets = job.table + table_.piecesAt;
      params.scale = scale_;
      params.wordShift = static_cast<std::uint32_t>(std::countr_zero(scale_ / element));
      params.dimCount = dims;
      frame.setDims(params.dims);
      launch.setParams(params);
      break;
    }
    case Shape::kLongList:
    case Shape::kWideList:
    case Shape::kTile:
    case Shape::kPacedRows:
      break;
  }
}

// The bytes of the strided side that the whole job may touch.
void DevicePlan::setBounds(const DeviceJob& job, Part& part) const {
  const Bounds bounds = layout_.bounds();
  const std::int64_t away = (job.repeat.count - 1) * job.repeat.stride;
  part.first = job.strided + asBits(bounds.first + std::min<std::int64_t>(away, 0));
  part.last = job.strided + asBits(bounds.last + std::max<std::int64_t>(away, 0));
}

// The levels of elements of a layout with pieces, or a list. Returns the fastest dimension's.
int DevicePlan::setLevels(Shape shape, const DeviceJob& job, std::uint32_t element,
                          Levels& levels) const {
  if (shape == Shape::kShortList || shape == Shape::kMarkedList) {
    levels.add(layout_.listBytes() / element, 0);
  } else {
    levels.add(pieceBytes_ / element, element);
  }
  if (shape == Shape::kEvenList) {
    levels.table = 1;
    levels.add(static_cast<std::int64_t>(layout_.blocks().size()), 0);
  }
  const int dimsFrom = levels.used;
  levels.addOuter(layout_, job);
  return dimsFrom;
}

std::int64_t DevicePlan::makeLaunch(const DeviceJob& job, std::int64_t done,
                                    DeviceLaunch& launch) const {
  std::int64_t offset = job.offset + done;
  const std::int64_t bytes = job.bytes - done;
  std::uint32_t width = job.ofTransfer ? job.width : widthFor(job, offset, bytes);
  if (inUnits()) return makeUnits(job, offset, bytes, width, launch);
  if (shape_ == Shape::kTile && width == pieceBytes_ && job.repeat.count == 1 && !job.ofTransfer) {
    return makeTile(job, offset, bytes, width, launch);
  }

  Shape shape = shape_;
  std::uint64_t strided = job.strided + asBits(lowest_);
  std::uint64_t packed = job.packed - asBits(job.offset);
  const bool line = shape == Shape::kLine && job.repeat.count == 1 && !job.ofTransfer;
  if (line) {
    // Only the distance of the two sides matters, so the line may begin at any offset.
    strided += asBits(offset);
    packed = job.packed + asBits(done);
    width = widthOf(strided - packed);
    if (width < 8) width = bytes >= tuning_.wordLeast ? 0 : 1;
    offset = static_cast<std::int64_t>(packed & (std::max(width, 1U) - 1));
    if (width != 0 && (offset + bytes) / width < ceilDivide(offset, width)) {
      width = 1;
      offset = 0;
    }
    strided -= asBits(offset);
    packed -= asBits(offset);
  }
  const std::uint32_t element = std::max(width, 1U);

  Levels levels;
  int dimsFrom = 1;  // the level of the fastest of the dimensions
  if (line) {
    levels.add(ceilDivide(offset + bytes, element), element);
    levels.addOuter(layout_, job);
  } else {
    dimsFrom = setLevels(shape, job, element, levels);
  }

  const std::int64_t first = offset / element;
  const std::int64_t end = ceilDivide(offset + bytes, element);
  const Span span(levels, dimsFrom + kMaxDims - 1, tuning_.mostElements, first, end - first);
  if (shape == Shape::kEvenList && span.level == 0) {
    // Pieces so long that one launch copies a part of one.
    strided += asBits(layout_.blocks()[asBits(span.entry)].offset - lowest_);
    shape = Shape::kLine;
  }
  const std::int64_t last = std::min(offset + bytes, (first + span.elements) * element);
  Part part{};
  part.strided = strided + asBits(span.base);
  part.packed = packed + asBits((first - span.begin) * element);
  part.head = static_cast<std::uint8_t>((element - offset % element) % element);
  part.tail = static_cast<std::uint8_t>(last % element);
  part.begin = narrow(span.begin) + (part.head != 0 ? 1 : 0);
  part.end = narrow(span.begin + span.elements) - (part.tail != 0 ? 1 : 0);
  setBounds(job, part);
  const std::int64_t whole = std::max(job.bytes, job.operationBytes);
  part.caching = job.direction == Direction::kPack ? caching(whole) : Caching::kUsual;

  const int launchDims = std::max(span.level + 1 - dimsFrom, 0);
  if (shape != Shape::kShortList && shape != Shape::kMarkedList && shape != Shape::kEvenList) {
    constexpr Shape kByDims[] = {Shape::kLine, Shape::kRows1, Shape::kRows2, Shape::kRows3};
    shape = launchDims < 4 ? kByDims[launchDims] : Shape::kAnyRows;
  }
  launch.kernel = {shape, static_cast<std::uint8_t>(width), job.direction};
  launch.bytes = static_cast<std::uint64_t>(last - offset);
  std::uint64_t work = part.end - part.begin;
  if (width == 0) {
    const std::uint64_t word = job.direction == Direction::kPack ? kGatheredBytes : kScatteredBytes;
    work = (launch.bytes + 2 * (word - 1)) / word;
    if (job.direction == Direction::kUnpack && shape != Shape::kShortList &&
        shape != Shape::kMarkedList) {
      work = setWindows(job, span.level == 0 ? part.end : pieceBytes_, part);
    }
  }
  setGrid(job, work, width != 0, launch, &part.unrolled);

  setParams(job, Frame{levels, span, dimsFrom, launchDims, part}, element, launch);
  return last - offset;
}

std::int64_t DevicePlan::makeUnits(const DeviceJob& job, std::int64_t offset, std::int64_t bytes,
                                   std::uint32_t width, DeviceLaunch& launch) const {
  const std::uint32_t element = std::max(width, 1U);
  const std::int64_t listBytes = layout_.listBytes();
  const std::int64_t unitBytes = unitBytes_;
  const std::int64_t unitsOfList = ceilDivide(listBytes, unitBytes);
  // Levels count units; a list's last one may be short.
  Levels levels;
  levels.add(unitsOfList, 0);
  levels.addOuter(layout_, job);
  const auto unitOf = [&](std::int64_t byte) {
    return byte / listBytes * unitsOfList + byte % listBytes / unitBytes;
  };
  const std::int64_t first = unitOf(offset);
  const std::int64_t end = unitOf(offset + bytes - 1) + 1;
  const Span span(levels, kMaxDims, std::max(tuning_.mostElements, unitsOfList), first,
                  end - first);
  const std::int64_t next = first + span.elements;  // unit
  const std::int64_t nextByte = next / unitsOfList * listBytes + next % unitsOfList * unitBytes;
  const std::int64_t last = std::min(offset + bytes, nextByte);
  // The launch's byte 0: the beginning of its first repetition.
  const std::int64_t zero = (first - span.begin) / unitsOfList * listBytes;

  LongListParams params{};
  params.part.strided = job.strided + asBits(lowest_) + asBits(span.base);
  params.part.packed = job.packed - asBits(job.offset) + asBits(zero);
  params.part.head = static_cast<std::uint8_t>((element - offset % element) % element);
  params.part.tail = static_cast<std::uint8_t>(last % element);
  setBounds(job, params.part);
  params.begin = asBits(ceilDivide(offset - zero, element));
  params.end = asBits((last - zero) / element);
  params.list = asBits(listBytes / element);
  params.firstUnit = narrow(span.begin);
  params.lastUnit = narrow(span.begin + span.elements);
  params.unitsOfList = Divisor::of(narrow(unitsOfList));
  params.unit = narrow(unitBytes / element);
  params.scale = scale_;
  params.startScale = static_cast<std::uint32_t>(std::countr_zero(scale_ / element));
  params.units = job.table;
  params.pieces = job.table + table_.piecesAt;
  params.dimCount = static_cast<std::uint32_t>(span.level);
  for (int d = 0; d < span.level; ++d) {
    params.dims[d] = {Divisor::of(d + 1 == span.level ? 1 : narrow(levels.count[1 + d])),
                      levels.stride[1 + d]};
  }
  launch.kernel = {shape_, static_cast<std::uint8_t>(width), job.direction};
  launch.bytes = asBits(last - offset);
  setGrid(job, asBits(span.elements), false, launch, nullptr);
  launch.setParams(params);
  return last - offset;
}

std::int64_t DevicePlan::makeTile(const DeviceJob& job, std::int64_t offset, std::int64_t bytes,
                                  std::uint32_t width, DeviceLaunch& launch) const {
  const auto& dims = layout_.dims();
  const std::int64_t outerElements = layout_.bytes() / width / dims.front().count;
  // Of the outermost dimension, only what the part touches.
  const std::int64_t firstOuter = offset / width / outerElements;
  const std::int64_t lastOuter = ceilDivide(ceilDivide(offset + bytes, width), outerElements);
  const std::int64_t skipped = firstOuter * outerElements;

  TileParams params{};
  params.part.strided = job.strided + asBits(lowest_) + asBits(firstOuter * dims.front().stride);
  params.part.packed = job.packed - asBits(job.offset) + asBits(skipped * width);
  params.part.head = static_cast<std::uint8_t>((width - offset % width) % width);
  params.part.tail = static_cast<std::uint8_t>((offset + bytes) % width);
  params.begin = ceilDivide(offset, width) - skipped;
  params.end = (offset + bytes) / width - skipped;
  std::int64_t packedStride = 1;
  std::int64_t others = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {
    const std::int64_t count = d == 0 ? lastOuter - firstOuter : dims[d].count;
    if (d + 1 == dims.size()) {
      params.along = {narrow(count), dims[d].stride, packedStride};
    } else if (static_cast<int>(d) == across_) {
      params.across = {narrow(count), dims[d].stride, packedStride};
    } else {
      params.dims[params.dimCount] = {Divisor::of(narrow(count)), dims[d].stride};
      params.packedStrides[params.dimCount] = packedStride;
      ++params.dimCount;
      others *= count;
    }
    packedStride *= dims[d].count;
  }
  const std::int64_t tilesAlong = ceilDivide(params.along.count, kTile);
  const std::int64_t tilesAcross = ceilDivide(params.across.count, kTile);
  params.tilesAlong = Divisor::of(narrow(tilesAlong));
  params.tilesAcross = Divisor::of(narrow(tilesAcross));
  params.tiles = narrow(tilesAlong * tilesAcross * others);
  launch.kernel = {Shape::kTile, static_cast<std::uint8_t>(width), job.direction};
  launch.bytes = asBits(bytes);
  setGrid(job, params.tiles, false, launch, nullptr);
  launch.setParams(params);
  return bytes;
}

}  // namespace gmac::datatype
