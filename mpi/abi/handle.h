// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_ABI_HANDLE_H_
#define GMAC_MPI_ABI_HANDLE_H_

#include <cstdint>
#include <cstring>

namespace gmac::mpi::GMAC_MPI_ABI {

// A handle of MPI's, which is an address or a number, as a key.
template <typename Handle>
std::uint64_t keyOf(Handle handle) {
  static_assert(sizeof handle <= sizeof(std::uint64_t));
  std::uint64_t key = 0;
  std::memcpy(&key, &handle, sizeof handle);
  return key;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_HANDLE_H_
