// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_ABI_HANDLE_H_
#define GMAC_MPI_ABI_HANDLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace gmac::mpi::GMAC_MPI_ABI {

// A handle of MPI's, which is an address or a number, as a key.
template <typename Handle>
std::uint64_t keyOf(Handle handle) {
  static_assert(sizeof handle <= sizeof(std::uint64_t));
  std::uint64_t key = 0;
  std::memcpy(&key, &handle, sizeof handle);
  return key;
}

// The last answers about handles; each is valid while `changes` (not 0) keeps its value of then.
// Not thread-safe.
template <typename Answer>
class RecentAnswers {
 public:
  // NULL: not known, or not any more. Valid until the next keep().
  const Answer* find(std::uint64_t key, std::uint64_t changes) const {
    const Slot& slot = slots_[slotOf(key)];
    return slot.key == key && slot.changes == changes ? &slot.answer : nullptr;
  }
  void keep(std::uint64_t key, std::uint64_t changes, Answer answer) {
    Slot& slot = slots_[slotOf(key)];
    slot.key = key;
    slot.changes = changes;
    slot.answer = std::move(answer);
  }
  void clear() { slots_ = {}; }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint64_t changes = 0;
    Answer answer{};
  };
  static constexpr std::size_t kSlots = 16;
  // Handles are addresses of aligned objects, or numbers whose lowest byte tells them apart.
  static std::size_t slotOf(std::uint64_t key) { return (key ^ (key >> 6) ^ (key >> 10)) % kSlots; }
  std::array<Slot, kSlots> slots_{};
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_HANDLE_H_
