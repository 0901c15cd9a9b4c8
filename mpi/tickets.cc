// SPDX-License-Identifier: Apache-2.0
#include "mpi/tickets.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "gmac/base/log.h"
#include "gmac/base/status.h"
#include "gmac/session/device_memory.h"
#include "gmac/session/message_trace.h"
#include "mpi/device_copies.h"
#include "mpi/slow_messages.h"
#include "mpi/spinning.h"
#include "mpi/tickets_state.h"

namespace gmac::mpi::tickets {

constinit std::atomic<bool> internal::inUse{false};
constinit std::atomic<bool> internal::takesFragments{false};

namespace internal {

State& state() {
  static auto* const state = new State;  // also for exit handlers
  return *state;
}

std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::uint64_t value = seed;
  for (const std::byte byte : bytes) {
    value = (value ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  }
  return value;
}

std::uint64_t sumOf(const Wire& wire) {
  return hash(std::as_bytes(std::span(&wire, 1)).first(offsetof(Wire, sum)));
}

Bytes ticketOf(Wire wire) {
  wire.sum = sumOf(wire);
  Bytes bytes{};
  std::memcpy(bytes.data(), &wire, sizeof wire);
  return bytes;
}

}  // namespace internal

using internal::hash;
using internal::State;
using internal::state;
using internal::sumOf;
using internal::ticketOf;
using internal::Wire;

namespace {

adsmError_t importFiles(const exchange::DeviceFile* files, int count, void** address) {
  std::array<gmacMemoryFile, GMAC_MEMORY_FILES> given{};
  static_assert(exchange::kMaxDeviceFiles == GMAC_MEMORY_FILES);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    given[i] = {files[i].file, files[i].offset, files[i].bytes};
  }
  return gmacImportDeviceFiles(given.data(), count, address);
}

// By its bus address, which one device of a host has.
std::uint64_t identity() {
  adsmDeviceInfo_t device{};
  if (adsmDeviceInfo(0, &device) != adsmSuccess || device.bus[0] == '\0') {
    return 0;
  }
  return hash(std::as_bytes(std::span(device.bus)));
}

constexpr exchange::ArrivalFunctions kArrivals{&beginArrival, &tellArrived, &tellNoMoreArrives,
                                               &arrivalIsOver, &endArrival};
// The runtime's device, where it has memory that other processes reach.
constexpr exchange::DeviceFunctions kDevice{&gmacExportDeviceMemory,
                                            &gmacImportDeviceMemory,
                                            &gmacCopyToDevice,
                                            &gmacCopyFromDevice,
                                            &gmacHandleOfDeviceMemory,
                                            &gmacReleaseDeviceImport,
                                            &copyByDevice,
                                            &importFiles,
                                            &identity,
                                            &beginCopy,
                                            &copyIsOver,
                                            &endCopy,
                                            &beginPack,
                                            &gmacDeviceImportIsLocal,
                                            &adsmLastErrorString,
                                            &gmacPinMemory,
                                            &gmacUnpinMemory,
                                            &beginUnpack,
                                            &kArrivals};
static_assert(exchange::kHandleBytes == GMAC_MEMORY_HANDLE_BYTES);
static_assert(kLeastOnDevice >= std::int64_t{kBytes});

// In the trace.
constexpr const char* kSent[kWays] = {"send: ticket",
                                      "send: wire, no room",
                                      "send: wire, mode",
                                      "send: wire, not reached",
                                      "send: mapped by the receiver",
                                      "send: read by the receiver",
                                      "send: ring",
                                      "send: copied by the receiver's device",
                                      "send: through pinned memory",
                                      "send: copy for a late receiver",
                                      "send: fragments"};

// Asked for by a thread whose kernel call or free needs what is lent.
void giveBackAll(int onDevice) {
  State& all = state();
  all.reclaims.fetch_add(1);
  std::vector<std::shared_ptr<Transfer>> transfers;
  {
    const std::lock_guard guard(all.lock);
    transfers = all.transfers;
  }
  for (const auto& transfer : transfers) {
    transfer->giveBack(onDevice != 0);
  }
}

// A thread is about to free device memory: messages of it become copies, and nobody imports it any
// more. Whether nobody has it, that is, whether nobody reads there.
int mayFree(void* start) {
  State& all = state();
  const std::shared_lock guard(all.freeing);
  if (all.memory == nullptr) {
    return 1;
  }
  const exchange::ExportId id = all.memory->take(start);
  if (id != exchange::kNoExport) {
    all.reclaims.fetch_add(1);
    std::vector<std::shared_ptr<Transfer>> transfers;
    {
      const std::lock_guard transfersGuard(all.lock);
      transfers = all.transfers;
    }
    for (const auto& transfer : transfers) {
      transfer->giveBack(id);
    }
  }
  return all.memory->mayBeFreed(start) ? 1 : 0;
}

// Pages of objects are about to be freed, or to be replaced. (No message is of them: what is lent
// neither moves nor is freed.)
void memoryEnds(std::uint64_t number) {
  State& all = state();
  const std::shared_lock guard(all.freeing);
  if (all.memory != nullptr) {
    all.memory->ended(number);
  }
}

void tell() {
  const State& all = state();
  static constexpr const char* kNames[kWays] = {
      "by ticket",
      "by the wire for want of room",
      "by the wire as synchronous, buffered, persistent or replaced ones",
      "by the wire to ranks that tickets do not reach",
      "mapped by their receivers",
      "read by their receivers",
      "through a ring",
      "copied by their receivers' devices",
      "through pinned memory",
      "copied for receivers that were late",
      "in fragments to other hosts"};
  std::string line = "mpi: large messages of rank 0:";
  for (std::size_t i = 0; i < kWays; ++i) {
    line += (i == 0 ? " " : ", ") + std::to_string(all.messages[i].load()) + " (" +
            std::to_string(all.bytes[i].load()) + " bytes) " + kNames[i];
  }
  const exchange::Statistics statistics = all.exchange->statistics();
  line += "; layouts of messages for rank 0: " + std::to_string(statistics.layoutHits) +
          " known, " + std::to_string(statistics.layoutMisses) + " read";
  writeLogLine(line);
}

// The counts of all processes of this host so far: an empty line for most jobs.
void tellSlowMessages() {
  const State& all = state();
  static_assert(exchange::Exchange::kNotes >= slow::kWords);
  std::vector<slow::OfRank> ranks;
  for (int rank = 0; rank < all.size; ++rank) {
    if (all.exchange == nullptr) {
      if (rank == all.rank) ranks.push_back({rank, slow::ownWords()});
    } else if (rank == all.rank) {
      ranks.push_back({rank, all.exchange->notes().first<slow::kWords>()});
    } else if (const auto notes = all.exchange->notesOf(rank); !notes.empty()) {
      ranks.push_back({rank, notes.first<slow::kWords>()});
    }
  }
  if (const std::string line = slow::tell(ranks); !line.empty()) {
    log(LogLevel::kError, "{}", line);
  }
}

// As the launcher has told (Open MPI's, MPICH's).
bool areOnOneHost(int size) {
  for (const char* const variable : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    int here = 0;
    if (const char* const text = std::getenv(variable)) {
      (void)std::from_chars(text, text + std::strlen(text), here);
    }
    if (here == size) return true;
  }
  return false;
}

}  // namespace

