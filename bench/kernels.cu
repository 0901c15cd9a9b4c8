// SPDX-License-Identifier: Apache-2.0
//
// The kernels as a module for the `cuda` accelerator.
#include "bench/kernels.h"
#include "bench/sweep_kernel.h"
#include "bench/touch_kernel.h"
