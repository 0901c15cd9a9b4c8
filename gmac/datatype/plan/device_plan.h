// SPDX-License-Identifier: Apache-2.0
//
// From a layout to the launches that pack or unpack it on a device.
#ifndef GMAC_DATATYPE_PLAN_DEVICE_PLAN_H_
#define GMAC_DATATYPE_PLAN_DEVICE_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "gmac/datatype/kernels/pack_kernels.h"
#include "gmac/datatype/kernels/pack_params.h"
#include "gmac/datatype/layout/layout.h"
#include "gmac/datatype/plan/issue_rate.h"

namespace gmac::datatype {

// A launch of one kernel in one dimension of thread blocks, with its one parameter. Small enough
// for a stack; a plain value.
struct DeviceLaunch {
  KernelId kernel;
  std::uint32_t blocks;
  std::uint32_t threads;
  std::uint32_t paramBytes;
  std::uint64_t bytes;  // packed, that it moves
  alignas(16) std::byte
      params[std::max({sizeof(ShortListParams), sizeof(LongListParams), sizeof(EvenListParams),
                       sizeof(MarkedListParams), sizeof(AnyRowsParams), sizeof(TileParams)})];

  template <typename Params>
  void setParams(const Params& value) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= sizeof params);
    std::memcpy(params, &value, sizeof value);
    paramBytes = sizeof value;
  }
};

// One operation on a device, or a part of one.
struct DeviceJob {
  Direction direction = Direction::kPack;
  std::uint64_t strided = 0;  // address of the layout's offset 0
  std::uint64_t packed = 0;   // where the part begins on the packed side
  std::int64_t offset = 0;    // of the part, in packed order
  std::int64_t bytes = 0;
  std::int64_t operationBytes = 0;  // of the operation around a part; 0: it is the whole
  // Repeats the layout in one more, outermost dimension. For lists, whose tables serve any count;
  // other layouts are better repeated beforehand.
  Dim repeat{1, 0};
  std::uint64_t table = 0;               // address of the plan's table, where it needs one
  std::uint32_t maxBlocks = 0;           // the most thread blocks that may run; 0: no limit
  const IssueRate* issueRate = nullptr;  // of the device, where both sides are in its memory
  // One side of a transfer: the launch is not made for a kernel, but says in words of `width` bytes
  // (0: bytes) where the part's elements lie. `packed` is `offset`; no tiles.
  bool ofTransfer = false;
  std::uint32_t width = 0;
};

// Tuning parameters; the defaults were the fastest on an H200.
struct PlanTuning {
  std::uint32_t threads = 256;          // of a thread block
  std::uint32_t limitedThreads = 1024;  // of a thread block, where the blocks are limited
  // Of a thread block, where rows are short and too many for the caches (onceFrom): the loads in
  // flight then lie closer together.
  std::uint32_t shortRowThreads = 512;
  std::int64_t shortRowMost = 64;  // bytes
  // With up to this many elements each thread copies one, with more kUnroll of them. The default
  // never unrolls unless the threads of a block share data: on an H200 one element for each thread
  // was the fastest for all strides.
  std::uint32_t oneEach = kMaxDividend;
  std::uint32_t oneEachOfShortList = 132 * 2048;
  // The same for rows whose lines, up to so many bytes, the device's cache may hold.
  std::int64_t cachedMost = std::int64_t{24} << 20;
  std::uint32_t oneEachOfCached = 132 * 2048;
  // Of a transfer from another device's memory; threads with more load kLoadsUnderWay elements
  // first.
  std::uint32_t oneEachOverLink = 132 * 2048;
  std::int64_t onceFrom = std::int64_t{32} << 20;  // packed bytes that exceed the caches,
  std::int64_t onceLeast = 128;                    // in pieces of this many bytes in the mean
  // Of a block of paced rows of one word, and of two: so many loads are in flight. With more, the
  // memory never catches up when the caches are full of dirty lines.
  std::uint32_t pacedThreads = 448;
  std::uint32_t pacedThreadsOfTwo = 768;
  // Up to this many bytes of lines of short rows are mostly held by the second level. They are
  // requested at this fraction of the device's interval, because some of them hit.
  std::int64_t secondLevelMost = std::int64_t{48} << 20;
  double secondLevelInterval = 0.88;
  std::uint32_t unitBytes = 0;  // of a long list, a multiple of 16; 0: by its pieces
  // Long lists whose pieces have up to this many bytes in the mean get marks for the beginnings of
  // pieces; 0: never. Much longer pieces are better moved in wider words than their own.
  std::int64_t markedMost = 512;
  std::uint32_t tileLeast = 16;  // with so many neighbours on both sides, tiles are faster
  std::uint32_t wordLeast = 8;   // from so many bytes in a piece, the word mover is faster
  // Tables have entries of 4 bytes up to this number.
  std::int64_t mostNarrow = 0xffffffff;
  // Elements of one launch, so that the indices that a kernel divides stay below kMaxDividend.
  std::int64_t mostElements = std::int64_t{1} << 30;
};

