/* SPDX-License-Identifier: Apache-2.0
 *
 * y = a * x + y in plain C, on the built-in `host` accelerator: the whole API in one page. Run it
 * with GMAC_ACCEL=host; a kernel for `cuda` would need a module image in the description as well.
 */
#include <gmac/adsm.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCount = 1 << 20, kThreads = 256 };

/* One thread block. */
static void saxpyBlock(const adsmThreadBlock_t* block, void** args) {
  const unsigned count = *(const unsigned*)args[0];
  const float a = *(const float*)args[1];
  const float* x = *(const float**)args[2];
  float* y = *(float**)args[3];
  const unsigned first = block->blockIdx.x * block->blockDim.x;
  for (unsigned i = first; i < first + block->blockDim.x && i < count; ++i) y[i] += a * x[i];
}

static void check(adsmError_t error, const char* what) {
  if (error == adsmSuccess) return;
  fprintf(stderr, "%s: %s: %s\n", what, adsmErrorName(error), adsmLastErrorString());
  exit(1);
}

int main(void) {
  const size_t sizes[] = {sizeof(unsigned), sizeof(float), sizeof(float*), sizeof(float*)};
  const adsmKernelDesc_t desc = {
      .name = "saxpy", .paramCount = 4, .paramSizes = sizes, .host = saxpyBlock};
  adsmKernel_t saxpy;
  check(adsmKernelCreate(&desc, &saxpy), "adsmKernelCreate");

  float* x = adsmAlloc(kCount * sizeof *x);
  float* y = adsmAlloc(kCount * sizeof *y);
  if (x == NULL || y == NULL) check(adsmLastError(), "adsmAlloc");
  for (unsigned i = 0; i < kCount; ++i) {
    x[i] = (float)i;
    y[i] = 1.0f;
  }

  unsigned count = kCount;
  float a = 2.0f;
  void* args[] = {&count, &a, &x, &y};
  const adsmDim_t grid = {(kCount + kThreads - 1) / kThreads, 1, 1};
  const adsmDim_t block = {kThreads, 1, 1};
  check(adsmCall(saxpy, grid, block, 0, args), "adsmCall");
  check(adsmSync(), "adsmSync");

  for (unsigned i = 0; i < kCount; ++i) {
    if (y[i] != 2.0f * (float)i + 1.0f) {
      fprintf(stderr, "y[%u] is %g\n", i, y[i]);
      return 1;
    }
  }
  check(adsmFree(x), "adsmFree");
  check(adsmFree(y), "adsmFree");
  check(adsmKernelDestroy(saxpy), "adsmKernelDestroy");
  puts("saxpy: correct");
  return 0;
}
