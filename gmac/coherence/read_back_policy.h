// SPDX-License-Identifier: Apache-2.0
//
// Which bytes of a block the CPU is about to read again (of which blocks: read_back_places.h).
//
// A program that launches a kernel, waits, and looks at the same few bytes, again and again, meets
// a fault and a copy after each wait. The bytes can be copied right after the kernel instead, while
// the program waits for it, and be opened at the end of the wait. So this learns from the rounds of
// a block, which end when a call takes what the CPU had:
//
//  - The first bytes that were fetched in a round are its bytes. After two rounds with the same
//    bytes they are read back at each wait.
//  - What is opened without a fault tells nothing. So the first time the bytes are copied and left
//    closed: the fault that opens them, without a copy of its own, confirms the guess. After n
//    confirmations in a row they are opened at the end of 2^n - 1 waits, at most seven, before the
//    next such check; also for writing, if they were written in the round of the last check.
//  - Where bytes have one copy (zero_copy_policy.h) nothing is copied. There may be more waits
//    between two checks then, and any number of bytes.
//  - Where no fault comes, the guess was wrong: twice as many equal rounds are needed before the
//    next one. A check that succeeds where checks are rarest halves that again.
//
// The bound: a wrong guess has cost a copy of at most kMostBytes, and one more for each wait since
// the last check, which are at most one more than the rounds that were right before. The n-th wrong
// one comes after at least 2^n rounds in which the CPU did fetch those bytes, unless sixteen rounds
// were right for each that does not count.
#ifndef GMAC_COHERENCE_READ_BACK_POLICY_H_
#define GMAC_COHERENCE_READ_BACK_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "gmac/coherence/block_index.h"

namespace gmac {

// Of one block at a time; guarded like its object. Constant time, allocates nothing.
class ReadBackPolicy {
 public:
  // Larger copies gain little by an early start.
  static constexpr std::size_t kMostBytes = std::size_t{256} << 10;
  static constexpr std::uint32_t kMostUnchecked = 7;  // waits between two checks
  static constexpr std::uint32_t kMostUncheckedOfOneCopy = 255;

  ReadBackPolicy() = default;
  static ReadBackPolicy ofOneCopy() {
    ReadBackPolicy policy;
    policy.limit_ = kMostUncheckedOfOneCopy;
    policy.mostBytes_ = SIZE_MAX;
    return policy;
  }
  void forget() {
    ReadBackPolicy forgets;
    forgets.limit_ = limit_;
    forgets.mostBytes_ = mostBytes_;
    *this = forgets;
  }
  // The next object in the memory begins where this one has ended; `open`: with what was open.
  ReadBackPolicy forNext(bool open) const {
    ReadBackPolicy next = *this;
    if (next.copied_) {
      next.wasWrong();
    }
    next.inRound_ = inRound_ && open;
    return next;
  }

  // The bytes to copy at a wait, and how far to open them when the wait is over.
  struct Guess {
    BlockIndex block{};
    ByteRange bytes;
    bool write = false;
    bool open = true;
  };

  // The CPU has fetched bytes of a block that was Invalid; has written a block. `good`: if they
  // were copied ahead, no call has written them since.
  void fetched(BlockIndex block, ByteRange bytes, bool good = true) {
    if (inRound_) {
      return;
    }
    inRound_ = true;
    if (copied_ && !good) {
      wasWrong();
    }
    if (block != block_ || bytes != bytes_) {
      if (copied_) {
        wasWrong();
      }
      block_ = block;
      bytes_ = bytes;
      equalRounds_ = 0;
    } else if (copied_) {
      wrongGuesses_ -= wrongGuesses_ > 0 && mostUnchecked_ == limit_ ? 1 : 0;
      mostUnchecked_ = std::min(2 * mostUnchecked_ + 1, limit_);
    }
    copied_ = wrote_ = false;
  }
  // The CPU has not come for long: the next round is the first one, perhaps of another block.
  void restart() {
    if (copied_) {
      wasWrong();
    }
    inRound_ = false;
    equalRounds_ = 0;
  }
  void wrote(BlockIndex block) { wrote_ = wrote_ || block == block_; }
  // Bytes that were opened ahead, as guess() said, count for this round.
  void opened() {
    inRound_ = true;
    copied_ = false;
    wrote_ = writes_;
  }
  // A call has taken the block.
  void closed(BlockIndex block) {
    if (inRound_ && block == block_) {
      inRound_ = false;
      writes_ = wrote_;
      equalRounds_ = std::min(equalRounds_ + 1, kMostRounds);
    }
  }
  // Whether the CPU comes for the same bytes again and again; and whether guesses are made.
  bool repeats() const { return equalRounds_ >= (kLeastRounds << wrongGuesses_); }
  bool guesses() const { return repeats() && bytes_.length() <= mostBytes_; }
  // The block of these bytes; whether it is this one.
  BlockIndex block() const { return block_; }
  bool isFor(BlockIndex block) const { return block == block_ && !bytes_.empty(); }
  ByteRange bytes() const { return bytes_; }
  // The program waits, and the block is Invalid: what to copy. No call has been made since if the
  // last copy is still good: then nobody asks.
  std::optional<Guess> guess() {
    if (copied_) {
      wasWrong();
    }
    if (!guesses()) {
      return std::nullopt;
    }
    inRound_ = false;
    copied_ = true;
    const bool check = unchecked_ >= mostUnchecked_;
    unchecked_ = check ? 0 : unchecked_ + 1;
    return Guess{.block = block_, .bytes = bytes_, .write = writes_, .open = !check};
  }
  // They could not be copied.
  void notCopied() { copied_ = false; }

 private:
  static constexpr std::uint32_t kLeastRounds = 2;
  static constexpr std::uint32_t kMostWrong = 20;
  static constexpr std::uint32_t kMostRounds = kLeastRounds << kMostWrong;

  void wasWrong() {
    copied_ = false;
    equalRounds_ = 0;
    unchecked_ = mostUnchecked_ = 0;
    wrongGuesses_ = std::min(wrongGuesses_ + 1, kMostWrong);
  }

  std::uint32_t limit_ = kMostUnchecked;  // of mostUnchecked_
  std::size_t mostBytes_ = kMostBytes;    // that are guessed
  BlockIndex block_{};
  ByteRange bytes_;
  std::uint32_t equalRounds_ = 0;
  std::uint32_t wrongGuesses_ = 0;  // less those that were confirmed
  std::uint32_t unchecked_ = 0;     // waits since the last check
  std::uint32_t mostUnchecked_ = 0;
  bool inRound_ = false;  // bytes were fetched, or opened ahead, and no call has taken them yet
  bool copied_ = false;   // ahead, and nobody has come for them yet
  bool wrote_ = false;    // in this round; writes_: in the last one
  bool writes_ = false;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_READ_BACK_POLICY_H_
