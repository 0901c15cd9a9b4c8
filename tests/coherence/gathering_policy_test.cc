// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/gathering_policy.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>

namespace gmac {
namespace {

using Advice = GatheringPolicy::Advice;
using Nanoseconds = GatheringPolicy::Nanoseconds;

constexpr std::size_t kBytes = 1'000'000;
constexpr Nanoseconds kMove = 50'000;  // of all of them
constexpr Nanoseconds kWork = 1'000;   // between the beginnings of two
constexpr int kOther = 3;

// Follows the advice at once.
class Gatherings : public ::testing::Test {
 protected:
  void move() {
    now_ += kMove;
    moving_ += kMove;
  }
  void work(int device, Nanoseconds time = kWork) {
    switch (policy_.works(device, kBytes, now_)) {
      case Advice::kToCpu:
        move();
        policy_.movedToCpu(kBytes, kMove, now_);
        break;
      case Advice::kToDevice:
        move();
        policy_.movedTo(device, kBytes, kMove, now_);
        break;
      case Advice::kStay:
        break;
    }
    now_ += time;
  }
  // How many works of a device until objects lie there; `most`: they never do.
  std::size_t worksUntilThere(int device, std::size_t most = 10'000'000) {
    for (std::size_t i = 1; i <= most; ++i) {
      work(device);
      if (policy_.place() == device) {
        return i;
      }
    }
    return most;
  }

  GatheringPolicy policy_;
  Nanoseconds now_ = 1'000'000'000;
  Nanoseconds moving_ = 0;
};

TEST_F(Gatherings, NothingMovesWhileTheAcceleratorsOwnDevicesWork) {
  for (int i = 0; i < 1000; ++i) {
    work(GatheringPolicy::kOwn);
  }
  EXPECT_EQ(policy_.place(), GatheringPolicy::kOwn);
  EXPECT_EQ(moving_, 0u);
}

TEST_F(Gatherings, AnotherDevicesFirstWorkBringsThemToTheCpu) {
  work(GatheringPolicy::kOwn);
  work(kOther);
  EXPECT_EQ(policy_.place(), GatheringPolicy::Place());
  EXPECT_EQ(moving_, kMove);
}

TEST_F(Gatherings, TheyGoToADeviceThatWorksAloneForLong) {
  work(kOther);
  const Nanoseconds begun = now_;
  EXPECT_GE(worksUntilThere(kOther), LoneWorker::kLeastWorks);
  EXPECT_GE(now_ - begun, LoneWorker::kRatio * kMove);
  EXPECT_LE(now_ - begun, (LoneWorker::kRatio + 2) * kMove);
}

TEST_F(Gatherings, AFewLongWorksAreNotEnough) {
  work(kOther);
  for (std::size_t i = 1; i < LoneWorker::kLeastWorks; ++i) {
    work(kOther, 100 * kMove);
  }
  EXPECT_EQ(policy_.place(), GatheringPolicy::Place());
  work(kOther);
  EXPECT_EQ(policy_.place(), kOther);
}

TEST_F(Gatherings, DevicesThatTakeTurnsEndOnTheCpu) {
  for (int i = 0; i < 100'000; ++i) {
    work(i % 2 == 0 ? GatheringPolicy::kOwn : kOther, 100 * kMove);
  }
  EXPECT_EQ(policy_.place(), GatheringPolicy::Place());
  EXPECT_EQ(moving_, kMove);
}

// The worst program: the other device works as soon as they have come.
TEST_F(Gatherings, MovesAreAThirdOfTheTimeAtMostAndLessAndLess) {
  const Nanoseconds begun = now_;
  work(kOther);
  double last = 1;
  for (int i = 0; i < 8; ++i) {
    const int device = i % 2 == 0 ? kOther : GatheringPolicy::kOwn;
    (void)worksUntilThere(device);
    work(i % 2 == 0 ? GatheringPolicy::kOwn : kOther);
    const double share = static_cast<double>(moving_ - kMove) / static_cast<double>(now_ - begun);
    EXPECT_LE(share, 0.34);
    EXPECT_LT(share, last);
    last = share;
  }
  EXPECT_LE(last, 0.04);
}

TEST_F(Gatherings, PhasesThatLastAreFollowedEachTime) {
  for (int phase = 0; phase < 10; ++phase) {
    const int device = phase % 2 == 0 ? kOther : GatheringPolicy::kOwn;
    EXPECT_LE(worksUntilThere(device), 10 * kMove * LoneWorker::kRatio / kWork) << phase;
    for (int i = 0; i < 10'000; ++i) {
      work(device);
    }
  }
}

TEST_F(Gatherings, WhereThereIsNoRoomItIsLookedForLessAndLessOften) {
  work(kOther);
  std::size_t looks = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    if (policy_.works(kOther, kBytes, now_) == Advice::kToDevice) {
      policy_.stays(now_);
      ++looks;
    }
    now_ += kWork;
  }
  EXPECT_GE(looks, 30u);
  EXPECT_LE(looks, 100u);
}

// One object, which calls list.
class ListedObject : public ::testing::Test {
 protected:
  using Way = GatheringPolicy::Way;
  Way call(int device, Nanoseconds time = kWork) {
    const Way way = GatheringPolicy::wayOf(worker_, place_, device, kMove, now_);
    if (way != Way::kStay) {
      now_ += kMove;
      moving_ += kMove;
      place_ = way == Way::kToCpu ? GatheringPolicy::Place() : device;
    }
    GatheringPolicy::went(worker_, way, now_);
    now_ += time;
    return way;
  }

