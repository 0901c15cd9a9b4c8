// SPDX-License-Identifier: Apache-2.0
//
// Which accesses get a window of a block in place of the block.
//
// A kernel and the CPU that pass a few bytes to and fro need not move a block each way: a window
// moves 64 KiB where a block moves 2 MiB. But an access tells only where it begins. A window that
// the CPU outgrows before a call takes it has cost a fault and a small copy for nothing, since the
// rest of the block is fetched then. So each object learns from its own windows:
//
//  - A window that was enough when a call took it earns a credit. A window takes a credit while it
//    is open, and brings it back unless it is outgrown: where windows are enough, twice as many may
//    be open after each call.
//  - Without a credit, one window at a time is tried. If it is outgrown, 2^n - 1 blocks are opened
//    as a whole before the next trial, where n counts the trials that were outgrown less those that
//    were enough, and is never negative.
//  - Objects of which nothing is known yet take turns in that: n and the pause are one for the
//    first trials of all, so that a program of many short-lived objects does not pay for each.
//  - An access next to a block that was opened as a whole since the object was last closed
//    continues a run in order, and gets the block. So does one next to a window that was outgrown.
//
// The bound. Let E be an object's windows that were enough, F those that were outgrown, and B the
// blocks that were opened as a whole by accesses that continued no run. Each outgrown window that
// was no trial has cost a credit, and E have been earned. n reaches a value m for the first time
// after at least 2^(m-1) - 1 blocks opened as a whole, so it never exceeds log2(B + 1) + 1; and the
// trials that were outgrown are at most those that were enough, and n. Therefore
//
//   F <= 2 E + log2(B + 1) + 1
//
// whatever the program does, and of all objects no more have an outgrown first trial than such a
// sum allows: a program that uses whole blocks pays a few faults and small copies more, and any
// other has saved half as many copies of blocks.
//
// In the same way objects learn whether one page is enough of what an access opens, where that is
// 64 KiB or less: a window, or a small block. All of it is copied, but changing the protection of
// sixteen pages takes three times as long as that of one, at each opening and each closing. A page
// that the CPU outgrows has cost a fault, without a copy: about what two that were enough save. So
// it takes two of them to earn a credit.
#ifndef GMAC_COHERENCE_WINDOW_POLICY_H_
#define GMAC_COHERENCE_WINDOW_POLICY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "gmac/coherence/block_index.h"

namespace gmac {

// When to try a window next.
class WindowTrials {
 public:
  bool due() const { return pause_ == 0; }
  // A trial was outgrown; was enough; a block was opened as a whole in place of one.
  void outgrown() {
    outgrown_ = std::min(outgrown_ + 1, kMaxOutgrown);
    pause_ = (std::uint32_t{1} << outgrown_) - 1;
  }
  void wasEnough() { outgrown_ -= outgrown_ > 0 ? 1 : 0; }
  void passed() { pause_ -= pause_ > 0 ? 1 : 0; }

 private:
  static constexpr std::uint32_t kMaxOutgrown = 31;

  std::uint32_t outgrown_ = 0;  // less those that were enough
  std::uint32_t pause_ = 0;     // blocks to open as a whole before the next
};

// Of one object; guarded like that. Constant time, allocates nothing.
class WindowPolicy {
 public:
  // More credits would only be lost when the program changes.
  static constexpr std::uint32_t kMaxCredit = 256;

  WindowPolicy() = default;
  // `first`: of all objects' first trials; outlives the policy. `perCredit`: so many windows that
  // were enough earn a credit.
  explicit WindowPolicy(WindowTrials* first, std::uint32_t perCredit = 1)
      : first_(first), perCredit_(perCredit) {}
  // Nothing is known any more: the object's blocks are others now.
  void restart() { *this = WindowPolicy(first_, perCredit_); }

  // Whether an access to an Invalid block, for which one window suffices, gets that alone.
  bool wants(BlockIndex index) const {
    return refused_ == 0 && !continuesRun(index) &&
           (credit_ > 0 || (!trial_ && (isKnown() ? trials_.due() : first_->due())));
  }

  // A window of the block was opened; a call took it; or the CPU has needed more of the block.
  void opened(BlockIndex index) {
    if (credit_ > 0) {
      --credit_;
    } else {
      trial_ = index;
    }
  }
  void wasEnough(BlockIndex index) {
    const bool wasTrial = endTrial(index, [](WindowTrials& trials) { trials.wasEnough(); });
    ++enough_;
    const std::uint32_t earned = enough_ % perCredit_ == 0 ? 1 : 0;
    credit_ = std::min(credit_ + earned + (wasTrial ? 0 : 1), kMaxCredit);
  }
  void outgrown(BlockIndex index) {
    (void)endTrial(index, [](WindowTrials& trials) { trials.outgrown(); });
    noteRun({index, index + 1});
  }

  // An access to `index` has opened blocks as a whole.
  void openedWhole(BlockRange blocks, BlockIndex index) {
    if (!continuesRun(index) && refused_ > 0) {
      --refused_;
    } else if (!continuesRun(index)) {
      (isKnown() ? trials_ : *first_).passed();
    }
    noteRun(blocks);
  }
  // All blocks were closed: no run goes on.
  void closed() { runs_ = {}; }
  // The system has no mapping left for a window: none is wanted for some time.
  void refused() {
    credit_ = 0;
    refused_ = kPauseOfRefused;
  }

 private:
  static constexpr std::uint32_t kPauseOfRefused = 1000;

  bool isKnown() const { return known_ || first_ == nullptr; }

  bool continuesRun(BlockIndex index) const {
    return std::any_of(runs_.begin(), runs_.end(), [&](const BlockRange& run) {
      return !run.empty() && index + 1 >= run.begin && index <= run.end;
    });
  }
  void noteRun(BlockRange blocks) {
    runs_[oldestRun_] = blocks;
    oldestRun_ = (oldestRun_ + 1) % runs_.size();
  }
  // Whether a window was a trial; its outcome is `note`d.
  template <typename Note>
  bool endTrial(BlockIndex index, Note note) {
    if (trial_ != index) {
      return false;
    }
    trial_.reset();
    if (!isKnown()) {
      note(*first_);
    }
    note(trials_);
    known_ = true;
    return true;
  }

  WindowTrials* first_ = nullptr;
  bool known_ = false;  // the first trial has come out
  WindowTrials trials_;
  std::uint32_t perCredit_ = 1;
  std::uint32_t enough_ = 0;
  std::uint32_t refused_ = 0;  // so many blocks more are opened as a whole
  std::uint32_t credit_ = 0;
  std::optional<BlockIndex> trial_;  // the block whose window was opened without a credit
  std::array<BlockRange, 4> runs_;   // what was opened as a whole
  std::uint8_t oldestRun_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_WINDOW_POLICY_H_
