// SPDX-License-Identifier: Apache-2.0
//
// What an accelerator that the application's own streams belong to tells of them besides mark().
#ifndef GMAC_ACCEL_STREAM_MARKS_H_
#define GMAC_ACCEL_STREAM_MARKS_H_

#include "gmac/accel/accelerator.h"

namespace gmac::accel {

// A second face of an Accelerator (CUDA's). Thread-safe, as that is.
class StreamMarks {
 public:
  virtual ~StreamMarks() = default;

  // As Accelerator::mark(), for a stream that `earlier`, a ticket of a mark or none, is known to be
  // of: that one is complete when this one is, so that it need not be asked about any more.
  virtual Result<Ticket> markAgain(NativeStream stream, Ticket earlier) = 0;
  // Whether the number means another stream in each thread.
  virtual bool perThread(NativeStream stream) const noexcept = 0;
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_STREAM_MARKS_H_
