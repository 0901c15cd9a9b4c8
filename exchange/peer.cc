// SPDX-License-Identifier: Apache-2.0
#include "exchange/peer.h"

#include <sys/uio.h>

#include "gmac/base/log.h"

namespace gmac::exchange::internal {

bool Peer::lives() const {
  return met_.process <= 0 || met_.start == 0 || !hasEnded(met_.process, met_.start);
}

void Peer::proveReads(int rank) {
  Nonce nonce{};
  const iovec here = {&nonce, sizeof nonce};
  const iovec there = {reinterpret_cast<void*>(met_.nonceAddress), sizeof nonce};
  const bool proved = met_.process > 0 &&
                      ::process_vm_readv(met_.process, &here, 1, &there, 1, 0) == sizeof nonce &&
                      nonce == met_.nonce;
  readable.store(proved, std::memory_order_relaxed);
  met_.file.proof(rank, FileLayout::kReads)
      .store(proved ? Proof::kProved : Proof::kRefused, std::memory_order_release);
}

// Imports one piece, and reads there what its owner has noted that it holds.
bool Peer::importPiece(int rank, std::size_t index, const DeviceFunctions& device) {
  const DevicePiece& piece = met_.file.piece(index);
  void* address = nullptr;
  Nonce mark{};
  adsmError_t code = device.importMemory(piece.handle.data(), &address);
  const bool isImported = code == adsmSuccess;
  if (isImported) {
    code = device.copyFrom(mark.data(), address, sizeof mark);
  }
  const bool proved = code == adsmSuccess && mark == piece.mark;
  Import& import = imports_[index];
  if (proved) {
    import.bytes = piece.bytes;
    import.address.store(static_cast<const std::byte*>(address), std::memory_order_release);
  } else {
    log(LogLevel::kInfo, "exchange: device memory of process {} is not reached: {}", met_.process,
        code != adsmSuccess ? device.causeOf(code) : "it holds something else");
    import.attempts.failed();
    if (isImported && device.releaseImport != nullptr) {
      (void)device.releaseImport(address);
    }
  }
  met_.file.proof(rank, index)
      .store(proved ? Proof::kProved : Proof::kRefused, std::memory_order_release);
  return proved;
}

void Peer::importPieces(int rank, const DeviceFunctions& device) {
  const auto ready = [this](std::size_t index) {
    return index < FileLayout::kPieces &&
           met_.file.piece(index).exported.load(std::memory_order_acquire) != 0;
  };
  if (!ready(tried_.load(std::memory_order_relaxed)) &&
      unreached_.load(std::memory_order_relaxed) == 0) {
    return;
  }
  const std::lock_guard guard(lock_);
  std::size_t unreached = 0;
  std::size_t index = 0;
  for (; ready(index); ++index) {
    Import& import = imports_[index];
    if (import.address.load(std::memory_order_relaxed) == nullptr &&
        (!import.attempts.mayTry() || !importPiece(rank, index, device))) {
      ++unreached;
    }
  }
  tried_.store(index, std::memory_order_relaxed);
  unreached_.store(unreached, std::memory_order_relaxed);
}

const std::byte* Peer::piece(std::size_t index, std::size_t* bytes) const {
  if (index >= FileLayout::kPieces) {
    return nullptr;
  }
  const std::byte* const address = imports_[index].address.load(std::memory_order_acquire);
  if (address != nullptr) {
    *bytes = imports_[index].bytes;
  }
  return address;
}

}  // namespace gmac::exchange::internal