void prepare() {
  State& all = state();
  if (std::exchange(all.prepared, true)) {
    return;
  }
  if (gmacReadMpiSettings(&all.settings) != adsmSuccess) {
    writeLogLine(std::string("mpi: ") + adsmLastErrorString() +
                 "; no message is sent as a ticket, and none is expected");
    return;
  }
  if (all.settings.tickets == 0) {
    return;
  }
  const auto job = exchange::findJob();
  if (!job.has_value() || job->size < 2) {
    return;
  }
  exchange::Options options;
  options.hostBytes = static_cast<std::size_t>(all.settings.ticketRoomBytes);
  options.device = &kDevice;
  options.devicePayloads = false;
  options.devicePieceBytes = std::size_t{64} << 10;  // only to prove by
  auto opened = exchange::Exchange::open(*job, options);
  if (!opened.ok()) {
    writeLogLine(std::string("mpi: no message is sent as a ticket: ") + lastErrorText());
    return;
  }
  gmacShareDeviceMemory();
  all.exchange = std::move(*opened);
  all.memory = std::make_unique<DeviceExports>(*all.exchange);
  const auto key = std::as_bytes(std::span(job->key));
  all.nonce = {hash(key, 0x9ae16a3b2f90404f), hash(key, 0xc949d7c7509e6557)};
}

