// SPDX-License-Identifier: Apache-2.0
#include "exchange/exchange.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <optional>
#include <thread>

#include "exchange/description.h"
#include "exchange/exchange_state.h"
#include "gmac/base/log.h"
#include "gmac/base/round_up.h"

namespace gmac::exchange {
namespace {

constexpr std::size_t kPayloadUnit = std::size_t{2} << 20;
constexpr std::chrono::microseconds kRevokePoll{100};

}  // namespace

Parcel::~Parcel() {
  if (outbox_ != nullptr && !described_ && !outbox_->inChild()) {
    (void)outbox_->giveBack(slot_, Phase::kWritten);
  }
}

void Parcel::describe(Description description) {
  if (outbox_->inChild()) {
    std::memset(description.data(), 0, description.size());
    return;
  }
  outbox_->describe(slot_, description);
  described_ = true;
}

bool Parcel::recall() {
  if (!described_ || outbox_->inChild() || !outbox_->giveBack(slot_, Phase::kDescribed)) {
    return false;
  }
  Parcel().swap(*this);
  return true;
}

Delivery::~Delivery() {
  if (peer_ == nullptr || peer_->inChild()) {
    return;
  }
  // Only what is still this one's: the sender has given it up if it takes this process for ended.
  std::uint64_t expected = Slot::stateOf(id_, Phase::kCollected);
  (void)peer_->met().file.slot(slot_).state.compare_exchange_strong(
      expected, Slot::stateOf(id_, Phase::kFree), std::memory_order_release,
      std::memory_order_relaxed);
}

Exchange::Exchange(std::unique_ptr<State> state) : state_(std::move(state)) {}

Exchange::~Exchange() { close(); }

namespace {

// Addresses alone cost nothing, but every process of the host has those of all.
constexpr std::size_t kMostForCopies = std::size_t{64} << 30;

std::size_t roomForCopies(const Options& options, std::size_t hostBytes) {
  if (options.copyBytes.has_value()) {
    return roundUp(*options.copyBytes, kPayloadUnit);
  }
  const auto isLimited = [](auto resource) {
    rlimit limit{};
    return ::getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
  };
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long pageBytes = ::sysconf(_SC_PAGESIZE);
  if (isLimited(RLIMIT_AS) || isLimited(RLIMIT_FSIZE) || pages <= 0 || pageBytes <= 0) {
    return hostBytes;
  }
  const std::size_t all = static_cast<std::size_t>(pages) * static_cast<std::size_t>(pageBytes);
  return roundUp(std::min(all, kMostForCopies), kPayloadUnit);
}

}  // namespace

Result<std::unique_ptr<Exchange>> Exchange::open(const Job& job, const Options& options) {
  auto state = std::make_unique<State>();
  state->job = job;
  state->device = options.device;
  state->devicePayloads = options.devicePayloads;
  state->ahead = {options.aheadLeast, options.aheadFragment};
  state->arrivalLeast = options.arrivalLeast;
  Result<Listener> listener = Listener::open(job);
  GMAC_TRY(listener.status());
  state->listener.emplace(std::move(*listener));
  const std::size_t hostBytes = roundUp(std::max<std::size_t>(options.hostBytes, 1), kPayloadUnit);
  Result<std::shared_ptr<internal::Outbox>> outbox =
      internal::Outbox::make(job.size, hostBytes, roomForCopies(options, hostBytes), options);
  GMAC_TRY(outbox.status());
  state->outbox = std::move(*outbox);
  state->exports = std::make_shared<internal::Exports>(state->outbox->file(), job.size);
  state->pinnedRingBytes = options.pinnedRingBytes;
  state->pinnedRings = std::make_shared<internal::PinnedRings>(
      state->outbox, state->exports, options.device,
      internal::PinnedRingOptions{options.pinnedRingBytes, options.maxPinnedRings});
  state->imports = std::make_shared<internal::Imports>(
      job.rank, options.device, std::max<std::size_t>(options.maxImports, 1));
  state->transfers = std::make_shared<internal::Transfers>(state->outbox, job.rank);
  state->layouts = std::make_unique<LayoutTable>(options.maxLayouts);
  return std::unique_ptr<Exchange>(new Exchange(std::move(state)));
}

void Exchange::meet(int rank, int size, std::chrono::milliseconds limit) {
  State& state = *state_;
  if (!state.listener.has_value() || state.outbox->inChild()) {
    return;
  }
  if (rank != state.job.rank || size != state.job.size) {
    log(LogLevel::kInfo,
        "exchange: the launcher says rank {} of {}, the job rank {} of {}: this process exchanges "
        "nothing",
        state.job.rank, state.job.size, rank, size);
    state.listener.reset();
    return;
  }
  Handshake handshake(state.job, std::move(*state.listener), state.outbox->file(),
                      state.outbox->nonce());
  state.listener.reset();
  handshake.run(limit);
  state.peers.resize(static_cast<std::size_t>(size));
  for (int other = 0; other < size; ++other) {
    if (std::optional<Met> met = handshake.take(other); met.has_value()) {
      state.peers[static_cast<std::size_t>(other)] =
          std::make_shared<internal::Peer>(std::move(*met), state.outbox);
      state.peers[static_cast<std::size_t>(other)]->proveReads(rank);
    }
  }
  log(LogLevel::kInfo, "exchange: rank {} of {} reaches {} others on this host", rank, size,
      statistics().peers);
}

bool Exchange::reaches(int rank) const noexcept { return state_->peer(rank) != nullptr; }

Result<Parcel> Exchange::reserve(int rank, std::size_t bytes, Memory wanted) {
  State& state = *state_;
  if (state.outbox->inChild()) {
    return forked();
  }
  if (!reaches(rank)) {
    return fail(adsmErrorInvalidValue, "exchange: rank {} is not reached from rank {}", rank,
                state.job.rank);
  }
  if (wanted == Memory::kDevice && !state.devicePayloads) {
    return fail(adsmErrorNotSupported, "exchange: this process lays no payload in device memory");
  }
  Result<std::size_t> slot = state.outbox->reserve(rank, bytes, wanted, state.peers);
  // Copies of messages that their receivers have freed, and layouts, may have it.
  if (!slot.ok() && wanted == Memory::kHost && state.transfers->makeRoom()) {
    --state.outbox->refused;  // it is not yet
    slot = state.outbox->reserve(rank, bytes, wanted, state.peers);
  }
  GMAC_TRY(slot.status());
  Parcel parcel;
  parcel.outbox_ = state.outbox;
  parcel.slot_ = *slot;
  parcel.data_ = state.outbox->payload(*slot);
  parcel.bytes_ = bytes;
  parcel.memory_ = wanted;
  return parcel;
}

Result<Delivery> Exchange::collect(int sender, ConstDescription description) {
  State& state = *state_;
  if (state.outbox->inChild()) {
    return forked();
  }
  internal::Peer* const peer = state.peer(sender);
  if (peer == nullptr) {
    return fail(adsmErrorInvalidValue, "exchange: rank {} is not reached from rank {}", sender,
                state.job.rank);
  }
  if (state.device != nullptr && state.devicePayloads) {
    peer->importPieces(state.job.rank, *state.device);
  }
  const auto refused = [&](const char* why) {
    return fail(adsmErrorInvalidValue, "exchange: a description from rank {} is refused: {}",
                sender, why);
  };
  internal::Contents said;
  std::memcpy(&said, description.data(), sizeof said);
  if (said.magic != internal::Contents::kMagic) {
    return refused("it is none");
  }
  if (said.nonce != peer->met().nonce) {
    return refused("it is another process's");
  }
  if (said.receiver != state.job.rank) {
    return refused("it is for another rank");
  }
  if (said.slot >= FileLayout::kSlots || said.id > Slot::kMaxId) {
    return refused("there is no such slot");
  }
  Slot& slot = peer->met().file.slot(said.slot);
  std::uint64_t expected = Slot::stateOf(said.id, Phase::kDescribed);
  if (slot.state.load(std::memory_order_acquire) != expected) {
    return refused("its payload was collected or recalled before, or never was");
  }
  std::size_t all = peer->met().file.payloadBytes();
  const std::byte* start = peer->met().file.payloads();
  const auto memory = static_cast<Memory>(said.memory);
  if (memory == Memory::kDevice) {
    start = peer->piece(said.piece, &all);
    if (start == nullptr) {
      return refused("it lies in device memory that this process does not reach");
    }
  }
  if (slot.offset != said.offset || slot.bytes != said.bytes || slot.receiver != said.receiver ||
      slot.memory != said.memory || slot.piece != said.piece || said.memory >= kMemories ||
      said.offset > all || said.bytes > all - said.offset ||
      std::any_of(std::begin(said.reserved), std::end(said.reserved),
                  [](std::uint64_t word) { return word != 0; })) {
    return refused("it says otherwise than its sender's notes");
  }
  if (!slot.state.compare_exchange_strong(expected, Slot::stateOf(said.id, Phase::kCollected),
                                          std::memory_order_acq_rel)) {
    return refused("its payload was collected or recalled meanwhile");
  }
  state.collected.add(memory, said.bytes);
  Delivery delivery;
  delivery.peer_ = state.peers[static_cast<std::size_t>(sender)];
  delivery.slot_ = said.slot;
  delivery.id_ = said.id;
  delivery.data_ = start + said.offset;
  delivery.bytes_ = said.bytes;
  delivery.memory_ = memory;
  return delivery;
}

Imported::~Imported() {
  if (imports_ != nullptr && !self_->inChild()) {
    imports_->unuse(static_cast<internal::Imports::Entry*>(entry_));
  }
}

bool Imported::revoked() const {
  return entry_ == nullptr || static_cast<const internal::Imports::Entry*>(entry_)->revoked();
}

Result<ExportId> Exchange::exportFile(int file, std::int64_t offset, std::size_t bytes) {
  return state_->outbox->inChild() ? forked() : state_->exports->addFile(file, offset, bytes);
}

Result<ExportId> Exchange::exportDevice(void* address, std::size_t bytes) {
  State& state = *state_;
  if (state.outbox->inChild()) {
    return forked();
  }
  if (state.device == nullptr || state.device->handleOf == nullptr) {
    return fail(adsmErrorNotSupported, "exchange: this process exports no memory of its device");
  }
  // By which others prove that they reach this device.
  GMAC_TRY(state.outbox->exportFirstPiece());
  DeviceHandle handle{};
  if (const adsmError_t code = state.device->handleOf(address, handle.data());
      code != adsmSuccess) {
    return fail(code, "exchange: {} bytes of device memory at {} are not exported", bytes, address);
  }
  return state.exports->addDevice(handle, bytes);
}

Result<ExportId> Exchange::exportDeviceFiles(std::span<const DeviceFile> files) {
  return state_->outbox->inChild() ? forked() : state_->exports->addDeviceFiles(files);
}

Status Exchange::offer(ExportId id, int rank) {
  State& state = *state_;
  if (state.outbox->inChild()) {
    return forked();
  }
  internal::Peer* const peer = state.peer(rank);
  if (peer == nullptr) {
    return fail(adsmErrorInvalidValue, "exchange: rank {} is not reached from rank {}", rank,
                state.job.rank);
  }
  return state.exports->hand(id, rank, *peer);
}

Result<bool> Exchange::revoke(ExportId id, std::chrono::milliseconds limit) {
  State& state = *state_;
  if (state.outbox->inChild()) {
    return forked();
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    const Result<bool> done = state.exports->revoke(id, state.peers);
    if (!done.ok() || *done || std::chrono::steady_clock::now() >= end) {
      return done;
    }
    // Two processes that wait for each other's memory are not to wait for ever.
    state.imports->sweep();
    std::this_thread::sleep_for(kRevokePoll);
  }
}

void Exchange::tellDevice() {
  State& state = *state_;
  if (state.device == nullptr || state.device->identity == nullptr || state.outbox->inChild() ||
      state.deviceTold.load(std::memory_order_relaxed)) {
    return;
  }
  state.outbox->file().device().store(state.device->identity(), std::memory_order_release);
  state.deviceTold.store(true, std::memory_order_relaxed);
  state.outbox->file().deviceNews().fetch_add(1, std::memory_order_acq_rel);
  for (const auto& peer : state.peers) {
    if (peer != nullptr) {
      peer->met().file.deviceNews().fetch_add(1, std::memory_order_acq_rel);
    }
  }
}

bool Exchange::anyUsesOtherDevice() noexcept {
  State& state = *state_;
  const std::uint64_t news = state.outbox->file().deviceNews().load(std::memory_order_acquire);
  if (state.deviceNews.load(std::memory_order_acquire) != news) {
    bool any = false;
    for (int rank = 0; rank < static_cast<int>(state.peers.size()); ++rank) {
      any = any || usesOtherDevice(rank);
    }
    state.anyIsFar.store(any, std::memory_order_relaxed);
    state.deviceNews.store(news, std::memory_order_release);
  }
  return state.anyIsFar.load(std::memory_order_relaxed);
}

bool Exchange::usesOtherDevice(int rank) const noexcept {
  const internal::Peer* const peer = state_->peer(rank);
  const std::uint64_t own = state_->outbox->file().device().load(std::memory_order_relaxed);
  const std::uint64_t other =
      peer != nullptr ? peer->met().file.device().load(std::memory_order_acquire) : 0;
  return own != 0 && other != 0 && own != other;
}

bool Exchange::usesDevice(int rank) const noexcept {
  const internal::Peer* const peer = state_->peer(rank);
  return rank == state_->job.rank ? state_->outbox->file().device().load() != 0
                                  : peer != nullptr && peer->met().file.device().load() != 0;
}

static_assert(Exchange::kNotes == FileLayout::kNotes);

std::span<std::atomic<std::uint64_t>, Exchange::kNotes> Exchange::notes() noexcept {
  return std::span<std::atomic<std::uint64_t>, kNotes>(state_->outbox->file().notes(), kNotes);
}

std::span<const std::atomic<std::uint64_t>> Exchange::notesOf(int rank) const noexcept {
  const internal::Peer* const peer = state_->peer(rank);
  return peer == nullptr
             ? std::span<const std::atomic<std::uint64_t>>()
             : std::span<const std::atomic<std::uint64_t>>(peer->met().file.notes(), kNotes);
}

bool Exchange::failsToImport(int rank) const noexcept {
  return reaches(rank) &&
         state_->outbox->file().proof(rank, FileLayout::kImports).load(std::memory_order_acquire) ==
             Proof::kRefused;
}

bool Exchange::isImportedBy(ExportId id, int rank) const noexcept {
  return state_->peer(rank) != nullptr && state_->exports->isImportedBy(id, rank);
}

void Exchange::suggest(ExportId id, int rank) noexcept {
  if (reaches(rank) && !state_->outbox->inChild()) {
    state_->outbox->file().suggestion(rank).store(static_cast<std::uint64_t>(id),
                                                  std::memory_order_release);
  }
}

ExportId Exchange::suggestion(int owner) const noexcept {
  const internal::Peer* const peer = state_->peer(owner);
  return peer == nullptr || state_->outbox->inChild()
             ? kNoExport
             : ExportId{
                   peer->met().file.suggestion(state_->job.rank).load(std::memory_order_acquire)};
}

void Exchange::dropSuggestion(int owner, ExportId id) noexcept {
  if (const internal::Peer* const peer = state_->peer(owner)) {
    auto expected = static_cast<std::uint64_t>(id);
    peer->met().file.suggestion(state_->job.rank).compare_exchange_strong(expected, 0);
  }
}

Result<Imported> Exchange::import(int owner, ExportId id) {
  State& state = *state_;
  if (state.outbox->inChild()) {
    return forked();
  }
  if (state.peer(owner) == nullptr) {
    return fail(adsmErrorInvalidValue, "exchange: rank {} is not reached from rank {}", owner,
                state.job.rank);
  }
  const auto entry = state.imports->use(state.peers[static_cast<std::size_t>(owner)], owner, id);
  GMAC_TRY(entry.status());
  Imported imported;
  imported.imports_ = state.imports;
  imported.self_ = state.outbox;
  imported.entry_ = *entry;
  imported.data_ = (*entry)->data;
  imported.bytes_ = (*entry)->bytes;
  imported.kind_ = (*entry)->kind;
  return imported;
}

void Exchange::sweep() {
  if (!state_->outbox->inChild()) {
    state_->imports->sweep();
    state_->transfers->sweep();
  }
}

const Job& Exchange::job() const noexcept { return state_->job; }

Statistics Exchange::statistics() const {
  const State& state = *state_;
  Statistics all;
  for (int memory = 0; memory < kMemories; ++memory) {
    all.sent[memory] = {state.outbox->sent.parcels[memory], state.outbox->sent.bytes[memory]};
    all.collected[memory] = {state.collected.parcels[memory], state.collected.bytes[memory]};
  }
  all.refused = state.outbox->refused;
  all.reclaimed = state.outbox->reclaimed;
  all.peers = static_cast<int>(std::count_if(state.peers.begin(), state.peers.end(),
                                             [](const auto& p) { return p != nullptr; }));
  for (std::size_t path = 0; path < kPaths; ++path) {
    const internal::PathCounters& sent = state.transfers->sent;
    all.paths[path].sent = {sent.messages[path], sent.bytes[path]};
    all.paths[path].received = {state.received->messages[path], state.received->bytes[path]};
  }
  const LayoutTable::Counts layouts = state.layouts->counts();
  all.layoutHits = layouts.hits;
  all.layoutMisses = layouts.misses;
  all.exports = state.exports->count();
  const internal::Imports::Counts imports = state.imports->counts();
  all.imports = imports.imported;
  all.imported = imports.opened;
  all.evicted = imports.evicted;
  return all;
}

void Exchange::close() {
  if (!state_->outbox->inChild()) {
    state_->imports->close();
  }
  state_->listener.reset();
  state_->peers.clear();
}

}  // namespace gmac::exchange
