// SPDX-License-Identifier: Apache-2.0
//
// Whether the work of any stream is being recorded for a graph.
#ifndef GMAC_INTERPOSE_CUDA_CAPTURES_H_
#define GMAC_INTERPOSE_CUDA_CAPTURES_H_

namespace gmac::interpose {

// From before the first capture begins until the last one has ended. Streams may join a capture
// meanwhile. True for ever where a captured stream was destroyed. A load.
bool captureUnderWay() noexcept;

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_CAPTURES_H_
