// SPDX-License-Identifier: Apache-2.0
//
// Windows over shared objects and memory of devices. MPI's window is over a public copy in private
// memory, and the two copies are brought together where this process synchronises the window: the
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

// Thread-safe. Its lock is kept while bytes are copied, which waits for kernels, and never while
// MPI is called.
class SeparateWindow {
 public:
  // Over `bytes` (1 or more) at `base`, of which the whole is shared or a device's. `unit`: of
  // displacements. `rank`: this process's in the window. NULL: failed, and *reason says why.
  static std::shared_ptr<SeparateWindow> make(void* base, std::size_t bytes, MPI_Aint unit,
                                              int rank, std::string* reason);

  void* base() const { return base_; }
  // For MPI, in place of base().
  void* publicBase() const { return public_.memory(); }
  int rank() const { return rank_; }
  // Of a displacement, in the application's memory.
  void* addressOf(MPI_Aint place) const { return shifted(base_, MPI_Count{place} * unit_); }
  // Whether all bytes of a span from an address are the window's.
  bool contains(const void* buffer, const Span& span) const;
  // Where the public copy has what the application has at an address in the window.
  void* publicAddress(const void* address) const;

  // What this process and its kernels have written since becomes public: all, or a part of the
  // window. Ordered after all kernel calls made before. True where the memory was freed: there is
  // nothing to publish. False: failed, and *reason says why.
  bool publish(std::string* reason);
  bool publish(const void* buffer, const Span& span, std::string* reason);
  // What others have written to the public copy goes to the application's. False: failed; also
  // where the memory was freed and others have written there since: once for those bytes.
  bool collect(std::string* reason);
  bool collect(const void* buffer, const Span& span, std::string* reason);
  // Whether the application has not freed its memory (or has memory of that kind there again).
  bool lives() const;

  // This process begins an operation on its own part of the window; and whether it has since the
  // last time that this was asked.
  void noteOwnTarget() { ownTarget_.store(true, std::memory_order_relaxed); }
  bool takeOwnTarget() { return ownTarget_.exchange(false, std::memory_order_relaxed); }
  // Whether the last synchronisation published everything: then the application may say of the next
  // one that there is nothing new (MPI_MODE_NOSTORE).
  std::atomic<bool> lastPublished{true};
  // Others write nothing before the next synchronisation (MPI_MODE_NOPUT).
  std::atomic<bool> noPuts{false};

 private:
  SeparateWindow(void* base, std::size_t bytes, MPI_Aint unit, int rank, bool onDevice);

  struct Part {
    std::size_t first;
    std::size_t bytes;
  };
  Part partOf(const void* buffer, const Span& span) const;
  // Calls `use(first, values)` for one piece of the application's copy after the other.
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

// Of MPI's windows, by their handles. Thread-safe.
namespace separate_windows {

namespace internal {
extern std::atomic<std::size_t> count;
SeparateWindowPtr findSlow(MPI_Win window);
}  // namespace internal

void add(MPI_Win window, SeparateWindowPtr separate);
// NULL for any other window. take(): it is not in the table any more.
inline SeparateWindowPtr find(MPI_Win window) {
  return internal::count.load(std::memory_order_acquire) != 0 ? internal::findSlow(window)
                                                              : nullptr;
}
SeparateWindowPtr take(MPI_Win window);
std::vector<SeparateWindowPtr> all();

}  // namespace separate_windows
}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_SEPARATE_WINDOW_H_
