// SPDX-License-Identifier: Apache-2.0
#include "exchange/pinned_rings.h"

#include <algorithm>

#include "gmac/base/log.h"

namespace gmac::exchange::internal {

PinnedRings::PinnedRings(std::shared_ptr<Outbox> outbox, std::shared_ptr<Exports> exports,
                         const DeviceFunctions* device, const PinnedRingOptions& options)
    : outbox_(std::move(outbox)),
      exports_(std::move(exports)),
      device_(device),
      options_(options) {}

// (Messages keep it as long as they use one.)
PinnedRings::~PinnedRings() {
  if (outbox_->inChild()) {
    return;
  }
  for (const Ring& ring : rings_) {
    unpin(ring);
  }
}

PinnedRings::Use::~Use() {
  if (ring_ == nullptr || rings_->outbox_->inChild()) {
    return;
  }
  const std::lock_guard guard(rings_->lock_);
  ring_->room.giveBack(offset_, bytes_);
  --ring_->users;
  std::list<Ring>& all = rings_->rings_;
  const auto self =
      std::find_if(all.begin(), all.end(), [this](const Ring& ring) { return &ring == ring_; });
  all.splice(all.end(), all, self);
}

void PinnedRings::unpin(const Ring& ring) const {
  if (ring.isPinned) {
    (void)device_->unpin(ring.mapping.data(), options_.bytes);
  }
}

Status PinnedRings::make(int rank) {
  const Result<Descriptor> file = makeMemoryFile("gmac-ring", options_.bytes);
  GMAC_TRY(file.status());
  // (What is not there would end either process when it is touched.)
  GMAC_TRY(populateMemoryFile(*file, 0, options_.bytes));
  Result<Mapping> mapping = Mapping::make(file->get(), 0, options_.bytes, true);
  GMAC_TRY(mapping.status());
  const Result<ExportId> id =
      exports_->addFile(file->get(), 0, options_.bytes, ExportKind::kPinned);
  GMAC_TRY(id.status());
  Ring& ring = rings_.emplace_back(std::move(*mapping), options_.bytes);
  ring.id = *id;
  ring.rank = rank;
  ring.isPinned = device_ != nullptr && device_->pins(ring.mapping.data(), options_.bytes);
  return {};
}

// (Its pages stay with a receiver that has it mapped still.)
bool PinnedRings::dropOldest(const std::vector<std::shared_ptr<Peer>>& peers) {
  const auto oldest =
      std::find_if(rings_.begin(), rings_.end(), [](const Ring& ring) { return ring.users == 0; });
  if (oldest == rings_.end()) {
    return false;
  }
  (void)exports_->revoke(oldest->id, peers);
  unpin(*oldest);
  rings_.erase(oldest);
  return true;
}

Result<PinnedRings::Use> PinnedRings::take(int rank, std::size_t bytes,
                                           const std::vector<std::shared_ptr<Peer>>& peers) {
  const std::size_t part = std::min(bytes, options_.bytes);
  const std::lock_guard guard(lock_);
  auto found = std::find_if(rings_.begin(), rings_.end(), [&](const Ring& ring) {
    return ring.rank == rank && ring.room.largest() >= part;
  });
  if (found == rings_.end()) {
    if (rings_.size() >= options_.most && !dropOldest(peers)) {
      return fail(adsmErrorHostMemory, "exchange: {} rings are in use, as many as there may be",
                  rings_.size());
    }
    if (!attempts_.mayTry()) {
      return fail(adsmErrorHostMemory, "exchange: there was no memory for a ring");
    }
    if (const Status status = make(rank); !status.ok()) {
      attempts_.failed();
      log(LogLevel::kInfo, "exchange: no ring of {} bytes: {}", options_.bytes, lastErrorText());
      return status;
    }
    attempts_ = {};
    found = std::prev(rings_.end());
  }
  GMAC_TRY(exports_->hand(found->id, rank, *peers[static_cast<std::size_t>(rank)]));
  ++found->users;
  Use use;
  use.rings_ = shared_from_this();
  use.ring_ = &*found;
  use.offset_ = *found->room.take(part, 1);
  use.bytes_ = part;
  return use;
}

}  // namespace gmac::exchange::internal