void open(int rank, int size) {
  State& all = state();
  all.rank = rank;
  all.size = size;
  all.onOneHost = areOnOneHost(size);
  if (all.exchange == nullptr || inUse()) {
    return;
  }
  all.exchange->meet(rank, size);
  slow::countIn(all.exchange->notes().first<slow::kWords>());
  for (int i = 0; i < size; ++i) {
    if (reaches(i)) {
      internal::inUse.store(true, std::memory_order_release);
    }
  }
  if (inUse()) {
    gmacOnReclaim(&giveBackAll);
    gmacOnDeviceFree(&mayFree);
    gmacOnDeviceMemoryEnd(&memoryEnds);
  }
}

void close() {
  State& all = state();
  if (all.settings.statistics != 0 && all.settings.tickets != 0 && all.rank == 0 &&
      std::exchange(all.prepared, false)) {
    tell();
  }
  if (all.rank == 0) {
    tellSlowMessages();
  }
  slow::forget();
  slow::countIn(slow::ownWords());
  internal::inUse.store(false, std::memory_order_release);
  internal::takesFragments.store(false, std::memory_order_release);
  const std::unique_lock guard(all.freeing);
  all.file.reset();
  all.memory.reset();
  all.exchange.reset();
}

bool reaches(int rank) {
  const State& all = state();
  return all.exchange != nullptr && all.exchange->reaches(rank);
}

bool wanted() { return state().exchange != nullptr; }

void admitFragments(const Nonce& nonce) {
  State& all = state();
  all.fragmentNonce = nonce;
  internal::takesFragments.store(true, std::memory_order_release);
  internal::inUse.store(true, std::memory_order_release);
}

bool takesFragments(int rank) {
  return anyTakesFragments() && rank >= 0 && rank != state().rank && !reaches(rank);
}

std::chrono::microseconds answerWait(std::int64_t payloadBytes) {
  // As long as a wire of 1 GB/s takes.
  constexpr std::int64_t kBytesPerMicrosecond = 1000;
  return std::chrono::milliseconds(state().settings.answerWait) +
         std::chrono::microseconds(payloadBytes / kBytesPerMicrosecond);
}

std::int64_t leastFragmented() { return state().settings.leastFragmentedBytes; }

std::int64_t leastPayload() {
  const gmacMpiSettings& settings = state().settings;
  return settings.tickets != 0 ? settings.leastTicketBytes : INT64_MAX;
}

bool hasDevice() { return inUse() && state().exchange->usesDevice(state().rank); }

bool anyOtherHasDevice() {
  const State& all = state();
  for (int rank = 0; inUse() && rank < all.size; ++rank) {
    if (rank != all.rank && all.exchange->usesDevice(rank)) return true;
  }
  return false;
}

bool areOnOneHost() { return state().onOneHost; }

bool mayLendOnDevice(const std::byte* base, const datatype::Bounds& bounds) {
  adsmError_t error = adsmSuccess;
  const DeviceLoan loan(base + bounds.first, static_cast<std::size_t>(bounds.last - bounds.first),
                        &error);
  return static_cast<bool>(loan);
}

void tellDevice() {
  if (inUse()) {
    state().exchange->tellDevice();
  }
}

std::int64_t leastOnDevice(int rank) {
  const State& all = state();
  tellDevice();
  return inUse() && all.exchange->usesOtherDevice(rank)
             ? std::min<std::int64_t>(kLeastOnDevice, all.settings.leastTicketBytes)
             : leastPayload();
}

std::int64_t leastAnywhere() {
  const State& all = state();
  return inUse() && all.exchange->anyUsesOtherDevice()
             ? std::min<std::int64_t>(kLeastOnDevice, all.settings.leastTicketBytes)
             : leastPayload();
}

