// SPDX-License-Identifier: Apache-2.0
//
// The kernel's limit of a process's mappings (vm.max_map_count), which the runtime shares with the
// program: whoever takes the last of them leaves none for mmap, malloc and new threads.
#ifndef GMAC_OS_MAPPING_BUDGET_H_
#define GMAC_OS_MAPPING_BUDGET_H_

#include <array>
#include <cstddef>
#include <optional>

namespace gmac::os {

// How many mappings this process has, from the kernel's own table; nothing where that cannot be
// read. `buffer` is for its text. Takes time in proportion to the answer, about a microsecond each;
// allocates nothing. Fault path.
std::optional<std::size_t> countMappings(char* buffer, std::size_t bytes) noexcept;

// Tells how many mappings the runtime may take. Its owner counts those that it has (`own`); what
// the rest of the process has is counted in the kernel's table, seldom: when the runtime could have
// taken half of what was free at the last count, and when it has changed its own so often that the
// count costs nothing beside that. Not thread-safe. Fault path.
class MappingBudget {
 public:
  // `limit`: of the process; 0: the kernel's.
  explicit MappingBudget(std::size_t limit = 0);

  // Whether the runtime may have `more` mappings than `own`. Up to kGuaranteed are always its.
  bool allows(std::size_t own, std::size_t more) noexcept;
  // The owner has taken one, which it may have given back since.
  void taken() noexcept { ++takenSinceCount_; }

  std::size_t limit() const noexcept { return limit_; }
  // What stays free for the program: a tenth of the limit, and at least 4,000.
  std::size_t reserve() const noexcept { return reserve_; }
  // What the process had when it was counted last, with what the runtime has taken since.
  std::size_t estimate(std::size_t own) const noexcept;

  // So few are never worth a count, nor an error.
  static constexpr std::size_t kGuaranteed = 1000;

 private:
  void count(std::size_t own) noexcept;
  bool countIsOld(std::size_t own) const noexcept;

  std::size_t limit_;
  std::size_t reserve_;
  std::size_t counted_ = 0;     // mappings of the process, at the last count
  std::size_t ownAtCount_ = 0;  // of them, the runtime's
  std::size_t takenSinceCount_ = 0;
  bool everCounted_ = false;
  std::array<char, 4096> buffer_;
};

}  // namespace gmac::os

#endif  // GMAC_OS_MAPPING_BUDGET_H_
