// SPDX-License-Identifier: Apache-2.0
#include "parboil/start_explicit.h"

#include "parboil/benchmark.h"

namespace parboil {

#ifndef PARBOIL_CUDA
void startExplicit() { throw Failure("this build has no CUDA toolkit"); }
#endif

}  // namespace parboil
