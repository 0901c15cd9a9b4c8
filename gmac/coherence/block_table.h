// SPDX-License-Identifier: Apache-2.0
//
// The blocks of an object. An object may have millions of them, of which a
// program uses few: they lie in groups, and those of a group are made when one
// of them is asked for. Until then all are at rest in one state, and cost one
// entry of the group.
#ifndef GMAC_COHERENCE_BLOCK_TABLE_H_
#define GMAC_COHERENCE_BLOCK_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "gmac/protocols/block.h"

namespace gmac {

// Owned by its object and guarded like that. Asking for a block allocates
// nothing; the fault handler does it.
class BlockTable {
 public:
  static constexpr std::size_t kGroup = 512;

  // Throws std::bad_alloc.
  BlockTable(Object* owner, std::size_t count, State rest)
      : owner_(owner),
        count_(count),
        // Fresh pages of the system's: those of blocks that are never made are
        // never touched.
        memory_(static_cast<Block*>(std::calloc(count, sizeof(Block)))),
        groups_((count + kGroup - 1) / kGroup, Group{rest, false, 0}) {
    if (memory_ == nullptr) {
      throw std::bad_alloc();
    }
  }
  ~BlockTable() {
    forEachWritable([](Block& block) { std::destroy_at(&block); });
  }
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  const Block& operator[](std::size_t index) const { return writable(index); }
  std::size_t indexOf(const Block& block) const {
    return static_cast<std::size_t>(&block - memory_.get());
  }

  // Where the group of a block begins and ends.
  static std::size_t groupBegin(std::size_t index) { return index / kGroup * kGroup; }
  std::size_t groupEnd(std::size_t index) const {
    return std::min((index / kGroup + 1) * kGroup, count_);
  }
  bool made(std::size_t index) const { return groups_[index / kGroup].made; }
  // The state of a group that is not made.
  State rest(std::size_t index) const { return groups_[index / kGroup].rest; }
  // Whether all blocks of a group are Invalid.
  bool closed(std::size_t index) const {
    const Group& group = groups_[index / kGroup];
    return group.made ? group.open == 0 : group.rest == State::kInvalid;
  }

  template <typename Function>
  void forEachMade(Function function) const {
    forEachWritable([&](const Block& block) { function(block); });
  }

  // For the core, which alone writes blocks: their object hands the table to nobody else.
  Block& writable(std::size_t index) const {
    const std::size_t group = index / kGroup;
    if (!groups_[group].made) [[unlikely]] {
      make(group);
    }
    return memory_[index];
  }
  void setRest(std::size_t index, State state) { groups_[index / kGroup].rest = state; }
  // A made block's state has changed.
  void changed(const Block& block, State before) {
    std::uint32_t& open = groups_[indexOf(block) / kGroup].open;
    open -= before != State::kInvalid ? 1 : 0;
    open += block.state != State::kInvalid ? 1 : 0;
  }
  // The table has so many new blocks, all Invalid, in place of its own, which are at rest, too, in
  // no list, and not asked for again. Throws std::bad_alloc: nothing has changed then.
  void remake(std::size_t count) {
    BlockTable other(owner_, count, State::kInvalid);
    std::swap(count_, other.count_);
    std::swap(memory_, other.memory_);
    std::swap(groups_, other.groups_);
  }
  // Only the first `count` blocks are left, all of them made, and their states
  // may have changed.
  void shrink(std::size_t count) {
    count_ = count;
    for (Group& group : groups_) {
      group.open = 0;
    }
    for (std::size_t i = 0; i < count; ++i) {
      changed(memory_[i], State::kInvalid);
    }
  }

  template <typename Function>
  void forEachWritable(Function function) const {
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      if (groups_[group].made) {
        for (std::size_t i = group * kGroup; i < groupEnd(group * kGroup); ++i) {
          function(memory_[i]);
        }
      }
    }
  }

 private:
  struct Group {
    State rest;
    bool made;
    std::uint32_t open;  // blocks that are not Invalid; of a made group
  };
  struct Free {
    void operator()(Block* memory) const { std::free(memory); }
  };

  void make(std::size_t number) const {
    Group& group = groups_[number];
    for (std::size_t i = number * kGroup; i < groupEnd(number * kGroup); ++i) {
      Block* const block = std::construct_at(&memory_[i]);
      block->owner = owner_;
      block->state = group.rest;
      group.open += group.rest != State::kInvalid ? 1 : 0;
    }
    group.made = true;
  }

  Object* const owner_;
  std::size_t count_;
  std::unique_ptr<Block[], Free> memory_;
  mutable std::vector<Group> groups_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_BLOCK_TABLE_H_
