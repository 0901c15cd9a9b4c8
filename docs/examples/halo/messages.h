/* SPDX-License-Identifier: Apache-2.0
 *
 * What both versions of the halo exchange have of a message-passing library: MPI_Sendrecv, say.
 */
#ifndef GMAC_EXAMPLES_HALO_MESSAGES_H_
#define GMAC_EXAMPLES_HALO_MESSAGES_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum side { kLeft = 0, kRight = 1 };

/* Sends to the neighbour on one side while as many bytes arrive from the neighbour on the other. */
void sendAndReceive(enum side to, const void* out, void* in, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* GMAC_EXAMPLES_HALO_MESSAGES_H_ */
