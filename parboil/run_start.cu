// SPDX-License-Identifier: Apache-2.0
#include "parboil/require_cuda.h"
#include "parboil/start_explicit.h"

namespace parboil {

// The context is created by the first call that needs it.
void startExplicit() { require(cudaFree(nullptr)); }

}  // namespace parboil
