// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/zero_copy_policy.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gmac {
namespace {

using Advice = ZeroCopyPolicy::Advice;
constexpr std::uint64_t kUs = 1000;

class ZeroCopyRounds : public ::testing::Test {
 protected:
  // The program comes back to it `pause` later.
  Advice round(std::uint64_t took, std::uint64_t pause = kUs) {
    policy_.launched(now_ += pause);
    policy_.waits();
    policy_.round();
    return policy_.finished(now_ += took, limits_);
  }
  // How many rounds it takes until the policy wants a move; at most `most`.
  int roundsUntilMove(std::uint64_t took, int most = 100'000) {
    for (int i = 1; i <= most; ++i) {
      if (round(took) == Advice::kMove) {
        return i;
      }
    }
    return 0;
  }
  void moves(bool toCpu) {
    policy_.launched(now_ += kUs);
    policy_.moved(toCpu);
    policy_.round();
    ASSERT_EQ(policy_.finished(now_ += 1000 * kUs, limits_), Advice::kStay)
        << "what the move took counts for nothing";
  }

  static constexpr std::uint64_t kNever = UINT64_MAX / 2;
  ZeroCopyPolicy policy_;
  ZeroCopyPolicy::Limits limits_;
  std::uint64_t now_ = 1;
};

TEST_F(ZeroCopyRounds, ShortRoundsMoveTheObject) { EXPECT_EQ(roundsUntilMove(25 * kUs), 32); }

TEST_F(ZeroCopyRounds, LongRoundsDoNot) {
  EXPECT_EQ(roundsUntilMove(limits_.longest + kUs, 1000), 0);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(round(i % 32 == 0 ? 2 * limits_.longest : 25 * kUs), Advice::kStay) << i;
  }
}

TEST_F(ZeroCopyRounds, ThoseOfSeveralObjectsMayTakeLonger) {
  limits_.moves = kNever;
  constexpr std::uint32_t kObjects = 9;
  const std::uint64_t longest = limits_.longest + 8 * limits_.each;
  for (int i = 1; i <= 32; ++i) {
    policy_.launched(now_ += kUs);
    policy_.round();
    ASSERT_EQ(policy_.finished(now_ += longest + 1, limits_, kObjects), Advice::kStay) << i;
  }
  for (int i = 1; i <= 32; ++i) {
    policy_.launched(now_ += kUs);
    policy_.round();
    ASSERT_EQ(policy_.finished(now_ += longest, limits_, kObjects) == Advice::kMove, i == 32) << i;
  }
}

// As where the accesses of several threads wait for each other's kernels.
TEST_F(ZeroCopyRounds, WhatTheKernelsTookCounts) {
  limits_.moves = kNever;
  const auto roundsWith = [&](std::uint64_t kernels) {
    for (int i = 1; i <= 100; ++i) {
      policy_.launched(now_ += kUs);
      policy_.round();
      if (policy_.finished(now_ += 500 * kUs, limits_, 1, {kernels, kernels}) == Advice::kMove) {
        return i;
      }
    }
    return 0;
  };
  EXPECT_EQ(roundsWith(limits_.longest + kUs), 0);
  EXPECT_EQ(roundsWith(limits_.longest), 32);
  EXPECT_EQ(policy_.before(), 500 * kUs) << "that is what there is to gain";
}

// As where the CPU comes for the bytes between two launches.
TEST_F(ZeroCopyRounds, TheyBeginWithTheFirstLaunchOnTheQueue) {
  limits_.moves = kNever;
  const auto roundOf = [&](std::uint64_t took) {
    policy_.launched(now_ += kUs);
    policy_.round();
    return policy_.finished(now_ += 5 * kUs, limits_, 1, {took, took});
  };
  for (int i = 1; i < 32; ++i) {
    ASSERT_EQ(roundOf(90 * kUs), Advice::kStay);
  }
  ASSERT_EQ(roundOf(90 * kUs), Advice::kMove);
  EXPECT_EQ(policy_.before(), 90 * kUs);
  moves(true);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(roundOf(80 * kUs), Advice::kStay) << "quicker than before";
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(roundOf(300 * kUs), Advice::kStay);
  }
  EXPECT_EQ(roundOf(300 * kUs), Advice::kMove);
}

