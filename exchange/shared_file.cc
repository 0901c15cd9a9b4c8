// SPDX-License-Identifier: Apache-2.0
#include "exchange/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "gmac/base/round_up.h"

namespace gmac::exchange {
namespace {

constexpr std::size_t kPage = 4096;
// The header, which belongs to no rank.
constexpr std::size_t kHeader = 256;
constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// No process may shorten the file: the others would die of reading it.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// 64-bit words that hold a bit for each rank.
std::size_t wordsFor(int ranks) { return (static_cast<std::size_t>(ranks) + 63) / 64; }

}  // namespace

FileLayout::FileLayout(int ranks, std::size_t payloadBytes)
    : offers(kHeader),
      proofs(roundUp(offers + static_cast<std::size_t>(ranks) * sizeof(Offer), kPage)),
      waiting(roundUp(proofs + static_cast<std::size_t>(ranks) * kProofs * sizeof(Proof), kLine)),
      suggestions(
          roundUp(waiting + static_cast<std::size_t>(ranks) * sizeof(std::uint32_t), kLine)),
      notes(roundUp(suggestions + static_cast<std::size_t>(ranks) * sizeof(std::uint64_t), kLine)),
      pieces(roundUp(notes + kNotes * sizeof(std::uint64_t), kPage)),
      exports(roundUp(pieces + kPieces * sizeof(DevicePiece), kPage)),
      importers(exports + kExports * sizeof(ExportRecord)),
      slots(roundUp(importers + kExports * wordsFor(ranks) * sizeof(std::uint64_t), kPage)),
      transfers(roundUp(slots + kSlots * sizeof(Slot), kPage)),
      payloads(roundUp(transfers + kTransfers * sizeof(TransferRecord), kHugePage)),
      importerWords(wordsFor(ranks)),
      bytes(payloads + payloadBytes) {}

Mapping::~Mapping() {
  // (A child of fork may have something else there.)
  if (data_ != nullptr && owner_ == ::getpid()) {
    ::munmap(data_, bytes_);
  }
}

Result<Mapping> Mapping::make(int file, std::size_t offset, std::size_t bytes, bool writable) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED,
                            file, static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    return fail(adsmErrorSystem, "exchange: mmap of {} bytes of a memory file: {}", bytes,
                std::strerror(errno));
  }
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(data);
  mapping.bytes_ = bytes;
  mapping.owner_ = ::getpid();
  if (::madvise(data, bytes, MADV_DONTFORK) != 0) {
    return fail(adsmErrorSystem, "exchange: madvise(MADV_DONTFORK): {}", std::strerror(errno));
  }
  // (Else a core dump would give all of it pages.)
  (void)::madvise(data, bytes, MADV_DONTDUMP);
  return mapping;
}

Result<Descriptor> makeMemoryFile(const char* name, std::size_t bytes) {
  Descriptor file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) {
    return fail(adsmErrorSystem, "exchange: memfd_create: {}", std::strerror(errno));
  }
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return fail(adsmErrorSystem, "exchange: a memory file of {} bytes: {}", bytes,
                std::strerror(errno));
  }
  return file;
}

Status populateMemoryFile(const Descriptor& file, std::size_t offset, std::size_t bytes) {
  const Result<int> fd = file.use("the exchange's memory file");
  GMAC_TRY(fd.status());
  int code = 0;
  do {
    code = ::fallocate(*fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(bytes));
  } while (code != 0 && errno == EINTR);
  if (code != 0) {
    return fail(adsmErrorHostMemory, "exchange: {} more bytes of shared memory: {}", bytes,
                std::strerror(errno));
  }
  return Status();
}

Result<SharedFile> SharedFile::create(int ranks, std::size_t payloadBytes) {
  SharedFile file(ranks, payloadBytes);
  file.payloadBytes_ = payloadBytes;
  Result<Descriptor> made = makeMemoryFile("gmac-exchange", file.layout_.bytes);
  GMAC_TRY(made.status());
  file.descriptor_ = std::move(*made);
  GMAC_TRY(populateMemoryFile(file.descriptor_, 0, file.layout_.payloads));
  GMAC_TRY(file.map(file.descriptor_.get(), true));
  return file;
}

