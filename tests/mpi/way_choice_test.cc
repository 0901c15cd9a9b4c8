// SPDX-License-Identifier: Apache-2.0
#include "mpi/way_choice.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gmac::mpi::tickets {
namespace {

using Reach = DeviceMessage::Reach;

constexpr std::int64_t kLeast = std::int64_t{64} << 10;  // the shortest ticket
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr Sender kSenders[] = {Sender::kWaits, Sender::kExchanges, Sender::kFollows,
                               Sender::kLeaves};

// In pieces of so many bytes.
Choice plain(std::int64_t bytes, std::int64_t piece, Sender sender, bool isRead = false) {
  return choosePlain({bytes, bytes / piece, piece, isRead}, sender, kLeast);
}
Choice device(std::int64_t bytes, Reach reach, Sender sender = Sender::kWaits, bool isFar = false) {
  return chooseOnDevice({bytes, isFar, reach}, sender, kLeast, 512);
}

TEST(WayChoice, OnePieceOfPlainMemoryAndWhatIsShortAreMpis) {
  for (const Sender sender : kSenders) {
    EXPECT_EQ(plain(64 * kMiB, 64 * kMiB, sender, true), Choice::kWire);
    EXPECT_EQ(plain(kLeast - 8, 8, sender, true), Choice::kWire);
    EXPECT_NE(plain(kLeast, 8, sender), Choice::kWire);
  }
}

TEST(WayChoice, LongPiecesAreReadByWhoMay) {
  for (const Sender sender : kSenders) {
    EXPECT_EQ(plain(kMiB, kReadPiece, sender, true), Choice::kRead);
    EXPECT_NE(plain(kMiB, kReadPiece - 8, sender, true), Choice::kRead);
    EXPECT_NE(plain(kMiB, kReadPiece, sender, false), Choice::kRead);
  }
}

TEST(WayChoice, ARingIsAsLongAsTheMessageIfItsSenderGoesOn) {
  EXPECT_EQ(plain(kMostHeld, 8, Sender::kWaits), Choice::kWholeRing);
  EXPECT_EQ(plain(kMostHeld + 8, 8, Sender::kWaits), Choice::kShortRing);
  EXPECT_EQ(plain(kMostHeld, kLongPiece, Sender::kWaits), Choice::kWholeRing);
  EXPECT_EQ(plain(64 * kMiB, 8, Sender::kFollows), Choice::kWholeRing);
  // Nobody serves a ring of the others.
  for (const Sender sender : {Sender::kExchanges, Sender::kLeaves}) {
    EXPECT_EQ(plain(kMiB, kLongPiece - 8, sender), Choice::kPacked);
    EXPECT_EQ(plain(kMiB, kLongPiece, sender), Choice::kWire);
  }
  EXPECT_EQ(plain(kMiB, kLongPiece, Sender::kFollows), Choice::kWire);
}

TEST(WayChoice, WhatIsImportedIsCopiedByTheReceiversDevice) {
  for (const Sender sender : kSenders) {
    for (const std::int64_t bytes : {std::int64_t{512}, kLeast, 1024 * kMiB}) {
      EXPECT_EQ(device(bytes, Reach::kImported, sender), Choice::kDevice);
    }
    EXPECT_EQ(device(511, Reach::kImported, sender), Choice::kWire);
  }
  EXPECT_EQ(device(kMiB, Reach::kImported, Sender::kWaits, true), Choice::kPacked);
  EXPECT_EQ(device(512, Reach::kImported, Sender::kWaits, true), Choice::kWire);
}

TEST(WayChoice, WhatIsNotReachedGoesThroughPinnedMemoryIfItsSenderServesIt) {
  for (const Reach reach : {Reach::kFails, Reach::kHasNoHandle}) {
    for (const Sender sender : kSenders) {
      const bool serves = sender != Sender::kLeaves;
      EXPECT_EQ(device(kMiB, reach, sender), serves ? Choice::kPinned : Choice::kPacked);
      EXPECT_EQ(device(kMiB - 1, reach, sender), Choice::kPacked);
      EXPECT_EQ(device(kMiB, reach, sender, true), Choice::kPacked);
    }
  }
}

TEST(WayChoice, APackedMessageTellsOfMemoryThatMayBeImported) {
  EXPECT_EQ(device(1024 * kMiB, Reach::kNotYet), Choice::kPacked);
  EXPECT_EQ(device(512, Reach::kNotYet), Choice::kPacked);
  EXPECT_EQ(device(512, Reach::kFails), Choice::kPacked);
  EXPECT_EQ(device(512, Reach::kHasNoHandle), Choice::kWire);
  EXPECT_EQ(device(kLeast, Reach::kHasNoHandle), Choice::kPacked);
}

}  // namespace
}  // namespace gmac::mpi::tickets
