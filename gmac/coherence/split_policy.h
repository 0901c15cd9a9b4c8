// SPDX-License-Identifier: Apache-2.0
//
// Whether the blocks of an object should be small ones.
//
// The CPU gets a window of a large block, and all of the block once it touches another place of it.
// A program that touches two words of each block between two calls moves 2 MiB for them. Blocks as
// large as a window move 64 KiB for each, but a program that uses all of its data pays a fault for
// each of them until that shows (dense_use.h). So the blocks of an object are split on evidence,
// and joined again when small ones cost more than they save:
//
//  - Evidence is a block that had to be opened as a whole for an access that was more than a window
//    away from the open one: `least` << n of them, where n counts the times that the blocks were
//    joined again. (window_policy.h tries the fewer windows, the more of them are outgrown.)
//  - Once split, the balance counts in faults. The first block that is opened of a group, which is
//    what one large block was, has saved kSaved: that is what copying the rest would have taken.
//    Each further one has cost a fault, and so has each block that the CPU makes dirty after it
//    was open for reading; and if all of the group is opened in the end, nothing was saved.
//  - When the balance falls below -kMostLost the blocks are to be joined again, and accesses open
//    whole groups until they are.
//
// The bound: a split that was wrong has cost, net, kMostLost + kMostSaved faults and those of one
// group; the n-th comes after at least `least` << n blocks that were opened as a whole for few
// bytes as far as anybody knew, and saw as many windows outgrown.
#ifndef GMAC_COHERENCE_SPLIT_POLICY_H_
#define GMAC_COHERENCE_SPLIT_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gmac {

// Of one object; guarded like that. Constant time, allocates nothing.
class SplitPolicy {
 public:
  enum class Advice : std::uint8_t { kStay, kSplit, kJoin };

  static constexpr std::int32_t kSaved = 6;
  static constexpr std::int32_t kMostSaved = 64;
  static constexpr std::int32_t kMostLost = 32;

  // No change is ever wanted.
  SplitPolicy() = default;
  explicit SplitPolicy(std::uint32_t least) : least_(least) {}

  // An access far from the window of a block opens the whole of it.
  void outgrown() { far_ = std::min<std::uint64_t>(far_ + 1, std::uint64_t{least_} << kMostWrong); }
  // Of split blocks: an access opens one of a group, the first of them or not; or all of a group
  // at last; or makes one dirty.
  void opens(bool first) { add(first ? kSaved : -1); }
  void opensGroup() { add(-kSaved); }
  void dirties() { add(-1); }

  Advice advice() const {
    return isSplit() ? (isDense() ? Advice::kJoin : Advice::kStay)
                     : (least_ != 0 && far_ >= std::uint64_t{least_} << wrong_ ? Advice::kSplit
                                                                               : Advice::kStay);
  }
  bool isSplit() const { return before_ != 0; }
  // Whether accesses are to open whole groups.
  bool isDense() const { return balance_ < -kMostLost; }
  // How large the blocks were before.
  std::size_t before() const { return before_; }

  void split(std::size_t blockBytesBefore) {
    before_ = blockBytesBefore;
    balance_ = 0;
    far_ = 0;
  }
  void joined() {
    wrong_ += isDense() && wrong_ < kMostWrong ? 1 : 0;
    before_ = 0;
    balance_ = 0;
    far_ = 0;
  }

 private:
  static constexpr std::uint32_t kMostWrong = 20;

  void add(std::int32_t faults) {
    balance_ = isDense() ? balance_ : std::min(balance_ + faults, kMostSaved);
  }

  std::uint32_t least_ = 0;   // evidence for the first split; 0: there is none
  std::size_t before_ = 0;    // 0: the blocks are not split
  std::uint64_t far_ = 0;     // evidence since they were joined
  std::uint32_t wrong_ = 0;   // times that they were joined again
  std::int32_t balance_ = 0;  // faults saved, since they were split
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_SPLIT_POLICY_H_