TEST_F(ZeroCopyRounds, ALongRoundAmongThoseOfSeveralThreadsEndsNothing) {
  limits_.moves = kNever;
  const auto roundsWith = [&](bool contended) {
    policy_ = {};
    for (int i = 1; i <= 100; ++i) {
      const std::uint64_t kernels = i % 8 == 0 ? limits_.longest + kUs : 20 * kUs;
      policy_.launched(now_ += kUs);
      policy_.round();
      if (policy_.finished(now_ += 500 * kUs, limits_, 1, {kernels, kernels, contended}) ==
          Advice::kMove) {
        return i;
      }
    }
    return 0;
  };
  EXPECT_EQ(roundsWith(false), 0);
  EXPECT_EQ(roundsWith(true), 36) << "the 32nd short one";
}

TEST_F(ZeroCopyRounds, ThoseOfSeveralKernelsTakeAsLongAsTheNewest) {
  limits_.moves = kNever;
  for (int i = 1; i < 32; ++i) {
    policy_.launched(now_ += kUs);
    policy_.round();
    ASSERT_EQ(policy_.finished(now_ += 500 * kUs, limits_, 1, {400 * kUs, 100 * kUs}),
              Advice::kStay);
  }
  policy_.launched(now_ += kUs);
  policy_.round();
  EXPECT_EQ(policy_.finished(now_ += 500 * kUs, limits_, 1, {400 * kUs, 100 * kUs}), Advice::kMove);
}

TEST_F(ZeroCopyRounds, FasterRoundsStay) {
  roundsUntilMove(25 * kUs);
  moves(true);
  EXPECT_EQ(roundsUntilMove(13 * kUs, 1000), 0);
}

TEST_F(ZeroCopyRounds, ThreeSlowRoundsMoveItBack) {
  roundsUntilMove(25 * kUs);
  moves(true);
  EXPECT_EQ(round(500 * kUs), Advice::kStay);
  EXPECT_EQ(round(500 * kUs), Advice::kStay);
  EXPECT_EQ(round(13 * kUs), Advice::kStay);
  EXPECT_EQ(round(500 * kUs), Advice::kStay);
  EXPECT_EQ(round(500 * kUs), Advice::kStay);
  EXPECT_EQ(round(500 * kUs), Advice::kMove);
}

TEST_F(ZeroCopyRounds, SoDoTwoThatAreVerySlow) {
  roundsUntilMove(25 * kUs);
  moves(true);
  EXPECT_EQ(round(5000 * kUs), Advice::kStay);
  EXPECT_EQ(round(13 * kUs), Advice::kStay);
  EXPECT_EQ(round(5000 * kUs), Advice::kStay);
  EXPECT_EQ(round(5000 * kUs), Advice::kMove);
}

TEST_F(ZeroCopyRounds, PausesOfTheProgramDoNot) {
  roundsUntilMove(25 * kUs);
  moves(true);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(round(13 * kUs, i % 2 == 0 ? 5'000'000 * kUs : kUs), Advice::kStay) << i;
  }
}