  LoneWorker worker_;
  GatheringPolicy::Place place_ = GatheringPolicy::kOwn;
  Nanoseconds now_ = 1'000'000'000;
  Nanoseconds moving_ = 0;
};

TEST_F(ListedObject, GoesToAnotherDeviceAtOnceWhereItHasStayed) {
  for (int device = 0; device < 10; ++device) {
    EXPECT_EQ(call(device), Way::kChange) << device;
    for (Nanoseconds begun = now_; now_ - begun < LoneWorker::kRatio * kMove;) {
      EXPECT_EQ(call(device), Way::kStay) << device;
    }
  }
}

TEST_F(ListedObject, GoesToTheCpuWhereItHasNot) {
  EXPECT_EQ(call(1), Way::kChange);
  EXPECT_EQ(call(2), Way::kToCpu);
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(call(i % 2, 100 * kMove), Way::kStay);
  }
  EXPECT_EQ(moving_, 2 * kMove);
}

TEST_F(ListedObject, ComesToADeviceWhoseCallsAloneListIt) {
  (void)call(1);
  (void)call(2);
  const Nanoseconds begun = now_;
  while (call(2) != Way::kCome) {
  }
  EXPECT_GE(now_ - begun, LoneWorker::kRatio * kMove);
  EXPECT_LE(now_ - begun, (LoneWorker::kRatio + 2) * kMove);
}

// Each pattern is the worst for one rule: another device calls as soon as the object has come, as
// soon as it may change at once, and anything at random.
TEST_F(ListedObject, MovesAreAThirdOfTheTimeAtMost) {
  const auto share = [&](Nanoseconds since, Nanoseconds moved) {
    return static_cast<double>(moving_ - moved) / static_cast<double>(now_ - since);
  };
  Nanoseconds since = now_;
  for (int i = 0; i < 20; ++i) {
    while (place_ != i) {
      (void)call(i);
    }
    (void)call(i + 1);
  }
  EXPECT_LE(share(since, 0), 0.34);
  Nanoseconds moved = moving_;
  since = now_;
  for (int i = 0; i < 1000; ++i) {
    while (!worker_.hasStayed(kMove, now_)) {
      (void)call(i);
    }
    (void)call(i + 1);
  }
  EXPECT_LE(share(since, moved), 0.34);
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    moved = moving_;
    since = now_;
    for (int i = 0; i < 20'000; ++i) {
      const int device = static_cast<int>(random() % 3);
      for (unsigned calls = random() % (seed % 5 == 0 ? 400 : 40); calls > 0; --calls) {
        (void)call(device, kWork * (1 + random() % 20));
      }
    }
    EXPECT_LE(share(since, moved), 0.34) << seed;
  }
}

TEST_F(Gatherings, APredictionFollowsTheMovesBefore) {
  policy_.movedToCpu(kBytes, 10 * kMove, now_);
  const Nanoseconds begun = now_;
  (void)worksUntilThere(kOther);
  EXPECT_GE(now_ - begun, 10 * kMove * LoneWorker::kRatio);
}

}  // namespace
}  // namespace gmac
