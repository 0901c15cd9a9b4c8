// SPDX-License-Identifier: Apache-2.0
//
// The kernel's limit of a process's mappings (vm.max_map_count), which the runtime shares with the
// program: when none is left, mmap, malloc and new threads fail.
#ifndef GMAC_OS_MAPPING_BUDGET_H_
#define GMAC_OS_MAPPING_BUDGET_H_

#include <array>
#include <cstddef>
#include <optional>

namespace gmac::os {

// The number of this process's mappings, from the kernel's own table; nothing where that cannot be
// read. `buffer` is for its text. Takes about a microsecond for each mapping; allocates nothing.
// Fault path.
std::optional<std::size_t> countMappings(char* buffer, std::size_t bytes) noexcept;

// The number of mappings that the runtime may take. Its owner counts those that it has (`own`). The
// rest of the process's mappings are counted in the kernel's table, seldom: when the runtime could
// have taken half of those that were free at the last count, and when it has changed its own so
// often that a count is cheap beside that. Not thread-safe. Fault path.
class MappingBudget {
 public:
  // `limit`: of the process; 0: the kernel's.
  explicit MappingBudget(std::size_t limit = 0);

  // Whether the runtime may have `more` mappings than `own`. It may always have up to kGuaranteed.
  bool allows(std::size_t own, std::size_t more) noexcept;
  // Call when the owner has taken one, even if it has given one back since.
  void taken() noexcept { ++takenSinceCount_; }

  std::size_t limit() const noexcept { return limit_; }
  // The mappings that stay free for the program: a tenth of the limit, and at least 4,000.
  std::size_t reserve() const noexcept { return reserve_; }
  // The process's mappings at the last count, plus those that the runtime has taken since.
  std::size_t estimate(std::size_t own) const noexcept;

  // So few need no count and cause no error.
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