void count(Way way, std::int64_t payloadBytes) {
  State& all = state();
  const auto i = static_cast<std::size_t>(way);
  all.messages[i].fetch_add(1, std::memory_order_relaxed);
  all.bytes[i].fetch_add(static_cast<std::uint64_t>(payloadBytes), std::memory_order_relaxed);
  trace(kSent[i], payloadBytes);
}

void trace(const char* name, std::int64_t payloadBytes) {
  gmacTraceMessage(name, static_cast<std::uint64_t>(payloadBytes));
}

void knowType(std::shared_ptr<const datatype::Layout> element, std::int64_t extent) {
  if (const auto& exchange = state().exchange) {
    exchange->knowType(std::move(element), extent);
  }
}

void forgetType(const datatype::Layout& element, std::int64_t extent) {
  if (const auto& exchange = state().exchange) {
    exchange->forgetType(element, extent);
  }
}

exchange::Parcel reserve(int rank, std::int64_t bytes) {
  auto parcel =
      state().exchange->reserve(rank, static_cast<std::size_t>(bytes), exchange::Memory::kHost);
  return parcel.ok() ? std::move(*parcel) : exchange::Parcel();
}

Bytes write(exchange::Parcel& parcel, const Source& source, std::chrono::nanoseconds packed) {
  const State& all = state();
  Wire wire{};
  wire.nonce = all.nonce;
  wire.payloadBytes = static_cast<std::int64_t>(parcel.bytes());
  wire.sender = all.rank;
  wire.exported = static_cast<std::uint64_t>(source.exported);
  wire.hasNoHandle = source.hasNoHandle ? 1 : 0;
  wire.packedNanoseconds = packed.count();
  parcel.describe(wire.description);
  return ticketOf(wire);
}

Bytes writeFragmented(std::int64_t payloadBytes, std::int64_t fragmentBytes, int number) {
  const State& all = state();
  Wire wire{};
  wire.nonce = all.fragmentNonce;
  wire.payloadBytes = payloadBytes;
  wire.sender = all.rank;
  wire.fragmentBytes = fragmentBytes;
  wire.number = number;
  return ticketOf(wire);
}

std::optional<Ticket> read(std::span<const std::byte, kBytes> bytes) {
  const State& all = state();
  Wire wire;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  const bool ofFragments = anyTakesFragments() && wire.nonce == all.fragmentNonce;
  if (all.exchange == nullptr || (wire.nonce != all.nonce && !ofFragments) ||
      wire.sum != sumOf(wire)) {
    return std::nullopt;
  }
  return Ticket{wire.payloadBytes,     static_cast<int>(wire.sender),
                wire.description,      exchange::ExportId{wire.exported},
                wire.hasNoHandle != 0, std::chrono::nanoseconds(wire.packedNanoseconds),
                wire.fragmentBytes,    static_cast<int>(wire.number),
                wire.isPinned != 0};
}

Result<exchange::Delivery> collect(const Ticket& ticket) {
  return state().exchange->collect(ticket.sender, ticket.description);
}

bool isTransfer(const Ticket& ticket) {
  return exchange::Exchange::bytesOf(ticket.description) > 0;
}

namespace {

// `base`, `layout`: of the receiver's memory.
Result<exchange::Receiving> begin(const Ticket& ticket, std::byte* base,
                                  const datatype::Layout& layout, exchange::Memory memory) {
  State& all = state();
  if (ticket.isPinned) {
    all.exchangesMemory = true;  // the pinned memory is imported
  }
  return all.exchange->receive(ticket.sender, ticket.description, base, layout, memory);
}

Status finish(exchange::Receiving& receiving) {
  for (Spinning spinning(receiving.bytes());; spinning.turn()) {
    const Result<bool> done = receiving.advance();
    GMAC_TRY(done.status());
    if (*done) {
      return {};
    }
    // The sender may be waiting for this process in turn.
    serveTransfers();
  }
}

}  // namespace

