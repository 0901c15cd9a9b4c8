/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GMAC_EXAMPLES_HALO_AFTER_H_
#define GMAC_EXAMPLES_HALO_AFTER_H_

#include <gmac/adsm_datatype.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A grid of nx x ny x nz doubles, x varying fastest; planes 0 and nx - 1 are the neighbours'. */
struct exchange {
  int nx;
  int64_t bytes;    /* of a plane */
  adsmType_t plane; /* x = 0 of the grid */
  void* out;
  void* in;
};

adsmError_t exchangeCreate(struct exchange* e, int nx, int ny, int nz);
adsmError_t exchangeHalo(const struct exchange* e, double* grid);
void exchangeDestroy(struct exchange* e);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_EXAMPLES_HALO_AFTER_H_ */
