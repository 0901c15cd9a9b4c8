// SPDX-License-Identifier: Apache-2.0
#include "exchange/incoming.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "gmac/base/log.h"
#include "gmac/datatype/cpu/transfer.h"

namespace gmac::exchange::internal {
namespace {

using datatype::Layout;
using std::int64_t;

// The most pieces of a side that the kernel takes at once; one is for the nonce.
constexpr std::size_t kPieces = 1023;
// The most that it copies at once, less what is not a whole page.
constexpr int64_t kMaxRead = int64_t{1} << 30;
// Shorter pieces of the receiver's are unpacked from memory of so many bytes, which stays in a
// second-level cache.
constexpr int64_t kLeastPiece = 4096;
constexpr int64_t kUnpackBytes = int64_t{64} << 10;

using Pieces = std::array<iovec, kPieces + 1>;

// The pieces of at most `most` packed bytes of a layout from byte `first` on; how many bytes they
// are.
int64_t fillPieces(const Layout& layout, std::uintptr_t base, int64_t first, int64_t most,
                   Pieces& pieces, std::size_t* count) {
  datatype::PieceCursor cursor(layout, first);
  int64_t filled = 0;
  *count = 0;
  while (filled < most && *count < kPieces) {
    const auto run = cursor.run();
    int64_t taken = 0;
    for (int64_t i = 0; i < run.count && filled < most && *count < kPieces; ++i) {
      const int64_t now = std::min(run.bytes, most - filled);
      pieces[(*count)++] = {
          reinterpret_cast<void*>(base + static_cast<std::uintptr_t>(run.offset + i * run.stride)),
          static_cast<std::size_t>(now)};
      filled += now;
      taken += now;
    }
    if (filled < most) {
      cursor.skip(taken);
    }
  }
  return filled;
}

}  // namespace

Incoming::Incoming(std::shared_ptr<Peer> peer, std::shared_ptr<Imports> imports,
                   std::shared_ptr<PathCounters> counters, int sender, std::size_t record,
                   std::uint64_t id, std::byte* base, Copies copies, const DeviceFunctions* device,
                   int64_t arrivalLeast, Layout to)
    : peer_(std::move(peer)),
      imports_(std::move(imports)),
      counters_(std::move(counters)),
      sender_(sender),
      index_(record),
      id_(id),
      base_(base),
      copies_(copies),
      device_(device),
      arrivalLeast_(arrivalLeast),
      to_(std::move(to)) {}

Incoming::~Incoming() {
  if (peer_->inChild()) {
    (void)deviceReads_.release();  // (Its copies are the parent's.)
    (void)drain_.release();
    return;
  }
  stopDevice();
  if (!over_) {
    (void)letGo(true);
  }
  if (import_ != nullptr) {
    imports_->unuse(import_);
  }
}

Status Incoming::tookBack() const {
  return fail(adsmErrorInvalidValue,
              "exchange: rank {} has taken a message of {} bytes back while it was read", sender_,
              bytes_);
}

void Incoming::stopDevice() {
  deviceReads_.reset();
  drain_.reset();
}

bool Incoming::letGo(bool gaveUp) {
  over_ = true;
  stopDevice();
  if (gaveUp) {
    failed_ = adsmErrorInvalidValue;
    record().answer.store(TransferRecord::kGaveUp, std::memory_order_relaxed);
  }
  std::uint64_t expected = Slot::stateOf(id_, phase_);
  const std::uint64_t free = Slot::stateOf(id_, Phase::kFree);
  if (record().state.compare_exchange_strong(expected, free, std::memory_order_acq_rel)) {
    return true;
  }
  if (expected == Slot::stateOf(id_, Phase::kMoved)) {
    // It is the receiver's alone.
    if (gaveUp) {
      record().state.store(free, std::memory_order_release);
    } else {
      over_ = false;
    }
    return gaveUp;
  }
  failed_ = adsmErrorInvalidValue;
  record().left.store(id_, std::memory_order_release);
  return false;
}

Status Incoming::moveToCopy() {
  stopDevice();
  const std::uint64_t copy = record().copy;
  const std::size_t all = peer_->met().file.payloadBytes();
  phase_ = Phase::kMoved;
  if (copy > all || static_cast<std::uint64_t>(bytes_) > all - copy) {
    (void)letGo(true);
    return fail(failed_, "exchange: the copy that rank {} has left of a message cannot be there",
                sender_);
  }
  path_ = Path::kCopy;
  copy_ = peer_->met().file.payloads() + copy;
  done_ = 0;
  return {};
}

Result<bool> Incoming::conclude() {
  // In this order: a sender may leave a copy and then revoke its export.
  const bool revoked = path_ != Path::kCopy && import_ != nullptr && import_->revoked();
  const std::uint64_t state = record().state.load(std::memory_order_acquire);
  if (phase_ == Phase::kCollected && state == Slot::stateOf(id_, Phase::kMoved)) {
    GMAC_TRY(moveToCopy());
    return false;
  }
  if (state != Slot::stateOf(id_, phase_) || revoked) {
    (void)letGo(true);
    return tookBack();
  }
  if (done_ < bytes_) {
    return false;
  }
  if (letGo(false)) {
    counters_->add(path(), bytes_);
    return true;
  }
  if (over_) {
    return tookBack();
  }
  GMAC_TRY(moveToCopy());
  return false;
}

Status Incoming::readLayout(LayoutTable& layouts, const SharedLayoutPtr& own) {
  const LayoutHash hash = record().hash;
  const auto how = static_cast<LayoutExchange>(record().layouts);
  if (how == LayoutExchange::kMemoised) {
    if (own != nullptr && own->hash == hash) {
      // It then shares its list with to_, so that nobody compares them.
      from_ = std::shared_ptr<const Layout>(own, &own->layout);
      layouts.countHit();
      return {};
    }
    from_ = layouts.find(hash, bytes_);
    if (from_ != nullptr) {
      return {};
    }
  }
  const std::uint64_t offset = record().layoutOffset;
  const std::uint64_t bytes = record().layoutBytes;
  const SharedFile& file = peer_->met().file;
  std::span<const std::byte> text;
  if (offset == TransferRecord::kInline && bytes <= record().layout.size()) {
    text = std::span(record().layout).first(bytes);
  } else if (offset <= file.payloadBytes() && bytes <= file.payloadBytes() - offset) {
    text = {file.payloads() + offset, bytes};
  }
  if (how == LayoutExchange::kPipelined) {
    parts_.emplace(text);
    return {};
  }
  Result<Layout> layout = decode(text);
  GMAC_TRY(layout.status());
  from_ = std::make_shared<const Layout>(std::move(*layout));
  if (how == LayoutExchange::kMemoised) {
    layouts.add(hash, from_);
  }
  return {};
}

Result<bool> Incoming::hasLayout() {
  if (!parts_.has_value() || done_ < partEnd_) {
    return true;
  }
  while (done_ == partEnd_) {
    Result<std::optional<LayoutReader::Part>> part =
        parts_->next(record().laid.load(std::memory_order_acquire));
    GMAC_TRY(part.status());
    if (!part->has_value()) {
      return false;
    }
    LayoutReader::Part& now = **part;
    if (now.last > bytes_ || (mapped_ != nullptr && !isImported(now.bounds))) {
      return fail(adsmErrorInvalidValue, "exchange: what rank {} says of a message cannot be",
                  sender_);
    }
    partEnd_ = now.last;
    from_ = std::make_shared<const Layout>(std::move(now.layout));
  }
  return true;
}

bool Incoming::isImported(const datatype::Bounds& bounds) const {
  int64_t first = 0;
  int64_t last = 0;
  return !__builtin_add_overflow(exportOffset_, bounds.first, &first) &&
         !__builtin_add_overflow(exportOffset_, bounds.last, &last) && first >= 0 &&
         last <= static_cast<int64_t>(import_->bytes);
}

Status Incoming::begin(LayoutTable& layouts, const SharedLayoutPtr& own, int64_t bytes, bool left) {
  TransferRecord& said = record();
  bytes_ = bytes;
  const std::uint64_t ring = said.ring;
  const std::uint64_t ringBytes = said.ringBytes;
  const std::uint64_t fragmentBytes = said.fragmentBytes;
  const std::uint32_t path = said.path;
  const std::uint64_t copy = said.copy;
  const bool isPinned = path == static_cast<std::uint32_t>(Path::kPinned);
  const bool isCopy = left && !(isPinned && said.pinnedIsLeft.load(std::memory_order_relaxed) != 0);
  const std::size_t all = peer_->met().file.payloadBytes();
  GMAC_TRY(readLayout(layouts, own));
  if (said.bytes != bytes || (from_ != nullptr && from_->bytes() != bytes) || ring > all ||
      ringBytes > all - ring || fragmentBytes == 0 || ringBytes < fragmentBytes ||
      ringBytes % fragmentBytes != 0 || path >= static_cast<std::uint32_t>(Path::kCopy) ||
      (isCopy && (copy > all || static_cast<std::uint64_t>(bytes) > all - copy))) {
    return fail(adsmErrorInvalidValue, "exchange: what rank {} says of a message cannot be",
                sender_);
  }
  address_ = said.address;
  ring_ = peer_->met().file.payloads() + ring;
  ringBytes_ = static_cast<int64_t>(ringBytes);
  fragmentBytes_ = static_cast<int64_t>(fragmentBytes);
  path_ = isCopy ? Path::kCopy : static_cast<Path>(path);
  copy_ = peer_->met().file.payloads() + (isCopy ? copy : 0);
  if (path_ == Path::kMapped || path_ == Path::kDevice) {
    return importSource(path_ == Path::kMapped ? ExportKind::kFile : ExportKind::kDevice,
                        ExportId{said.exportId}, said.exportOffset);
  }
  if (isCopy && isPinned) {
    // Its ring, for the next message.
    if (const auto import = imports_->use(peer_, sender_, ExportId{said.exportId}); import.ok()) {
      if (copies_.onDevice() && (*import)->kind == ExportKind::kPinned) imports_->pin(*import);
      imports_->unuse(*import);
    }
  }
  return path_ == Path::kPinned ? importRing(said) : Status();
}

Status Incoming::importRing(const TransferRecord& said) {
  const std::uint64_t offset = said.pinnedOffset;
  const std::uint64_t bytes = said.pinnedBytes;
  const std::uint64_t fragment = said.pinnedFragment;
  const auto import = imports_->use(peer_, sender_, ExportId{said.exportId});
  if (!import.ok()) {
    if (said.pinnedIsLeft.load(std::memory_order_relaxed) != 0) {
      return import.status();  // nobody serves another way
    }
    goThroughRing(lastErrorText());
    return {};
  }
  import_ = *import;
  if (import_->kind != ExportKind::kPinned || fragment == 0 || bytes < fragment ||
      bytes % fragment != 0 || offset > import_->bytes || bytes > import_->bytes - offset) {
    return fail(adsmErrorInvalidValue, "exchange: what rank {} says of a message cannot be",
                sender_);
  }
  pinned_ = {import_->data + offset, static_cast<int64_t>(bytes), static_cast<int64_t>(fragment)};
  if (copies_.onDevice()) {
    imports_->pin(import_);
  }
  return {};
}

Status Incoming::importSource(ExportKind kind, ExportId id, int64_t offset) {
  if (kind == ExportKind::kDevice && device_ == nullptr) {
    goThroughRing("no device of this process copies it");
    return {};
  }
  const auto import = imports_->use(peer_, sender_, id);
  if (!import.ok() && kind == ExportKind::kFile &&
      peer_->readable.load(std::memory_order_relaxed)) {
    log(LogLevel::kInfo, "exchange: a message of {} bytes is read, not mapped: {}", bytes_,
        lastErrorText());
    path_ = Path::kRead;
    record().answer.store(TransferRecord::kReads, std::memory_order_release);
    return {};
  }
  if (!import.ok()) {
    goThroughRing(lastErrorText());
    return {};
  }
  import_ = *import;
  exportOffset_ = offset;
  // (Of a layout in parts, each part is looked at when it is there.)
  if ((import_->kind == ExportKind::kFile) != (kind == ExportKind::kFile) ||
      import_->kind == ExportKind::kPinned || (from_ != nullptr && !isImported(from_->bounds())) ||
      (from_ == nullptr && kind != ExportKind::kFile)) {
    return fail(adsmErrorInvalidValue, "exchange: a message of rank {} does not lie in its export",
                sender_);
  }
  mapped_ = import_->data + offset;
  return kind == ExportKind::kDevice ? findAhead(record()) : Status();
}

Status Incoming::findAhead(const TransferRecord& said) {
  // (The sender may have made room for it since, which is proved for its next message.)
  peer_->importPieces(imports_->rank(), *device_);
  const std::uint64_t fragment = said.aheadFragment;
  const std::uint64_t offset = said.aheadOffset;
  if (fragment == 0 || device_->begin == nullptr) {
    return {};
  }
  std::size_t all = 0;
  const std::byte* const piece = peer_->piece(said.aheadPiece, &all);
  if (piece == nullptr || offset > all || fragment > (all - offset) / TransferRecord::kAheadSlots) {
    return fail(adsmErrorInvalidValue, "exchange: what rank {} says of a message cannot be",
                sender_);
  }
  aheadRing_ = AheadRing{piece + offset, static_cast<int64_t>(fragment)};
  return {};
}

void Incoming::goThroughRing(const char* why) {
  log(LogLevel::kInfo, "exchange: a message of {} bytes goes through the ring: {}", bytes_, why);
  askForRing();
}

// (What has been copied is copied again.)
void Incoming::askForRing() {
  path_ = Path::kRing;
  done_ = 0;
  record().answer.store(TransferRecord::kWantsRing, std::memory_order_release);
}

// The kernel looks up each piece of either side. So it reads small pieces of ours as one, which are
// unpacked from there.
Result<int64_t> Incoming::read(int64_t most) {
  // (A device's memory is none that the kernel reads into.)
  if ((copies_.onDevice() || to_.meanBlockBytes() < kLeastPiece) && unpackFrom_ == nullptr) {
    unpackFrom_.reset(new (std::nothrow) std::byte[kUnpackBytes]);
    if (unpackFrom_ == nullptr && copies_.onDevice()) {
      askForRing();
      return 0;
    }
  }
  Pieces here;
  Pieces there;
  const int64_t limit =
      std::min({most, bytes_ - done_, unpackFrom_ != nullptr ? kUnpackBytes : kMaxRead});
  std::size_t hereCount = 0;
  std::size_t thereCount = 0;
  int64_t bytes = fillPieces(*from_, address_, done_, limit, there, &thereCount);
  if (unpackFrom_ != nullptr) {
    here[hereCount++] = {unpackFrom_.get(), static_cast<std::size_t>(bytes)};
  } else if (const int64_t fits = fillPieces(to_, reinterpret_cast<std::uintptr_t>(base_), done_,
                                             bytes, here, &hereCount);
             fits < bytes) {
    bytes = fillPieces(*from_, address_, done_, fits, there, &thereCount);
  }
  // Last its nonce: so long, at least, that was the process and the program.
  Nonce nonce{};
  here[hereCount++] = {&nonce, sizeof nonce};
  there[thereCount++] = {reinterpret_cast<void*>(peer_->met().nonceAddress), sizeof nonce};
  const ssize_t got =
      ::process_vm_readv(peer_->met().process, here.data(), hereCount, there.data(), thereCount, 0);
  if (got == bytes + static_cast<ssize_t>(sizeof nonce) && nonce == peer_->met().nonce) {
    if (unpackFrom_ != nullptr) {
      GMAC_TRY(copies_.unpack(to_, base_, unpackFrom_.get(), done_, bytes));
    }
    return bytes;
  }
  if (got < 0 && errno == ESRCH) {
    return fail(adsmErrorSystem, "exchange: the process of rank {} has ended", sender_);
  }
  log(LogLevel::kInfo, "exchange: a message of {} bytes goes through the ring: {}", bytes_,
      got < 0 ? std::strerror(errno) : "not all of it can be read from outside of its process");
  if (got < 0 && (errno == EPERM || errno == ENOSYS)) {
    peer_->readable.store(false, std::memory_order_relaxed);
  }
  askForRing();
  return 0;
}

Result<int64_t> Incoming::unpackRing(int64_t most) {
  const auto produced = static_cast<int64_t>(record().produced.load(std::memory_order_acquire));
  if (produced < done_ || produced > bytes_ || produced - done_ > ringBytes_) {
    return fail(adsmErrorInvalidValue, "exchange: rank {} says that {} bytes of {} are there",
                sender_, produced, bytes_);
  }
  const int64_t now = std::min({most, produced - done_, fragmentBytes_ - done_ % fragmentBytes_});
  if (now > 0) {
    GMAC_TRY(copies_.unpack(to_, base_, ring_ + done_ % ringBytes_, done_, now));
  }
  return now;
}

Result<int64_t> Incoming::drainRing(int64_t most) {
  if (copies_.onDevice() && device_->begin != nullptr) {
    if (drain_ == nullptr) {
      drain_ = std::make_unique<RingDrain>(*device_, record(), pinned_, to_, base_, bytes_);
    }
    return drain_->advance();
  }
  const Result<int64_t> ready = readyInRing(record(), pinned_, done_, bytes_);
  GMAC_TRY(ready.status());
  const int64_t now = std::min(most, *ready);
  if (now > 0) {
    GMAC_TRY(
        copies_.unpack(to_, base_, pinned_.address + done_ % pinned_.bytes, done_, now, bytes_));
  }
  return now;
}

// Copies at most so many bytes; how many.
Result<int64_t> Incoming::step(int64_t most) {
  if (path_ == Path::kMapped || path_ == Path::kRead || path_ == Path::kDevice) {
    const Result<bool> known = hasLayout();
    GMAC_TRY(known.status());
    if (!*known) {
      return 0;
    }
    most = parts_.has_value() ? std::min(most, partEnd_ - done_) : most;
  }
  switch (path_) {
    case Path::kMapped:
      GMAC_TRY(copies_.transfer(to_, base_, *from_, mapped_, done_, most, bytes_));
      return most;
    case Path::kDevice:
      if (device_->begin != nullptr) {
        if (deviceReads_ == nullptr) {
          deviceReads_ = std::make_unique<DeviceReads>(*device_, record(), aheadRing_, to_, base_,
                                                       *from_, mapped_, arrivalLeast_);
        }
        const Result<int64_t> arrived = deviceReads_->advance();
        hasArrived_ = deviceReads_->arrivedByOneKernel();
        return arrived;
      }
      GMAC_TRY(transferByDevice(*device_, to_, base_, *from_, mapped_, done_, most));
      return most;
    case Path::kPinned:
      return drainRing(most);
    case Path::kCopy:
      GMAC_TRY(copies_.unpack(to_, base_, copy_ + done_, done_, most, bytes_));
      return most;
    case Path::kRead:
      return read(most);
    case Path::kArriving:
    case Path::kRing:
      break;
  }
  return unpackRing(most);
}

Status Incoming::isOver() const {
  return failed_ == adsmErrorSystem
             ? fail(failed_, "exchange: the process of rank {} has ended", sender_)
             : tookBack();
}

const std::byte* Incoming::packed() const {
  if (over_ || peer_->inChild()) {
    return nullptr;
  }
  if (path_ == Path::kCopy) {
    return copy_;
  }
  if (ringHoldsAll()) {
    const std::uint64_t produced = record().produced.load(std::memory_order_acquire);
    return produced == static_cast<std::uint64_t>(bytes_) ? ring_ : nullptr;
  }
  return path_ == Path::kMapped && !parts_.has_value() && from_->blockCount() == 1
             ? mapped_ + from_->bounds().first
             : nullptr;
}

const std::byte* Incoming::packedOnDevice() const {
  return !over_ && !peer_->inChild() && path_ == Path::kDevice && from_->blockCount() == 1
             ? mapped_ + from_->bounds().first
             : nullptr;
}

bool Incoming::isBeingPacked() const {
  return !over_ && !peer_->inChild() && ringHoldsAll() && packed() == nullptr;
}

Result<bool> Incoming::end() {
  if (packed() == nullptr && packedOnDevice() == nullptr) {
    return over_ && failed_ != adsmSuccess
               ? Result<bool>(isOver())
               : fail(adsmErrorInvalidValue, "exchange: a message that is not read where it lies");
  }
  done_ = bytes_;
  return conclude();
}

// A copy needs none, nor what is all in pinned memory.
bool Incoming::needsSender() const {
  return path_ != Path::kCopy &&
         (path_ != Path::kPinned || record().pinnedProduced.load(std::memory_order_acquire) !=
                                        static_cast<std::uint64_t>(bytes_));
}

Result<bool> Incoming::advance(int64_t most) {
  if (peer_->inChild()) {
    return fail(adsmErrorForked, "exchange: a child of fork has no part in its parent's messages");
  }
  if (over_) {
    return failed_ != adsmSuccess ? Result<bool>(isOver()) : Result<bool>(true);
  }
  if (path_ == Path::kRead && !peer_->readable.load(std::memory_order_relaxed)) {
    askForRing();
  }
  int64_t copied = 0;
  while (copied < most && done_ < bytes_) {
    const Result<int64_t> now = step(std::min(most - copied, bytes_ - done_));
    if (!now.ok()) {
      const std::string text = lastErrorText();
      const adsmError_t code = now.status().code();
      (void)letGo(true);
      failed_ = code;
      return fail(code, "{}", text);
    }
    done_ += *now;
    copied += *now;
    if (path_ == Path::kRing) {
      record().consumed.store(static_cast<std::uint64_t>(done_), std::memory_order_release);
    } else if (path_ == Path::kPinned) {
      record().pinnedConsumed.store(static_cast<std::uint64_t>(done_), std::memory_order_release);
    }
    if (*now == 0) {
      break;
    }
  }
  const Result<bool> concluded = conclude();
  if (!concluded.ok() || *concluded) {
    return concluded;
  }
  if (copied == 0 && needsSender() && patience_.passed() && !peer_->lives()) {
    // It may have left one since.
    const Result<bool> last = conclude();
    if (!last.ok() || *last || path_ == Path::kCopy) {
      return last;
    }
    (void)letGo(true);
    failed_ = adsmErrorSystem;
    return fail(failed_,
                "exchange: the process of rank {} has ended before all of a message of {} bytes "
                "was there",
                sender_, bytes_);
  }
  return false;
}

}  // namespace gmac::exchange::internal