// The device was another process's meanwhile.
TEST_F(ZeroCopyRounds, TheFirstKernelAfterAPauseMayBeSlow) {
  roundsUntilMove(25 * kUs);
  moves(true);
  for (int i = 0; i < 1000; ++i) {
    const bool pause = i % 10 == 0;
    ASSERT_EQ(round(pause ? 180 * kUs : 13 * kUs, pause ? 30'000 * kUs : kUs), Advice::kStay) << i;
  }
}

TEST_F(ZeroCopyRounds, WaitsForSomethingElseCountForNothing) {
  for (int i = 0; i < 1000; ++i) {
    policy_.launched(now_ += kUs);
    ASSERT_EQ(policy_.finished(now_ += 25 * kUs, limits_), Advice::kStay);
    policy_.round();
    ASSERT_EQ(policy_.finished(now_ += 25 * kUs, limits_), Advice::kStay) << "nothing was launched";
  }
}

TEST_F(ZeroCopyRounds, SlowRoundsBetweenFastOnesDo) {
  roundsUntilMove(25 * kUs);
  moves(true);
  int slow = 0;
  for (int i = 0; i < 32; ++i) {
    const bool second = i % 2 == 1;
    slow += second ? 1 : 0;
    if (round(second ? 500 * kUs : 13 * kUs) == Advice::kMove) {
      EXPECT_EQ(slow, 5);
      return;
    }
  }
  FAIL() << "every other round is slow";
}

TEST_F(ZeroCopyRounds, WhatGainsNothingMovesBackAfterATrial) {
  roundsUntilMove(25 * kUs);
  moves(true);
  EXPECT_EQ(roundsUntilMove(26 * kUs), 32);
}

TEST_F(ZeroCopyRounds, WhatHasMovedMayBeConcurrent) {
  EXPECT_FALSE(policy_.mayBeConcurrent());
  roundsUntilMove(25 * kUs);
  EXPECT_FALSE(policy_.mayBeConcurrent());
  moves(true);
  EXPECT_TRUE(policy_.mayBeConcurrent());
  EXPECT_FALSE(policy_.checked());
  moves(false);
  EXPECT_FALSE(policy_.mayBeConcurrent());
}

TEST_F(ZeroCopyRounds, WhatIsWatchedMayBeSoOnceTheCpuHasCome) {
  roundsUntilMove(25 * kUs);
  moves(true);
  policy_.watched();
  EXPECT_TRUE(policy_.checked());
  policy_.closed();
  EXPECT_FALSE(policy_.mayBeConcurrent()) << "it was open all the time";
  policy_.closed();
  EXPECT_TRUE(policy_.mayBeConcurrent());
}

TEST_F(ZeroCopyRounds, WhatIsSuspectedNeedsATrialFirst) {
  roundsUntilMove(25 * kUs);
  moves(true);
  policy_.watched();
  policy_.suspect();
  policy_.closed();
  policy_.closed();
  for (int i = 1; i <= 32; ++i) {
    ASSERT_FALSE(policy_.mayBeConcurrent()) << i;
    ASSERT_EQ(round(13 * kUs), Advice::kStay);
  }
  EXPECT_TRUE(policy_.mayBeConcurrent());
  policy_.watched();
  policy_.suspect();
  EXPECT_EQ(round(5000 * kUs), Advice::kMove) << "at once";
}

TEST_F(ZeroCopyRounds, WhatIsSuspectedAndHasNoRoundsMovesBack) {
  roundsUntilMove(25 * kUs);
  moves(true);
  policy_.watched();
  policy_.suspect();
  const auto comes = [&] {
    policy_.closed();
    return policy_.waits();
  };
  for (int i = 0; i < 32; ++i) {
    ASSERT_EQ(comes(), Advice::kStay);
  }
  ASSERT_EQ(round(13 * kUs), Advice::kStay) << "which counts anew";
  for (int i = 0; i < 32; ++i) {
    ASSERT_EQ(comes(), Advice::kStay);
  }
  EXPECT_EQ(comes(), Advice::kMove);
}

TEST_F(ZeroCopyRounds, WhatIsTrustedStaysWhereverTheCpuComes) {
  roundsUntilMove(25 * kUs);
  moves(true);
  for (int i = 0; i < 100; ++i) {
    policy_.closed();
    ASSERT_EQ(policy_.waits(), Advice::kStay);
  }
}

TEST_F(ZeroCopyRounds, WhatIsOpenIsNotIdle) {
  roundsUntilMove(25 * kUs);
  moves(true);
  policy_.watched();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(policy_.waits(), Advice::kStay);
  }
  policy_.closed();
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(policy_.waits(), Advice::kStay);
  }
  policy_.closed();  // the CPU has come
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(policy_.waits(), Advice::kStay);
  }
  EXPECT_EQ(policy_.waits(), Advice::kMove);
}

TEST_F(ZeroCopyRounds, EachWrongMoveDoublesTheEvidenceForTheNext) {
  for (const int wanted : {32, 64, 128, 256}) {
    ASSERT_EQ(roundsUntilMove(25 * kUs), wanted);
    moves(true);
    roundsUntilMove(26 * kUs);
    moves(false);
  }
}

TEST_F(ZeroCopyRounds, WaitsWithoutARoundMoveItBack) {
  roundsUntilMove(25 * kUs);
  moves(true);
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(policy_.waits(), Advice::kStay);
  }
  EXPECT_EQ(policy_.waits(), Advice::kMove);
}

TEST_F(ZeroCopyRounds, APageThatHasMovedBackTwiceNeedsFourTimesAsMany) {
  policy_.movedBack(2);
  EXPECT_EQ(roundsUntilMove(25 * kUs), 128);
}

// For want of memory, say. It is tried again, ever more rarely.
TEST_F(ZeroCopyRounds, WhatCannotMoveBackIsTriedAgain) {
  roundsUntilMove(25 * kUs);
  moves(true);
  for (const int waits : {8, 16, 32, 64}) {
    for (int i = 0; i < waits; ++i) {
      ASSERT_EQ(policy_.waits(), Advice::kStay) << waits << ' ' << i;
    }
    ASSERT_EQ(policy_.waits(), Advice::kMove) << waits;
    policy_.stays();
  }
}

