// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_EXCHANGE_DESCRIPTION_H_
#define GMAC_EXCHANGE_DESCRIPTION_H_

#include <cstdint>
#include <type_traits>

#include "exchange/exchange.h"
#include "exchange/shared_file.h"

namespace gmac::exchange::internal {

// The contents of a description. The slot in shared memory decides; this must agree with it.
struct Contents {
  static constexpr std::uint64_t kMagic = 0x316c637261706d67;

  std::uint64_t magic;
  Nonce nonce;  // the sender's
  std::uint64_t id;
  std::uint64_t slot;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::int32_t receiver;
  std::uint16_t memory;
  std::uint16_t piece;
  std::uint64_t reserved[8];  // zero
};
static_assert(sizeof(Contents) == kDescriptionBytes);
static_assert(std::has_unique_object_representations_v<Contents>);

// The same of a message that is copied once.
struct TransferContents {
  static constexpr std::uint64_t kMagic = 0x31657361656c6d67;

  std::uint64_t magic;
  Nonce nonce;
  std::uint64_t id;
  std::uint64_t record;
  std::int64_t bytes;
  std::int64_t receiver;
  std::uint64_t reserved[9];  // zero
};
static_assert(sizeof(TransferContents) == kDescriptionBytes);
static_assert(std::has_unique_object_representations_v<TransferContents>);

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_DESCRIPTION_H_
