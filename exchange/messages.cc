// SPDX-License-Identifier: Apache-2.0
//
// Messages: what transfer.h declares, over the two ends of outgoing.h and incoming.h.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>

#include "exchange/description.h"
#include "exchange/exchange_state.h"
#include "exchange/incoming.h"
#include "exchange/outgoing.h"
#include "gmac/base/log.h"
#include "gmac/base/round_up.h"

namespace gmac::exchange {

const char* pathName(Path path) {
  static constexpr const char* kNames[kPaths] = {"mapped", "read", "ring",    "device",
                                                 "pinned", "copy", "arriving"};
  return kNames[static_cast<std::size_t>(path)];
}

namespace {

Status noCopies() {
  return fail(adsmErrorNotSupported, "exchange: no device of this process copies messages");
}

// The receiver's kernel looks up each piece, which costs as much as to copy so many bytes; shorter
// pieces, and short messages, are packed.
constexpr std::int64_t kReadPiece = 4096;
constexpr std::int64_t kReadMessage = std::int64_t{16} << 10;

// Of memory that is not mapped.
Path choose(const datatype::Layout& layout, bool reads) {
  const bool longPieces = layout.bytes() >= kReadMessage && layout.meanBlockBytes() >= kReadPiece;
  return longPieces && reads ? Path::kRead : Path::kRing;
}

}  // namespace

Result<Sending> Exchange::send(int rank, const std::byte* base, SharedLayoutPtr layout,
                               const SendOptions& options) {
  State& state = *state_;
  if (state.outbox->inChild()) {
    return forked();
  }
  if (state.peer(rank) == nullptr) {
    return fail(adsmErrorInvalidValue, "exchange: rank {} is not reached from rank {}", rank,
                state.job.rank);
  }
  constexpr std::size_t kFragmentUnit = 4096;
  if (layout == nullptr || options.fragmentBytes == 0 ||
      options.fragmentBytes % kFragmentUnit != 0 || options.fragments == 0 ||
      options.layoutPartBytes == 0 || options.path == Path::kCopy ||
      options.path == Path::kArriving ||
      (options.path == Path::kMapped && options.file == kNoExport) ||
      (options.path == Path::kDevice && options.device == kNoExport) ||
      (options.path == Path::kPinned &&
       (options.pinnedFragment == 0 || options.pinnedFragment % kFragmentUnit != 0 ||
        options.pinnedFragment > state.pinnedRingBytes / 2))) {
    return fail(adsmErrorInvalidValue,
                "exchange: a message in {} fragments of {} bytes, its layout in parts of {}; "
                "allowed are multiples of {}, parts of at least 1, and mapped or by a device only "
                "what is exported",
                options.fragments, options.fragmentBytes, options.layoutPartBytes, kFragmentUnit);
  }
  if (options.onDevice ? options.path == Path::kMapped || options.path == Path::kRead ||
                             options.file != kNoExport
                       : options.device != kNoExport || options.path == Path::kPinned) {
    return fail(
        adsmErrorInvalidValue, "exchange: a message in {} memory does not go as one in {} memory",
        options.onDevice ? "device" : "the CPU's", options.onDevice ? "the CPU's" : "device");
  }
  if (options.onDevice && (state.copying() == nullptr ||
                           (options.path == Path::kPinned && state.copying()->begin == nullptr))) {
    return noCopies();
  }
  const std::shared_ptr<internal::Peer>& peer = state.peers[static_cast<std::size_t>(rank)];
  const bool refusesReads = state.outbox->file().proof(rank, FileLayout::kReads) == Proof::kRefused;
  const Path copied =
      options.onDevice ? Path::kRing : choose(layout->layout, peer->reads && !refusesReads);
  const ExportId exported = options.onDevice ? options.device : options.file;
  Path path = options.path.value_or(exported == kNoExport ? copied
                                    : options.onDevice    ? Path::kDevice
                                                          : Path::kMapped);
  if (path == Path::kMapped || path == Path::kDevice) {
    if (const Status status = state.exports->hand(exported, rank, *peer);
        status.code() == adsmErrorSystem && !options.path.has_value()) {
      log(LogLevel::kInfo, "exchange: a message of {} bytes is not {}: {}", layout->layout.bytes(),
          pathName(path), lastErrorText());
      path = copied;
    } else {
      GMAC_TRY(status);
    }
  }
  internal::PinnedRings::Use ring;
  if (path == Path::kPinned) {
    state.transfers->sweep();
    const std::size_t wanted =
        roundUp(static_cast<std::size_t>(std::max<std::int64_t>(layout->layout.bytes(), 1)),
                options.pinnedFragment);
    Result<internal::PinnedRings::Use> taken = state.pinnedRings->take(rank, wanted, state.peers);
    // (Of receivers that have ended.)
    if (!taken.ok() && state.transfers->makeRoom()) {
      taken = state.pinnedRings->take(rank, wanted, state.peers);
    }
    GMAC_TRY(taken.status());
    ring = std::move(*taken);
  }
  // (A receiver that may fail to import it needs its sender then.)
  const bool leavesRing =
      options.leavesRing &&
      (path != Path::kPinned ||
       (static_cast<std::int64_t>(ring.bytes() / options.pinnedFragment * options.pinnedFragment) >=
            layout->layout.bytes() &&
        state.exports->isImportedBy(ring.id(), rank)));
  const ExportId source = ring ? ring.id() : exported;
  const Result<std::size_t> index =
      state.transfers->take(rank, layout, options, peer, std::move(ring));
  GMAC_TRY(index.status());
  TransferRecord& record = state.transfers->record(*index);
  record.address = reinterpret_cast<std::uintptr_t>(base);
  record.exportId = static_cast<std::uint64_t>(source);
  record.exportOffset = options.onDevice ? options.deviceOffset : options.fileOffset;
  record.path = static_cast<std::uint32_t>(path);
  record.pinnedIsLeft.store(leavesRing && path == Path::kPinned ? 1 : 0, std::memory_order_relaxed);
  const internal::Copies copies(options.onDevice ? state.copying() : nullptr);
  // (One device loads short pieces of its own memory as fast as it packs them.)
  const bool isFar =
      state.device != nullptr && (state.device->identity == nullptr || usesOtherDevice(rank));
  const internal::AheadOptions ahead =
      isFar ? state.ahead : internal::AheadOptions{INT64_MAX, state.ahead.fragment};
  return Sending(std::make_unique<internal::Outgoing>(state.transfers, peer, *index, base, copies,
                                                      std::move(layout), options.layoutPartBytes,
                                                      rank, path, leavesRing, ahead));
}

bool Exchange::isReadBy(int rank) const noexcept {
  const internal::Peer* const peer = state_->peer(rank);
  return peer != nullptr && peer->reads.load(std::memory_order_relaxed) &&
         state_->outbox->file().proof(rank, FileLayout::kReads).load(std::memory_order_acquire) ==
             Proof::kProved;
}

bool Exchange::anyWaits() const noexcept {
  return !state_->outbox->inChild() &&
         state_->outbox->file().waiting().load(std::memory_order_acquire) != 0;
}

bool Exchange::waits(int sender) const noexcept {
  return reaches(sender) && !state_->outbox->inChild() &&
         state_->outbox->file().waitingOf(sender).load(std::memory_order_acquire) != 0;
}

std::int64_t Exchange::bytesOf(ConstDescription description) {
  internal::TransferContents said;
  std::memcpy(&said, description.data(), sizeof said);
  return said.magic == internal::TransferContents::kMagic ? said.bytes : 0;
}

void Exchange::knowType(std::shared_ptr<const datatype::Layout> element, std::int64_t extent) {
  state_->layouts->addType(std::move(element), extent);
}

void Exchange::forgetType(const datatype::Layout& element, std::int64_t extent) {
  state_->layouts->removeType(element, extent);
}

Result<Receiving> Exchange::receive(int sender, ConstDescription description, std::byte* base,
                                    const datatype::Layout& layout, Memory memory) {
  return receive(sender, description, base, layout, nullptr, memory);
}

Result<Receiving> Exchange::receive(int sender, ConstDescription description, std::byte* base,
                                    const SharedLayoutPtr& layout, Memory memory) {
  if (layout == nullptr) {
    return fail(adsmErrorInvalidValue, "exchange: a message is received as no layout");
  }
  return receive(sender, description, base, layout->layout, layout, memory);
}

Result<Receiving> Exchange::receive(int sender, ConstDescription description, std::byte* base,
                                    const datatype::Layout& layout, const SharedLayoutPtr& shared,
                                    Memory memory) {
  State& state = *state_;
  if (state.outbox->inChild()) {
    return forked();
  }
  if (memory == Memory::kDevice && state.copying() == nullptr) {
    return noCopies();
  }
  const internal::Peer* const peer = state.peer(sender);
  if (peer == nullptr) {
    return fail(adsmErrorInvalidValue, "exchange: rank {} is not reached from rank {}", sender,
                state.job.rank);
  }
  const auto refused = [&](const char* why) {
    return fail(adsmErrorInvalidValue, "exchange: a message from rank {} is refused: {}", sender,
                why);
  };
  internal::TransferContents said;
  std::memcpy(&said, description.data(), sizeof said);
  if (said.magic != internal::TransferContents::kMagic || said.nonce != peer->met().nonce ||
      said.receiver != state.job.rank || said.record >= FileLayout::kTransfers ||
      said.id > Slot::kMaxId || said.bytes < 0 ||
      std::any_of(std::begin(said.reserved), std::end(said.reserved),
                  [](std::uint64_t word) { return word != 0; })) {
    return refused("it is none of that process's for this one");
  }
  if (said.bytes > layout.bytes()) {
    return refused("it is longer than the receiver's layout");
  }
  TransferRecord& record = peer->met().file.transfer(said.record);
  const std::uint64_t described = Slot::stateOf(said.id, Phase::kDescribed);
  const std::uint64_t copied = Slot::stateOf(said.id, Phase::kCopied);
  std::uint64_t found = record.state.load(std::memory_order_acquire);
  do {
    if ((found != described && found != copied) || record.receiver != said.receiver ||
        record.bytes != said.bytes) {
      return refused("it was received or taken back before, or never was");
    }
  } while (!record.state.compare_exchange_weak(found, Slot::stateOf(said.id, Phase::kCollected),
                                               std::memory_order_acq_rel));
  if (found == described) {
    const SharedFile& own = state.outbox->file();
    own.waiting().fetch_sub(1, std::memory_order_acq_rel);
    own.waitingOf(sender).fetch_sub(1, std::memory_order_acq_rel);
  }
  const internal::Copies copies(memory == Memory::kDevice ? state.copying() : nullptr);
  auto message = std::make_unique<internal::Incoming>(
      state.peers[static_cast<std::size_t>(sender)], state.imports, state.received, sender,
      said.record, said.id, base, copies, state.copying(), state.arrivalLeast, layout);
  if (const Status status = message->begin(*state.layouts, shared, said.bytes, found == copied);
      !status.ok()) {
    const std::string text = lastErrorText();
    message.reset();
    return fail(status.code(), "{}", text);
  }
  return Receiving(std::move(message));
}

namespace {

// advance() until it is over or fails, with pauses that let the other process run.
template <typename Advance>
Result<bool> waitFor(std::chrono::milliseconds limit, const Advance& advance) {
  constexpr int kSpins = 64;
  constexpr int kYields = 1024;
  const auto end = std::chrono::steady_clock::now() + limit;
  for (int round = 0;; ++round) {
    const Result<bool> done = advance();
    if (!done.ok() || *done) {
      return done;
    }
    if (round >= kSpins) {
      if (std::chrono::steady_clock::now() >= end) {
        return false;
      }
      if (round < kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }
}

}  // namespace

Sending::Sending() = default;
Sending::Sending(Sending&&) noexcept = default;
Sending& Sending::operator=(Sending&&) noexcept = default;
Sending::~Sending() = default;
Sending::Sending(std::unique_ptr<internal::Outgoing> message) : message_(std::move(message)) {}
std::int64_t Sending::bytes() const { return message_->bytes(); }
Path Sending::path() const { return message_->path(); }
void Sending::describe(Description description) { message_->describe(description); }
Result<bool> Sending::advance() { return message_->advance(); }
bool Sending::recall() { return message_->recall(); }
bool Sending::needsNobody() const { return message_->needsNobody(); }
Result<bool> Sending::leaveCopy() { return message_->leaveCopy(false); }
Result<bool> Sending::leaveCopyNow() { return message_->leaveCopy(true); }
bool Sending::declined() const { return message_->declined(); }
Result<bool> Sending::wait(std::chrono::milliseconds limit) {
  return waitFor(limit, [this] { return advance(); });
}

Receiving::Receiving() = default;
Receiving::Receiving(Receiving&&) noexcept = default;
Receiving& Receiving::operator=(Receiving&&) noexcept = default;
Receiving::~Receiving() = default;
Receiving::Receiving(std::unique_ptr<internal::Incoming> message) : message_(std::move(message)) {}
std::int64_t Receiving::bytes() const { return message_->bytes(); }
Path Receiving::path() const { return message_->path(); }
Result<bool> Receiving::advance(std::int64_t most) { return message_->advance(most); }
const std::byte* Receiving::packed() const { return message_->packed(); }
const std::byte* Receiving::packedOnDevice() const { return message_->packedOnDevice(); }
bool Receiving::isBeingPacked() const { return message_->isBeingPacked(); }
Result<bool> Receiving::end() { return message_->end(); }
Result<bool> Receiving::wait(std::chrono::milliseconds limit) {
  return waitFor(limit, [this] { return advance(); });
}

}  // namespace gmac::exchange
