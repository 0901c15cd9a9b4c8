// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/scheduling.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace gmac {
namespace {

// Devices of which nothing is known, and which have nothing.
std::vector<DeviceOffer> devices(std::size_t count) {
  std::vector<DeviceOffer> offers(count);
  for (std::size_t device = 0; device < count; ++device) {
    offers[device].device = device;
  }
  return offers;
}

TEST(Scheduling, DataIsWhereMostBytesAreCurrent) {
  auto offers = devices(3);
  EXPECT_EQ(bestByData(offers), 0u);
  offers[2].currentBytes = 1;
  offers[0].homeBytes = 1000;
  offers[2].inFlight = 50;
  EXPECT_EQ(bestByData(offers), 2u);
  offers[1].currentBytes = 2;
  EXPECT_EQ(bestByData(offers), 1u);
}

TEST(Scheduling, DataBreaksTiesByHomesAndLoad) {
  auto offers = devices(4);
  offers[0].inFlight = 2;
  offers[1].inFlight = 1;
  offers[2].inFlight = 1;
  offers[3].inFlight = 3;
  EXPECT_EQ(bestByData(offers), 1u);
  offers[3].homeBytes = 8;
  EXPECT_EQ(bestByData(offers), 3u);
  offers[2].homeBytes = 8;
  EXPECT_EQ(bestByData(offers), 2u);
}

TEST(Scheduling, HistoryIsWhereACallEndsFirst) {
  auto offers = devices(3);
  offers[0].free = 1000;
  offers[0].callTakes = 500;
  offers[1].free = 1200;
  offers[1].callTakes = 400;
  offers[2].free = 900;
  offers[2].callTakes = 500;
  offers[2].moveTakes = 90;
  EXPECT_EQ(bestByHistory(offers), 2u);
  offers[2].moveTakes = 110;
  EXPECT_EQ(bestByHistory(offers), 0u);
  offers[1].callTakes = 299;
  EXPECT_EQ(bestByHistory(offers), 1u);
}

TEST(Scheduling, HistoryTriesEachDeviceThatIsFreeAndNear) {
  auto offers = devices(3);
  for (DeviceOffer& offer : offers) {
    offer.free = 7;
  }
  offers[0].callTakes = 100;
  EXPECT_EQ(bestByHistory(offers), 1u);
  offers[1].moveTakes = 101;
  offers[2].free = 120;
  EXPECT_EQ(bestByHistory(offers), 0u);
}

TEST(Scheduling, HistoryBreaksTiesByMovesAndLoad) {
  auto offers = devices(3);
  EXPECT_EQ(bestByHistory(offers), 0u);
  offers[0].inFlight = 1;
  EXPECT_EQ(bestByHistory(offers), 1u);
  offers[1].moveBytes = offers[2].moveBytes = 4;
  EXPECT_EQ(bestByHistory(offers), 0u);
}

TEST(Scheduling, OnlyWhatIsOfferedIsTaken) {
  auto offers = devices(3);
  offers[0].currentBytes = 100;
  offers.erase(offers.begin());
  EXPECT_EQ(bestByData(offers), 1u);
  EXPECT_EQ(bestByHistory(offers), 1u);
}

}  // namespace
}  // namespace gmac
