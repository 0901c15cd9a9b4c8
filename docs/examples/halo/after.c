/* SPDX-License-Identifier: Apache-2.0
 *
 * The same exchange of a grid in shared memory: the plane is described once, and packed and
 * unpacked wherever it is current.
 */
#include "docs/examples/halo/after.h"

#include <stdlib.h>

#include "docs/examples/halo/messages.h"

adsmError_t exchangeCreate(struct exchange* e, int nx, int ny, int nz) {
  const int64_t sizes[] = {nz, ny, nx};
  const int64_t part[] = {nz, ny, 1};
  const int64_t start[] = {0, 0, 0};
  e->nx = nx;
  e->bytes = (int64_t)ny * nz * (int64_t)sizeof(double);
  e->plane = NULL;
  e->out = malloc(e->bytes);
  e->in = malloc(e->bytes);
  if (e->out == NULL || e->in == NULL) return adsmErrorHostMemory;
  adsmError_t error = adsmTypeSubarray(3, sizes, part, start, adsmOrderC, ADSM_TYPE_8, &e->plane);
  if (error == adsmSuccess) error = adsmTypeCommit(e->plane);
  return error;
}

adsmError_t exchangeHalo(const struct exchange* e, double* grid) {
  for (int to = kLeft; to <= kRight; ++to) {
    const double* own = grid + (to == kLeft ? 1 : e->nx - 2);
    double* halo = grid + (to == kLeft ? e->nx - 1 : 0);
    adsmError_t error = adsmPack(e->out, own, 1, e->plane);
    if (error != adsmSuccess) return error;
    sendAndReceive((enum side)to, e->out, e->in, (size_t)e->bytes);
    error = adsmUnpack(halo, e->in, 1, e->plane);
    if (error != adsmSuccess) return error;
  }
  return adsmSuccess;
}

void exchangeDestroy(struct exchange* e) {
  if (e->plane != NULL) adsmTypeFree(e->plane);
  free(e->out);
  free(e->in);
}