Status receive(const Ticket& ticket, std::byte* base, const datatype::Layout& layout,
               exchange::Memory memory, exchange::Path* path) {
  auto receiving = begin(ticket, base, layout, memory);
  GMAC_TRY(receiving.status());
  GMAC_TRY(finish(*receiving));
  if (path != nullptr) {
    *path = receiving->path();
  }
  return {};
}

Status receivePiece(const Ticket& ticket, std::byte* piece) {
  const auto whole = datatype::Layout::make({}, {{0, ticket.payloadBytes}});
  GMAC_TRY(whole.status());
  auto receiving = begin(ticket, piece, *whole, exchange::Memory::kDevice);
  GMAC_TRY(receiving.status());
  while (const std::byte* const from = receiving->packedOnDevice()) {
    int copied = 0;
    if (const adsmError_t code = gmacCopyImportInOrder(
            piece, from, static_cast<std::size_t>(ticket.payloadBytes), &copied);
        code != adsmSuccess) {
      return Status(code);
    }
    if (copied == 0) {
      break;
    }
    const Result<bool> done = receiving->end();
    if (!done.ok() || *done) {
      return done.status();
    }
  }
  int reached = 0;
  if (const adsmError_t code = gmacOpenDeviceMemory(piece, &reached); code != adsmSuccess) {
    return Status(code);
  }
  return finish(*receiving);
}

namespace {

bool importFrom(int sender, exchange::ExportId exported) {
  State& all = state();
  if (!all.attempts.mayTry(sender, exported)) {
    return false;
  }
  all.exchangesMemory = true;
  if (all.exchange->import(sender, exported).ok()) {
    all.attempts.succeeded(sender, exported);
    return true;  // it stays imported
  }
  log(LogLevel::kInfo, "mpi: messages of rank {}'s device memory are packed: {}", sender,
      lastErrorText());
  all.attempts.failed(sender, exported);
  return false;
}

}  // namespace

bool importFor(const Ticket& ticket) {
  return ticket.exported != exchange::kNoExport && importFrom(ticket.sender, ticket.exported);
}

void suggest(int rank, exchange::ExportId exported) { state().exchange->suggest(exported, rank); }

bool importSuggested(int sender, const std::function<bool()>& wanted) {
  if (!inUse() || sender < 0) {
    return true;
  }
  exchange::Exchange& exchange = *state().exchange;
  const exchange::ExportId exported = exchange.suggestion(sender);
  if (exported == exchange::kNoExport || !wanted()) {
    return true;
  }
  const bool imported = importFrom(sender, exported);
  exchange.dropSuggestion(sender, exported);
  return imported;
}

bool anySuggested(int sender) {
  return sender >= 0 && inUse() && state().exchange->suggestion(sender) != exchange::kNoExport;
}

void sweep() {
  State& all = state();
  if (all.exchangesMemory.load(std::memory_order_acquire) && all.exchange != nullptr) {
    all.exchange->sweep();
    all.memory->sweep();
    gmacFreeKept();
  }
}

Result<bool> receive(const Ticket& ticket, std::byte* room,
                     const std::function<bool(const std::byte* packed)>& take) {
  const auto whole = datatype::Layout::make({}, {{0, ticket.payloadBytes}});
  GMAC_TRY(whole.status());
  auto receiving = begin(ticket, room, *whole, exchange::Memory::kHost);
  GMAC_TRY(receiving.status());
  for (Spinning spinning(ticket.payloadBytes); receiving->isBeingPacked(); spinning.turn()) {
    GMAC_TRY(receiving->advance(0).status());
    serveTransfers();
  }
  while (const std::byte* const packed = receiving->packed()) {
    if (!take(packed)) {
      return true;  // it says why itself; nobody needs the rest
    }
    const Result<bool> done = receiving->end();
    if (!done.ok() || *done) {
      return done;
    }
  }
  GMAC_TRY(finish(*receiving));
  return false;
}

void discard(const Ticket& ticket) {
  const auto layout = datatype::Layout::make({}, {{0, ticket.payloadBytes}});
  if (layout.ok()) {
    std::byte nothing{};  // no byte is copied
    (void)state().exchange->receive(ticket.sender, ticket.description, &nothing, *layout);
  }
}

}  // namespace gmac::mpi::tickets
