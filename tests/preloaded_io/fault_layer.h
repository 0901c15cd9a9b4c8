/* SPDX-License-Identifier: Apache-2.0
 *
 * A library between the one under test and the C library, which makes one call on one descriptor
 * come out short or fail.
 */
#ifndef GMAC_TESTS_PRELOADED_IO_FAULT_LAYER_H_
#define GMAC_TESTS_PRELOADED_IO_FAULT_LAYER_H_

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of the `call`th call (from 0) on `descriptor` from now on: it fails with `error`, or
 * with 0 transfers half of what it is asked for. Descriptor -1: all calls are left alone. */
void faultLayerArm(int descriptor, int error, unsigned call);
/* How many calls there have been on it since, and whether one was spoilt. */
unsigned faultLayerCalls(void);
int faultLayerFired(void);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_TESTS_PRELOADED_IO_FAULT_LAYER_H_ */
