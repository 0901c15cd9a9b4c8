// SPDX-License-Identifier: Apache-2.0
//
// One-sided operations under way whose buffers here are staged. MPI reads and writes those buffers
// until a synchronisation of the window says that the operation is complete at its origin; those of
// an operation with a request until that is completed. (MPICH 4.0 may fetch for an MPI_Rget after
// MPI_Win_flush_local has returned.)
//
// Thread-safe. No lock is kept while MPI is called.
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

// One buffer of an operation, in private memory where it is shared or a device's. A result in the
// window's own memory goes to its public copy: after a fence other processes may fetch it there at
// once.
class OriginBuffer {
 public:
  // kPacked: MPI only moves the bytes, which are packed. kElements: MPI computes with the elements,
  // which stand as they stand in the buffer.
  enum class Form { kPacked, kElements };

  Ready prepare(Form form, const void* buffer, MPI_Count count, MPI_Datatype type);
  // Of a buffer that lies in that window. What the process has written there is published first.
  Ready prepareIn(SeparateWindowPtr window, void* buffer, MPI_Count count, MPI_Datatype type);
  bool isInWindow() const { return window_ != nullptr; }
  bool failed() const { return failed_; }
  // Of a packed buffer no more than so many bytes will have been filled when it is unpacked.
  void fillOnly(std::int64_t bytes) { filled_ = bytes; }
  // The elements go to private memory and back. False: failed. Without private memory there is
  // nothing to do.
  bool pack();
  bool unpack();

  // For MPI, with the application's count.
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

  // Packs what MPI reads. `keeps`: of the result too, which the operation may fill in part.
  bool begin(bool keeps);
  // The operation is complete here: what it fetched goes to its buffer, and the private memory is
  // no more needed. Once, whoever says so first; the others wait for that. False: failed.
  bool finish();

  // For those that complete requests.
  bool pack() override { return true; }
  bool deliver(const MPI_Status&) override;
  const std::string& reason() const override { return reason_; }

  const MPI_Win window;
  const int target;
  OriginBuffer origin;
  OriginBuffer compared;  // of MPI_Compare_and_swap
  OriginBuffer result;    // of operations that fetch

 private:
  std::once_flag finished_;
  bool right_ = true;
  std::string reason_;
};
using OperationPtr = std::shared_ptr<Operation>;

// Those without a request, by the window.
namespace operations {

// Whether there are any. A load.
bool any();

void add(const OperationPtr& operation);
void remove(const OperationPtr& operation);
// Those on a window, with one target or (none given) with all.
std::vector<OperationPtr> of(MPI_Win window, std::optional<int> target);

}  // namespace operations
}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_ONE_SIDED_H_
