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
//  - Once split, the balance counts in faults. The first block that is opened of a group of 2 MiB,
//    which is what one block is by default, has saved kSaved: that is what fetching the rest would
//    have taken. So has the first one that becomes dirty, whose group would have been flushed. Each
//    further one has cost a fault; and if all of the group is opened in the end, nothing was saved.
//    What is opened ahead of the CPU (read_back_places.h) takes no fault.
//  - At first kProbes groups alone are opened block by block: the pages of others stay in one
//    mapping, which the system may have in one entry of the page table. All are once the probes'
//    next round begins with a balance that is not negative. Where that does not come while
//    kPatience others are opened, as the program goes on through its data, the balance decides
//    then; or there are other probes.
//  - When the balance falls below -kMostLost, of probes -kMostLostByProbes, the blocks are to be
//    joined again, and accesses open whole groups until they are: until the next wait at whose end
//    nothing of the object is open.
//
// The bound: a split that was wrong has cost the faults of the probes, or, if the program changes
// later, kMostSaved + kMostLost, until that is noticed, and from then to such a wait one for each
// block that the CPU overwrites or makes dirty. One that was right saves nothing for the first
// kPatience groups. The n-th comes after at least `least` << n blocks that were opened as a whole
// for few bytes as far as anybody knew, and saw as many windows outgrown.
#ifndef GMAC_COHERENCE_SPLIT_POLICY_H_
#define GMAC_COHERENCE_SPLIT_POLICY_H_

#include <algorithm>
#include <array>
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
  static constexpr std::int32_t kMostLostByProbes = 8;
  static constexpr std::size_t kProbes = 2;
  static constexpr std::uint32_t kPatience = 512;

  // No change is ever wanted.
  SplitPolicy() = default;
  explicit SplitPolicy(std::uint32_t least) : least_(least) {}

  // An access far from the window of a block opens the whole of it.
  void outgrown() { far_ = std::min<std::uint64_t>(far_ + 1, std::uint64_t{least_} << kMostWrong); }
  // Of split blocks: an access opens one of a group, by its number, the first that is open there or
  // not. Whether it gets that block alone; else it gets the group.
  bool opensAlone(std::size_t group, bool first) {
    if (dense_) {
      return false;
    }
    if (probing_) {
      if (isProbe(group)) {
        probing_ = !first || balance_ < 0;
      } else if (first && count_ < kProbes) {
        probes_[count_++] = group;
        others_ = 0;
      } else if (++others_ < kPatience) {
        return false;
      } else {
        probing_ = balance_ < 0;
        count_ = 0;
        return !probing_;
      }
    }
    add(first ? kSaved : -1);
    return !dense_;
  }
  // The same for one that is opened ahead of the CPU.
  void opensAhead(std::size_t group, bool first) {
    if (first) {
      (void)opensAlone(group, true);
    }
  }
  // The CPU makes a block of a group dirty, the first one or not.
  void dirties(std::size_t group, bool first) {
    if (!probing_ || isProbe(group)) {
      add(first ? kSaved : -1);
    }
  }
  // What else so many faults have come to.
  void costs(std::size_t faults) {
    add(-static_cast<std::int32_t>(std::min<std::size_t>(faults, kMostSaved + kMostLost + 1)));
  }

  Advice advice() const {
    return isSplit() ? (dense_ ? Advice::kJoin : Advice::kStay)
                     : (least_ != 0 && far_ >= std::uint64_t{least_} << wrong_ ? Advice::kSplit
                                                                               : Advice::kStay);
  }
  bool isSplit() const { return before_ != 0; }
  // How large the blocks were before.
  std::size_t before() const { return before_; }

  void split(std::size_t blockBytesBefore) {
    *this = SplitPolicy(least_, wrong_);
    before_ = blockBytesBefore;
    probing_ = true;
  }
  void joined() { *this = SplitPolicy(least_, std::min(wrong_ + (isSplit() ? 1 : 0), kMostWrong)); }

 private:
  static constexpr std::uint32_t kMostWrong = 20;

  SplitPolicy(std::uint32_t least, std::uint32_t wrong) : least_(least), wrong_(wrong) {}

  bool isProbe(std::size_t group) const {
    const auto end = probes_.begin() + count_;
    return std::find(probes_.begin(), end, group) != end;
  }
  void add(std::int32_t faults) {
    balance_ = std::clamp(balance_ + faults, -kMostSaved, kMostSaved);
    dense_ = dense_ || balance_ < (probing_ ? -kMostLostByProbes : -kMostLost);
  }

  std::uint32_t least_ = 0;   // evidence for the first split; 0: there is none
  std::uint32_t wrong_ = 0;   // times that they were joined again
  std::size_t before_ = 0;    // 0: the blocks are not split
  std::uint64_t far_ = 0;     // evidence since they were joined
  std::int32_t balance_ = 0;  // faults saved, since they were split
  bool dense_ = false;
  bool probing_ = false;
  std::array<std::size_t, kProbes> probes_{};
  std::size_t count_ = 0;     // of them
  std::uint32_t others_ = 0;  // groups that were opened whole since the newest probe was chosen
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_SPLIT_POLICY_H_
