// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/scheduling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
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

// Asks three devices in turn, which answer as given, and again where one made room.
struct Asked {
  std::vector<std::pair<std::size_t, bool>> devices;  // and whether they were to make room
  Status status;
};
Asked ask(std::array<adsmError_t, 3> answers, adsmError_t withRoom) {
  Asked asked;
  asked.status = runOnBest(
      [](const DeviceSet& unfit) {
        std::size_t device = 0;
        while (device < 3 && unfit.test(device)) ++device;
        return device < 3 ? std::optional(device) : std::nullopt;
      },
      [&](std::size_t device, bool makesRoom) {
        asked.devices.emplace_back(device, makesRoom);
        const bool full = answers[device] == adsmErrorAcceleratorMemory;
        return Status(full && makesRoom ? withRoom : answers[device]);
      });
  return asked;
}
using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Scheduling, GoesOnToTheNextDeviceWhereACallDoesNotFitOrHasNoCode) {
  const Asked asked =
      ask({adsmErrorAcceleratorMemory, adsmErrorNoImplementation, adsmSuccess}, adsmSuccess);
  EXPECT_TRUE(asked.status.ok());
  EXPECT_THAT(asked.devices, ElementsAre(Pair(0u, false), Pair(1u, false), Pair(2u, false)));
}

TEST(Scheduling, AsksDevicesWithoutCodeOnce) {
  const Asked asked =
      ask({adsmErrorNoImplementation, adsmErrorAcceleratorMemory, adsmErrorNoImplementation},
          adsmErrorAcceleratorMemory);
  EXPECT_EQ(asked.status.code(), adsmErrorAcceleratorMemory);
  EXPECT_THAT(asked.devices,
              ElementsAre(Pair(0u, false), Pair(1u, false), Pair(2u, false), Pair(1u, true)));
  const Asked nowhere =
      ask({adsmErrorNoImplementation, adsmErrorNoImplementation, adsmErrorNoImplementation},
          adsmSuccess);
  EXPECT_EQ(nowhere.status.code(), adsmErrorNoImplementation);
  EXPECT_EQ(nowhere.devices.size(), 3u);
}

TEST(Scheduling, EndsWithAnyOtherError) {
  const Asked asked = ask({adsmErrorAcceleratorMemory, adsmErrorKernel, adsmSuccess}, adsmSuccess);
  EXPECT_EQ(asked.status.code(), adsmErrorKernel);
  EXPECT_THAT(asked.devices, ElementsAre(Pair(0u, false), Pair(1u, false)));
}

}  // namespace
}  // namespace gmac
