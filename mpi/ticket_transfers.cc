// SPDX-License-Identifier: Apache-2.0
//
// The transfers of this process: messages that stay in the sender's memory (Transfer in tickets.h).
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gmac/base/log.h"
#include "gmac/base/status.h"
#include "gmac/session/device_memory.h"
#include "mpi/tickets_state.h"

namespace gmac::mpi::tickets {

using internal::State;
using internal::state;
using internal::ticketOf;
using internal::Wire;

namespace {

// Of the ring: so short that both sides begin soon with a short message, and so many that it is
// half of what a second-level cache has.
constexpr std::size_t kFragmentBytes = std::size_t{32} << 10;
constexpr std::size_t kFragments = 8;
// Of a copy; on the slow side. And of a bus to pinned memory.
constexpr std::int64_t kCopiedBytesPerMicrosecond = 4000;
constexpr std::int64_t kStagedBytesPerMicrosecond = 40000;
// A message through pinned memory is cut so that both devices copy for most of its time.
constexpr std::int64_t kStagedFragments = 8;
constexpr std::int64_t kMostStagedFragment = std::int64_t{4} << 20;
constexpr std::int64_t kPage = 4096;

// Whether the kernel copies from there for others, by the ends: not from memory of some drivers.
bool isReadable(const std::byte* base, const datatype::Layout& layout) {
  const datatype::Bounds bounds = layout.bounds();
  std::array<std::byte, 2> ends;
  const iovec here = {ends.data(), ends.size()};
  const auto first = reinterpret_cast<std::uintptr_t>(base);
  const std::array<iovec, 2> there = {
      iovec{reinterpret_cast<void*>(first + static_cast<std::uintptr_t>(bounds.first)), 1},
      iovec{reinterpret_cast<void*>(first + static_cast<std::uintptr_t>(bounds.last) - 1), 1}};
  return ::process_vm_readv(::getpid(), &here, 1, there.data(), there.size(), 0) == 2;
}

// The export of the memory file, which grows: another one where it has. NULL: there is none.
std::shared_ptr<const ExportedFile> exportOf(const Loan& loan) {
  State& all = state();
  const std::lock_guard guard(all.fileLock);
  if (all.file == nullptr || all.file->number != (*loan).fileNumber ||
      all.file->bytes < loan.end()) {
    const auto id =
        all.exchange->exportFile((*loan).file, 0, static_cast<std::size_t>((*loan).fileBytes));
    all.file = id.ok() ? std::make_shared<const ExportedFile>(*id, *loan) : nullptr;
  }
  return all.file;
}

DeviceMessage::Reach reachOf(const DeviceExports::MemoryPtr& memory, int rank) {
  using Reach = DeviceMessage::Reach;
  const exchange::Exchange& exchange = *state().exchange;
  return memory == nullptr                         ? Reach::kHasNoHandle
         : exchange.isImportedBy(memory->id, rank) ? Reach::kImported
         : exchange.failsToImport(rank)            ? Reach::kFails
                                                   : Reach::kNotYet;
}

// Of memory that is worth a ticket, and is copied by the receiver's device if that has it.
Choice chooseOnDevice(std::int64_t bytes, DeviceMessage::Reach reach, int rank, Sender sender) {
  return tickets::chooseOnDevice({bytes, false, reach}, sender, leastPayload(),
                                 leastOnDevice(rank));
}

}  // namespace

ExportedFile::~ExportedFile() {
  if (const auto& exchange = state().exchange) {
    (void)exchange->revoke(id);  // its memory stays with whoever has it
  }
}

Transfer::Transfer(exchange::Sending sending, int rank, Source source, Sender sender)
    : isLent_(source.loan),
      isDeviceLent_(source.deviceLoan),
      isStaged_(sending.path() == exchange::Path::kPinned),
      bytesPerMicrosecond_(sender == Sender::kFollows ? kStagedBytesPerMicrosecond
                                                      : kCopiedBytesPerMicrosecond),
      source_(std::move(source)),
      sending_(std::move(sending)),
      rank_(rank) {}

void Transfer::list(const std::shared_ptr<Transfer>& transfer) {
  State& all = state();
  const std::lock_guard guard(all.lock);
  all.transfers.push_back(transfer);
  all.transferCount = all.transfers.size();
}

std::shared_ptr<Transfer> Transfer::offer(int rank, const std::byte* base,
                                          exchange::SharedLayoutPtr layout, Sender sender,
                                          tickets::Source* packed) {
  State& all = state();
  tellDevice();  // before the receiver imports the memory
  const datatype::Bounds bounds = layout->layout.bounds();
  const std::byte* const first = base + bounds.first;
  auto memory = all.memory->find(first, static_cast<std::size_t>(bounds.last - bounds.first));
  const DeviceMessage::Reach reach = reachOf(memory, rank);
  packed->hasNoHandle = memory == nullptr;
  if (memory != nullptr) all.exchangesMemory = true;
  const std::uint64_t reclaims = all.reclaims.load();
  // (What is imported needs no ring, which nobody may serve while the sender is in another call.)
  const Choice choice = chooseOnDevice(layout->layout.bytes(), reach, rank, sender);
  if (choice != Choice::kDevice) {
    if (memory != nullptr) packed->exported = memory->id;
    return choice == Choice::kPinned ? stage(rank, base, std::move(layout), sender, *packed)
                                     : nullptr;
  }
  int reached = 0;
  if (gmacOpenDeviceMemory(first, &reached) != adsmSuccess || reached == 0) {
    return nullptr;  // packing says why
  }
  auto transfer =
      beginOnDevice(rank, base, base, std::move(layout), {{}, nullptr, std::move(memory), {}, {}});
  // (As of lent bytes.)
  if (transfer != nullptr && all.reclaims.load() != reclaims) {
    transfer->giveBack(transfer->source_.memory->id);
  }
  return transfer;
}

// Of device memory that the receiver does not reach, as `packed` says. (Not of objects: fragments
// would be of several states, where another thread's kernel writes the object meanwhile.)
std::shared_ptr<Transfer> Transfer::stage(int rank, const std::byte* base,
                                          exchange::SharedLayoutPtr layout, Sender sender,
                                          const tickets::Source& packed) {
  State& all = state();
  const std::int64_t bytes = layout->layout.bytes();
  int reached = 0;
  if (gmacOpenDeviceMemory(base + layout->layout.bounds().first, &reached) != adsmSuccess ||
      reached == 0) {
    return nullptr;  // packing says why
  }
  all.exchangesMemory = true;
  exchange::SendOptions options;
  options.mayCopy = true;
  options.onDevice = true;
  options.path = exchange::Path::kPinned;
  options.leavesRing = true;
  options.pinnedFragment = static_cast<std::size_t>(
      std::clamp(bytes / kStagedFragments / kPage * kPage, kPage, kMostStagedFragment));
  auto sending = all.exchange->send(rank, base, std::move(layout), options);
  if (!sending.ok()) {
    return nullptr;
  }
  auto transfer = std::make_shared<Transfer>(std::move(*sending), rank,
                                             Source{{}, nullptr, nullptr, {}, packed}, sender);
  list(transfer);
  return transfer;
}

// `device`: the address of `base` on the device.
std::shared_ptr<Transfer> Transfer::beginOnDevice(int rank, const std::byte* base,
                                                  const std::byte* device,
                                                  exchange::SharedLayoutPtr layout, Source source) {
  exchange::SendOptions options;
  options.mayCopy = true;
  options.onDevice = true;
  options.path = exchange::Path::kDevice;
  options.device = source.memory->id;
  options.deviceOffset = device - source.memory->start;
  auto sending = state().exchange->send(rank, base, std::move(layout), options);
  if (!sending.ok()) {
    return nullptr;
  }
  auto transfer = std::make_shared<Transfer>(std::move(*sending), rank, std::move(source));
  list(transfer);
  return transfer;
}

std::shared_ptr<Transfer> Transfer::lendOnDevice(int rank, const std::byte* base,
                                                 exchange::SharedLayoutPtr layout,
                                                 tickets::Source* packed, bool* failed) {
  State& all = state();
  tellDevice();  // before the receiver imports the memory
  const std::uint64_t reclaims = all.reclaims.load();
  const datatype::Bounds bounds = layout->layout.bounds();
  adsmError_t error = adsmSuccess;
  DeviceLoan loan(base + bounds.first, static_cast<std::size_t>(bounds.last - bounds.first),
                  &error);
  *failed = error != adsmSuccess;
  if (!loan) {
    return nullptr;
  }
  auto memory = all.memory->find(*loan);
  if (memory == nullptr) {
    packed->hasNoHandle = true;
    return nullptr;
  }
  all.exchangesMemory = true;
  // (So it needs no ring, which nobody may serve while the sender is in another call.)
  if (!all.exchange->isImportedBy(memory->id, rank)) {
    if (all.exchange->offer(memory->id, rank).ok()) {
      packed->exported = memory->id;
    }
    return nullptr;
  }
  const auto* const device = static_cast<const std::byte*>((*loan).address) - bounds.first;
  auto transfer = beginOnDevice(rank, base, device, std::move(layout),
                                {{}, nullptr, std::move(memory), std::move(loan), {}});
  // (As of lent bytes.)
  if (transfer != nullptr && all.reclaims.load() != reclaims) {
    transfer->giveBack(true);
  }
  return transfer;
}

std::shared_ptr<Transfer> Transfer::lend(int rank, const std::byte* base,
                                         exchange::SharedLayoutPtr layout, Sender sender) {
  State& all = state();
  // (As in begin(): a receiver that cannot map it reads it.)
  if (sender != Sender::kWaits && !all.exchange->isReadBy(rank)) {
    return nullptr;
  }
  const std::uint64_t reclaims = all.reclaims.load();
  const datatype::Bounds bounds = layout->layout.bounds();
  Loan loan(base + bounds.first, static_cast<std::size_t>(bounds.last - bounds.first));
  if (!loan) {
    return nullptr;
  }
  auto file = exportOf(loan);
  if (file == nullptr) {
    return nullptr;
  }
  exchange::SendOptions options;
  options.mayCopy = true;
  options.path = exchange::Path::kMapped;
  options.file = file->id;
  options.fileOffset = (*loan).offset - bounds.first;
  const auto* const view = static_cast<const std::byte*>((*loan).view) - bounds.first;
  auto sending = all.exchange->send(rank, view, std::move(layout), options);
  if (!sending.ok()) {
    return nullptr;
  }
  auto transfer = std::make_shared<Transfer>(
      std::move(*sending), rank, Source{std::move(loan), std::move(file), nullptr, {}, {}});
  list(transfer);
  // Who asked after the loan was made has found the transfer, or is found here.
  if (all.reclaims.load() != reclaims) {
    transfer->giveBack(false);
  }
  return transfer;
}

Choice choiceFor(int rank, const std::byte* base, const datatype::Layout& layout, Sender sender) {
  PlainMessage message = {layout.bytes(), layout.blockCount(), layout.meanBlockBytes(),
                          state().exchange->isReadBy(rank)};
  const Choice choice = choosePlain(message, sender, leastPayload());
  // (A receiver that cannot read after all asks for the ring, which nobody may serve then.)
  message.isRead = choice != Choice::kRead || sender == Sender::kWaits || isReadable(base, layout);
  return message.isRead ? choice : choosePlain(message, sender, leastPayload());
}

std::shared_ptr<Transfer> Transfer::begin(int rank, const std::byte* base,
                                          exchange::SharedLayoutPtr layout, Choice choice) {
  State& all = state();
  const std::int64_t bytes = layout->layout.bytes();
  exchange::SendOptions options;
  options.mayCopy = true;
  options.path = choice == Choice::kRead ? exchange::Path::kRead : exchange::Path::kRing;
  options.leavesRing = true;
  options.fragmentBytes = kFragmentBytes;
  options.fragments = kFragments;
  if (choice == Choice::kWholeRing) {
    options.fragments =
        std::max(static_cast<std::size_t>((bytes + std::int64_t{kFragmentBytes} - 1) /
                                          std::int64_t{kFragmentBytes}),
                 std::size_t{1});
  }
  auto sending = all.exchange->send(rank, base, std::move(layout), options);
  if (!sending.ok()) {
    return nullptr;
  }
  auto transfer = std::make_shared<Transfer>(std::move(*sending), rank);
  list(transfer);
  return transfer;
}

Bytes Transfer::write() {
  const State& all = state();
  const std::lock_guard guard(lock_);
  const auto exported = source_.memory != nullptr ? source_.memory->id : source_.packed.exported;
  Wire wire{};
  wire.nonce = all.nonce;
  wire.payloadBytes = sending_.bytes();
  wire.sender = all.rank;
  wire.exported = static_cast<std::uint64_t>(exported);
  wire.hasNoHandle = source_.packed.hasNoHandle ? 1 : 0;
  wire.isPinned = sending_.path() == exchange::Path::kPinned ? 1 : 0;
  sending_.describe(wire.description);
  written_ = true;
  if (wanted_) {
    leaveCopyNow();
  }
  return ticketOf(wire);
}

// Under the lock.
void Transfer::settle() {
  wanted_ = true;
  if (written_ && serve() == Progress::kUnderWay) {
    leaveCopyNow();
  }
}

void Transfer::giveBack(bool onDevice) {
  if (!(onDevice ? isDeviceLent_ : isLent_)) {
    return;  // (without its lock, which this thread may hold)
  }
  const std::lock_guard guard(lock_);
  if (source_.loan || source_.deviceLoan) {
    settle();
  }
}

void Transfer::giveBack(exchange::ExportId memory) {
  const std::lock_guard guard(lock_);
  if (source_.memory != nullptr && source_.memory->id == memory) {
    settle();
  }
}

void Transfer::leaveCopyNow() {
  if (const Result<bool> copied = sending_.leaveCopyNow(); !copied.ok()) {
    writeLogLine(
        std::string("mpi: a kernel call, or a free, waits for the receiver of a message: ") +
        lastErrorText());
  }
  (void)serve();
}

// The list keeps it no more.
void Transfer::end() {
  State& all = state();
  source_ = {};
  const std::lock_guard guard(all.lock);
  std::erase_if(all.transfers, [this](const auto& other) { return other.get() == this; });
  all.transferCount = all.transfers.size();
}

Transfer::Progress Transfer::serve() {
  if (progress_ != Progress::kUnderWay) {
    return progress_;
  }
  const Result<bool> done = sending_.advance();
  if (!done.ok() && !sending_.declined()) {
    reason_ = lastErrorText();
    progress_ = Progress::kFailed;
  } else if (!done.ok() || *done) {
    static_assert(static_cast<int>(Way::kCopied) - static_cast<int>(Way::kMapped) ==
                  static_cast<int>(exchange::Path::kCopy));
    count(static_cast<Way>(static_cast<int>(Way::kMapped) + static_cast<int>(sending_.path())),
          sending_.bytes());
    progress_ = Progress::kOver;
  }
  if (progress_ != Progress::kUnderWay) {
    end();
  }
  return progress_;
}

Transfer::Progress Transfer::advance() {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard guard(lock_);
  if (serve() != Progress::kUnderWay || sending_.needsNobody()) {
    return progress_;
  }
  if (copyAt_ == std::chrono::steady_clock::time_point()) {
    copyAt_ = now + kLeastWait + std::chrono::microseconds(sending_.bytes() / bytesPerMicrosecond_);
  }
  if (now < copyAt_) {
    return progress_;
  }
  const Result<bool> copied = sending_.leaveCopy();
  if (!copied.ok()) {
    writeLogLine(std::string("mpi: a message waits for its receiver: ") + lastErrorText());
    copyAt_ = std::chrono::steady_clock::time_point::max();
  } else if (!*copied) {
    copyAt_ = std::chrono::steady_clock::time_point::max();  // the receiver has begun
  }
  return serve();
}

Transfer::Progress Transfer::follow() {
  const std::lock_guard guard(lock_);
  return serve();
}

void Transfer::recall() {
  const std::lock_guard guard(lock_);
  (void)sending_.recall();
  if (progress_ == Progress::kUnderWay) {
    progress_ = Progress::kOver;
    end();
  }
}

std::string Transfer::reason() const {
  const std::lock_guard guard(lock_);
  return reason_;
}

bool anyTransfers() { return state().transferCount.load(std::memory_order_acquire) != 0; }

bool anyWaits() { return inUse() && state().exchange->anyWaits(); }

bool waits(int rank) { return inUse() && state().exchange->waits(rank); }

void serveTransfers() {
  if (!anyTransfers()) {
    return;
  }
  State& all = state();
  std::vector<std::shared_ptr<Transfer>> transfers;
  {
    const std::lock_guard guard(all.lock);
    transfers = all.transfers;
  }
  for (const auto& transfer : transfers) {
    // (Of one that another thread serves, that is enough.)
    const std::unique_lock guard(transfer->lock_, std::try_to_lock);
    if (guard.owns_lock()) {
      (void)transfer->serve();
    }
  }
}

}  // namespace gmac::mpi::tickets