TEST_F(ZeroCopyRounds, WhatCannotMoveBackIsTriedEverMoreRarelyAfterSlowRounds) {
  roundsUntilMove(25 * kUs);
  moves(true);
  int last = roundsUntilMove(1000 * kUs, 1000);
  ASSERT_GT(last, 0);
  for (int i = 0; i < 5; ++i) {
    policy_.stays();
    const int next = roundsUntilMove(1000 * kUs, 1000);
    EXPECT_EQ(next, 2 * last);
    last = next;
  }
}

TEST_F(ZeroCopyRounds, WhatHasTakenAsLongAsMovesTakeMovesSooner) {
  const auto rounds = [&](int turns, std::uint64_t took) {
    for (int i = 1;; ++i) {
      for (int turn = 0; turn < turns; ++turn) {
        policy_.launched(now_);
      }
      policy_.round();
      if (policy_.finished(now_ += took, limits_) == Advice::kMove) {
        return i;
      }
    }
  };
  EXPECT_EQ(rounds(4, 130 * kUs), 16) << "2 ms";
  moves(true);
  moves(false);
  EXPECT_EQ(rounds(4, 130 * kUs), 31) << "4 ms";
  moves(true);
  moves(false);
  EXPECT_EQ(rounds(4, 290 * kUs), 32) << "8 ms, but a quarter of 128 rounds";
  policy_ = {};
  EXPECT_EQ(rounds(1, 130 * kUs), 32);
}

TEST_F(ZeroCopyRounds, LaunchesThatTakeSuchBytesOftenAreAsManyRounds) {
  const auto rounds = [&](std::uint32_t turns, std::uint64_t took) {
    for (int i = 1; i < 100; ++i) {
      for (std::uint32_t turn = 0; turn < turns; ++turn) {
        policy_.launched(now_);
      }
      policy_.round();
      if (policy_.finished(now_ += took, limits_, turns) == Advice::kMove) {
        return i;
      }
    }
    return 0;
  };
  EXPECT_EQ(rounds(16, 1000 * kUs), 2) << "32 launches that have taken such bytes";
  moves(true);
  moves(false);
  EXPECT_EQ(rounds(16, 1000 * kUs), 4) << "64 of them";
  policy_ = {};
  EXPECT_EQ(rounds(100, 3500 * kUs), 2);
  policy_ = {};
  EXPECT_EQ(rounds(16, 500 * kUs), 4) << "2 ms";
}

TEST_F(ZeroCopyRounds, ManyBytesNeedMoreRounds) {
  const auto rounds = [&](std::size_t bytes, int turns, bool contended) {
    policy_ = {};
    for (int i = 1;; ++i) {
      for (int turn = 0; turn < turns; ++turn) {
        policy_.launched(now_);
      }
      policy_.round();
      if (policy_.finished(now_ += 50 * kUs, limits_, 1, {.contended = contended}, {}, bytes) ==
          Advice::kMove) {
        return i;
      }
    }
  };
  EXPECT_EQ(rounds(limits_.few, 1, false), 32);
  EXPECT_EQ(rounds(limits_.few + 1, 1, false), 128);
  EXPECT_EQ(rounds(limits_.few + 1, 2, false), 32) << "much to gain";
  EXPECT_EQ(rounds(limits_.few + 1, 1, true), 32);
}

TEST_F(ZeroCopyRounds, ARoundOfSeveralObjectsIsShared) {
  const auto rounds = [&](std::uint32_t all, int own) {
    policy_ = {};
    for (int i = 1;; ++i) {
      for (int turn = 0; turn < own; ++turn) {
        policy_.launched(now_);
      }
      policy_.round();
      if (policy_.finished(now_ += 200 * kUs, limits_, all, {.turns = all}) == Advice::kMove) {
        return i;
      }
    }
  };
  EXPECT_EQ(rounds(4, 4), 10);
  EXPECT_EQ(rounds(8, 4), 20);
  EXPECT_EQ(rounds(16, 4), 32);
  EXPECT_EQ(rounds(8, 6), 14);
}

TEST_F(ZeroCopyRounds, ARoundTellsHowOftenLaunchesTookTheBytes) {
  EXPECT_EQ(policy_.round(), 1U);
  for (int i = 0; i < 16; ++i) {
    policy_.launched(1000);
  }
  EXPECT_EQ(policy_.round(), 16U);
  EXPECT_EQ(policy_.round(), 1U);
}

TEST_F(ZeroCopyRounds, WhatCannotMoveIsLeftAlone) {
  policy_.stays();
  EXPECT_EQ(roundsUntilMove(25 * kUs, 1000), 0);
}

}  // namespace
}  // namespace gmac
