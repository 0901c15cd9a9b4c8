// SPDX-License-Identifier: Apache-2.0
//
// Pending one-sided operations whose origin buffers are staged. MPI reads and writes those buffers
// until the operation is complete at its origin: until a synchronisation of the window, or, if the
// operation has a request, until that is completed. (MPICH 4.0 may fetch for an MPI_Rget after
// MPI_Win_flush_local has returned.)
//
// Thread-safe. No lock is held while MPI is called.
#ifndef GMAC_MPI_ABI_ONE_SIDED_H_
#define GMAC_MPI_ABI_ONE_SIDED_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mpi/abi/operand.h"
#include "mpi/abi/requests.h"
#include "mpi/abi/separate_window.h"
#include "mpi/abi/staged.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// One origin buffer of an operation; private memory stands in for shared objects and device memory.
// A result that lies in the window's own memory is written to the public copy, because other
// processes may fetch it right after a fence.
class OriginBuffer {
 public:
  // kPacked: MPI only moves the bytes, so they are packed. kElements: MPI computes with the
  // elements, so the private copy keeps their layout.
  enum class Form { kPacked, kElements };

  Ready prepare(Form form, const void* buffer, MPI_Count count, MPI_Datatype type);
  // The same for a buffer that lies in that window. What the process has written there is published
  // first.
  Ready prepareIn(SeparateWindowPtr window, void* buffer, MPI_Count count, MPI_Datatype type);
  bool isInWindow() const { return window_ != nullptr; }
  bool failed() const { return failed_; }
  // unpack() writes at most the first `bytes` of a packed buffer, because MPI fills no more.
  void fillOnly(std::int64_t bytes) { filled_ = bytes; }
  // Copies the elements to private memory, and back; does nothing without private memory. False:
  // failed.
  bool pack();
  bool unpack();

  // The address for MPI, which goes with the application's count.
  void* address() const;
  MPI_Datatype datatype() const;
  const std::string& reason() const;

 private:
  Form form_ = Form::kPacked;
  void* buffer_ = nullptr;
  MPI_Datatype type_{};
  Staged staged_;
  Operand operand_;
  SeparateWindowPtr window_;
  Span span_;  // of a buffer in the window
  std::string windowReason_;
  std::optional<std::int64_t> filled_;
  bool inUse_ = false;
  bool failed_ = false;
};

class Operation : public Pending {
 public:
  Operation(MPI_Win window, int target) : window(window), target(target) {}

  // Packs what MPI reads. `keeps`: packs the result, too, because the operation may fill only a
  // part of it.
  bool begin(bool keeps);
  // The operation is complete at its origin: unpacks what it has fetched. Done once, by the first
  // caller; others wait for it. False: failed.
  bool finish();

  // As Pending.
  bool pack() override { return true; }
  bool deliver(const MPI_Status&) override;
  const std::string& reason() const override { return reason_; }

  const MPI_Win window;
  const int target;
  bool isLate = false;  // MPI completes its request before it has fetched all
  OriginBuffer origin;
  OriginBuffer compared;  // of MPI_Compare_and_swap
  OriginBuffer result;    // of operations that fetch

 private:
  std::once_flag finished_;
  bool right_ = true;
  std::string reason_;
};
using OperationPtr = std::shared_ptr<Operation>;

// The table of operations without a request.
namespace operations {

// Whether there are any. A load.
bool any();

void add(const OperationPtr& operation);
void remove(const OperationPtr& operation);
// The operations on a window whose target is `target`; all of the window if none is given.
std::vector<OperationPtr> of(MPI_Win window, std::optional<int> target);

}  // namespace operations
}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_ONE_SIDED_H_