// How one layout is packed on devices. Immutable, so thread-safe; owned by the type whose layout it
// is, which outlives it. Not for the fault handler. Making launches allocates nothing,
// divides a few times and knows no device.
class DevicePlan {
 public:
  explicit DevicePlan(const Layout& layout, const PlanTuning& tuning = {});
  explicit DevicePlan(const Layout&&,
                      const PlanTuning& = {}) = delete;  // it would not outlive this
  DevicePlan(const DevicePlan&) = delete;
  DevicePlan& operator=(const DevicePlan&) = delete;

  const Layout& layout() const { return layout_; }
  // Unique in the process; the key of caches.
  std::uint64_t identity() const { return identity_; }

  // ---- The table in device memory that long lists need: two arrays, one after the other.
  struct Table {
    std::uint64_t bytes = 0;       // 0: none is needed
    std::uint64_t units = 0;       // entries of the first array: 4 bytes each
    std::uint64_t piecesAt = 0;    // offset of the second, bytes
    std::uint64_t pieces = 0;      // its entries
    std::uint32_t pieceBytes = 0;  // of each
  };
  const Table& table() const { return table_; }
  // Entries [from, to) of either array, as they are in the table.
  void writeUnits(std::uint64_t from, std::uint64_t to, void* out) const;
  void writePieces(std::uint64_t from, std::uint64_t to, void* out) const;
  // Packed bytes of one pass over the list whose launches use no entries but the first `pieces`
  // and, of the first array, what writeUnits makes of those; and how many of those there are.
  std::int64_t bytesWithin(std::uint64_t pieces) const;
  std::uint64_t unitsWithin(std::int64_t bytes) const;

  const PlanTuning& tuning() const { return tuning_; }
  // The bits that are set in any piece's bytes, stride or address, for an origin at `strided`.
  std::uint64_t alignmentAt(std::uint64_t strided) const {
    return alignment_ | (strided + static_cast<std::uint64_t>(lowest_));
  }

  // The shape of the kernel that moves most bytes of a job.
  Shape shape() const { return shape_; }

  // Calls `launch(const DeviceLaunch&)`, which returns a Status, for each launch that the job
  // takes: one, but for parts of more than 2^30 elements and more than eight dimensions. The
  // launches may run in any order. Stops at the first that fails. Each is made in `room`, which
  // holds the last one afterwards.
  template <typename Function>
  Status launches(const DeviceJob& job, DeviceLaunch& room, Function&& launch) const {
    for (std::int64_t done = 0; done < job.bytes;) {
      const std::int64_t bytes = makeLaunch(job, done, room);
      GMAC_TRY(launch(static_cast<const DeviceLaunch&>(room)));
      done += bytes;
    }
    return Status();
  }
  template <typename Function>
  Status launches(const DeviceJob& job, Function&& launch) const {
    DeviceLaunch room;
    return launches(job, room, std::forward<Function>(launch));
  }

