// SPDX-License-Identifier: Apache-2.0
//
// Windows over shared objects and device memory. MPI's window is over a public copy in private
// memory; the two copies are reconciled when this process synchronises the window. This is the
// separate memory model (MPI 4.0, sections 12.4 and 12.7, rules 5 and 6).
#ifndef GMAC_MPI_ABI_SEPARATE_WINDOW_H_
#define GMAC_MPI_ABI_SEPARATE_WINDOW_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mpi/abi/memory.h"
#include "mpi/public_copy.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// Thread-safe. Its lock is held while bytes are copied, which waits for kernels, and never while
// MPI is called.
class SeparateWindow {
 public:
  // Makes the public copy of `bytes` (1 or more) at `base`, all of which must be shared or in
  // device memory. `unit`: the displacement unit. `rank`: this process's rank in the window. NULL:
  // failed, and *reason says why.
  static std::shared_ptr<SeparateWindow> make(void* base, std::size_t bytes, MPI_Aint unit,
                                              int rank, std::string* reason);

  void* base() const { return base_; }
  // The address for MPI in place of base().
  void* publicBase() const { return public_.memory(); }
  int rank() const { return rank_; }
  // The address of a displacement in the application's memory.
  void* addressOf(MPI_Aint place) const { return shifted(base_, MPI_Count{place} * unit_); }
  // Whether all bytes of a span, relative to `buffer`, are in the window.
  bool contains(const void* buffer, const Span& span) const;
  // The address in the public copy of a byte at `address` in the window.
  void* publicAddress(const void* address) const;

  // Copies to the public copy what this process and its kernels have written since the last time:
  // in all of the window, or in a part. Ordered after all kernel calls made before. True if the
  // memory was freed: there is nothing to publish. False: failed, and *reason says why.
  bool publish(std::string* reason);
  bool publish(const void* buffer, const Span& span, std::string* reason);
  // Copies to the application's memory what other processes have written to the public copy. False:
  // failed. It also fails, once for the same bytes, if the memory was freed and others have written
  // there since.
  bool collect(std::string* reason);
  bool collect(const void* buffer, const Span& span, std::string* reason);
  // Whether the memory still exists, or has been freed and memory of that kind lies there again.
  bool lives() const;

  // noteOwnTarget(): this process begins an operation with itself as the target. takeOwnTarget():
  // whether it has done so since the last takeOwnTarget().
  void noteOwnTarget() { ownTarget_.store(true, std::memory_order_relaxed); }
  bool takeOwnTarget() { return ownTarget_.exchange(false, std::memory_order_relaxed); }
  // Whether the last synchronisation published everything. Only then may the next one skip
  // publishing for MPI_MODE_NOSTORE.
  std::atomic<bool> lastPublished{true};
  // The application asserts that nobody writes before the next synchronisation (MPI_MODE_NOPUT).
  std::atomic<bool> noPuts{false};

 private:
  SeparateWindow(void* base, std::size_t bytes, MPI_Aint unit, int rank, bool onDevice);

  struct Part {
    std::size_t first;
    std::size_t bytes;
  };
  Part partOf(const void* buffer, const Span& span) const;
  // Reads the application's copy piece by piece, and calls `use(first, values)` for each.
  template <typename Use>
  bool readAll(Part part, const Use& use, std::string* reason);
  bool publishPart(Part part, std::string* reason);
  bool collectPart(Part part, std::string* reason);
  // Whether the engine reaches the application's memory; else the driver copies. False: failed.
  bool open(bool* reached, std::string* reason) const;
  bool read(std::size_t first, std::span<std::byte> to, std::string* reason) const;
  bool write(std::span<const ByteRun> runs, const std::byte* values, std::string* reason) const;

  std::byte* const base_;
  const MPI_Aint unit_;
  const int rank_;
  const bool onDevice_;  // a device's, and no shared object
  std::atomic<bool> ownTarget_{false};
  std::mutex lock_;
  PublicCopy public_;  // guarded by lock_, but for the bytes that MPI writes
};
using SeparateWindowPtr = std::shared_ptr<SeparateWindow>;

// The table of such windows, by MPI's handles. Thread-safe.
namespace separate_windows {

namespace internal {
extern std::atomic<std::size_t> count;
SeparateWindowPtr findSlow(MPI_Win window);
}  // namespace internal

void add(MPI_Win window, SeparateWindowPtr separate);
// Both return NULL for any other window; take() also removes the entry.
inline SeparateWindowPtr find(MPI_Win window) {
  return internal::count.load(std::memory_order_acquire) != 0 ? internal::findSlow(window)
                                                              : nullptr;
}
SeparateWindowPtr take(MPI_Win window);
std::vector<SeparateWindowPtr> all();

}  // namespace separate_windows
}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_SEPARATE_WINDOW_H_
