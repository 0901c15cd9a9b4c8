// SPDX-License-Identifier: Apache-2.0
//
// Another process of this host, and what this one reaches of its memory.
#ifndef GMAC_EXCHANGE_PEER_H_
#define GMAC_EXCHANGE_PEER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "exchange/attempts.h"
#include "exchange/device_functions.h"
#include "exchange/handshake.h"
#include "exchange/shared_file.h"

namespace gmac::exchange::internal {

class Outbox;

// A process that is reached.
class Peer {
 public:
  Peer(Met met, std::shared_ptr<const Outbox> self)
      : met_(std::move(met)), self_(std::move(self)) {}
  const Met& met() const { return met_; }
  // False: it is known to have ended. Reads a file of /proc.
  bool lives() const;
  // Reads that one's nonce where it lies, and tells it whether `rank`, this process, reads its
  // memory. Once, before the others use the object.
  void proveReads(int rank);
  // This process is a child of the one that met it. (Inline, in outbox.h.)
  bool inChild() const;
  // Whether this process reads that one's memory, and whether it says that it reads this one's;
  // until it is found otherwise.
  std::atomic<bool> readable{true};
  std::atomic<bool> reads{true};
  // Imports the device memory that it has exported since, and tells it whether `rank`, this
  // process, reaches it. What was not reached is tried again in its turn among such calls
  // (Attempts). Two loads when there is none.
  void importPieces(int rank, const DeviceFunctions& device);
  // Where a piece is, and its length; NULL: it is not reached.
  const std::byte* piece(std::size_t index, std::size_t* bytes) const;

 private:
  struct Import {
    std::atomic<const std::byte*> address{nullptr};
    std::size_t bytes = 0;  // as long as there is an address
    Attempts attempts;      // under the lock
  };
  // Whether it is reached. Under the lock.
  bool importPiece(int rank, std::size_t index, const DeviceFunctions& device);

  const Met met_;
  const std::shared_ptr<const Outbox> self_;
  std::mutex lock_;  // held while pieces are imported
  std::array<Import, FileLayout::kPieces> imports_;
  std::atomic<std::size_t> tried_{0};      // so many of them
  std::atomic<std::size_t> unreached_{0};  // of those
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_PEER_H_