  // Fills in the launch that does the job from `done` bytes on; how many bytes that does.
  std::int64_t makeLaunch(const DeviceJob& job, std::int64_t done, DeviceLaunch& launch) const;

 private:
  struct Span;    // what one launch does
  struct Levels;  // mixed radices, the fastest first
  struct Frame;   // what the parameters of all shapes have in common
  std::uint32_t widthFor(const DeviceJob& job, std::int64_t offset, std::int64_t bytes) const;
  std::int64_t makeTile(const DeviceJob& job, std::int64_t offset, std::int64_t bytes,
                        std::uint32_t width, DeviceLaunch& launch) const;
  std::int64_t makeUnits(const DeviceJob& job, std::int64_t offset, std::int64_t bytes,
                         std::uint32_t width, DeviceLaunch& launch) const;
  void analyseList();
  bool canMark(std::int64_t extent) const;
  void writeMarks(std::uint64_t from, std::uint64_t to, std::uint32_t* out) const;
  bool inUnits() const { return shape_ == Shape::kLongList || shape_ == Shape::kWideList; }
  std::int64_t chooseUnit() const;
  void chooseTile();
  std::uint64_t setWindows(const DeviceJob& job, std::int64_t pieceBytes, Part& part) const;
  bool makePaced(const DeviceJob& job, const RowsParams<1>& rows, DeviceLaunch& launch) const;
  // True if the pieces are short rows that each lie in a DRAM row of their own.
  bool opensRows() const {
    return shape_ == Shape::kRows1 &&
           IssueRate::opensRows(pieceBytes_, layout_.dims().front().stride);
  }
  // True if a pack of that many bytes reads more short rows than caches hold, near enough for the
  // device's issue rate to gain something.
  bool isPaced(std::int64_t bytes) const {
    return opensRows() && std::abs(layout_.dims().front().stride) <= IssueRate::kMaxStride &&
           linesOfRows(bytes) > tuning_.cachedMost;
  }
  // The least that is read from memory for the rows of so many packed bytes.
  std::int64_t linesOfRows(std::int64_t bytes) const {
    return bytes / pieceBytes_ * IssueRate::kLine;
  }
  // The fastest use of the caches for a pack of so many bytes.
  Caching caching(std::int64_t bytes) const;
  int setLevels(Shape shape, const DeviceJob& job, std::uint32_t element, Levels& levels) const;
  void setBounds(const DeviceJob& job, Part& part) const;
  void setParams(const DeviceJob& job, const Frame& frame, std::uint32_t element,
                 DeviceLaunch& launch) const;
  void setGrid(const DeviceJob& job, std::uint64_t work, bool unrollable, DeviceLaunch& launch,
               std::uint8_t* unrolled) const;

  const Layout& layout_;
  const PlanTuning tuning_;
  const std::uint64_t identity_;
  Shape shape_ = Shape::kLine;
  Table table_;
  std::uint64_t alignment_ = 0;  // bits that are set in any piece's bytes, offset or stride
  std::uint64_t apart_ = 0;      // the same without their bytes
  std::int64_t lowest_ = 0;      // the least offset of the pieces
  std::int64_t pieceBytes_ = 0;  // of all pieces; 0: they differ
  std::int64_t meanPiece_ = 0;   // bytes of a piece, in the mean
  std::int64_t cachedMost_ = 0;  // packed bytes whose lines a cache may hold, of rows of some words
  std::uint32_t scale_ = 1;      // bytes that an entry of a list's table stands for
  std::int64_t unitBytes_ = 0;
  bool wide_ = false;  // entries of tables are 8 bytes, else 4
  int across_ = -1;    // of layout_.dims(): neighbours in memory, for tiles
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_PLAN_DEVICE_PLAN_H_