Result<SharedFile> SharedFile::open(int fd, int ranks, std::size_t payloadBytes) {
  SharedFile file(ranks, payloadBytes);
  file.payloadBytes_ = payloadBytes;
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(fd, &status) != 0 ||
      static_cast<std::size_t>(status.st_size) != file.layout_.bytes) {
    return fail(adsmErrorInvalidValue,
                "exchange: what another process has sent is no memory file of {} bytes of fixed "
                "length",
                file.layout_.bytes);
  }
  GMAC_TRY(file.map(fd, false));
  return file;
}

Status SharedFile::map(int file, bool own) {
  Result<Mapping> control = Mapping::make(file, 0, layout_.payloads, true);
  GMAC_TRY(control.status());
  control_ = std::move(*control);
  Result<Mapping> payloads = Mapping::make(file, layout_.payloads, payloadBytes_, own);
  GMAC_TRY(payloads.status());
  payloads_ = std::move(*payloads);
  return Status();
}

std::atomic<Offer>& SharedFile::offer(int rank) const {
  return reinterpret_cast<std::atomic<Offer>*>(control_.data() + layout_.offers)[rank];
}

std::atomic<Proof>& SharedFile::proof(int rank, std::size_t piece) const {
  const std::size_t index = static_cast<std::size_t>(rank) * FileLayout::kProofs + piece;
  return reinterpret_cast<std::atomic<Proof>*>(control_.data() + layout_.proofs)[index];
}

std::atomic<std::uint32_t>& SharedFile::waitingOf(int rank) const {
  return reinterpret_cast<std::atomic<std::uint32_t>*>(control_.data() + layout_.waiting)[rank];
}

std::atomic<std::uint32_t>& SharedFile::waiting() const {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(control_.data() + kLine);
}

std::atomic<std::uint64_t>& SharedFile::suggestion(int rank) const {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(control_.data() + layout_.suggestions)[rank];
}

std::atomic<std::uint64_t>* SharedFile::notes() const {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(control_.data() + layout_.notes);
}

std::atomic<std::uint64_t>& SharedFile::device() const {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(control_.data() + 2 * kLine);
}

std::atomic<std::uint64_t>& SharedFile::deviceNews() const {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(control_.data() + 3 * kLine);
}

DevicePiece& SharedFile::piece(std::size_t index) const {
  return reinterpret_cast<DevicePiece*>(control_.data() + layout_.pieces)[index];
}

std::atomic<std::uint64_t>& SharedFile::revocations() const {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(control_.data());
}

ExportRecord& SharedFile::exportRecord(std::size_t index) const {
  return reinterpret_cast<ExportRecord*>(control_.data() + layout_.exports)[index];
}

std::atomic<std::uint64_t>& SharedFile::importers(std::size_t record, std::size_t word) const {
  auto* const words =
      reinterpret_cast<std::atomic<std::uint64_t>*>(control_.data() + layout_.importers);
  return words[record * layout_.importerWords + word];
}

Slot& SharedFile::slot(std::size_t index) const {
  return reinterpret_cast<Slot*>(control_.data() + layout_.slots)[index];
}

TransferRecord& SharedFile::transfer(std::size_t index) const {
  return reinterpret_cast<TransferRecord*>(control_.data() + layout_.transfers)[index];
}

Status SharedFile::populatePayloads(std::size_t offset, std::size_t bytes) {
  return populateMemoryFile(descriptor_, layout_.payloads + offset, bytes);
}

// (A system that does not do it keeps the pages for the next time.)
void SharedFile::emptyPayloads(std::size_t offset, std::size_t bytes) {
  if (const Result<int> fd = descriptor_.use("the exchange's memory file"); fd.ok()) {
    (void)::fallocate(*fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(layout_.payloads + offset), static_cast<off_t>(bytes));
  }
}

}  // namespace gmac::exchange
