/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory and loops of these examples. A program that runs alone has malloc's memory and plain
 * calls; the same program in `gmac run --mpi` has shared objects, and its loops are kernels on the
 * accelerator, after which the bytes are current there. */
#ifndef GMAC_MPI_EXAMPLES_MEMORY_H_
#define GMAC_MPI_EXAMPLES_MEMORY_H_

#include <stddef.h>

/* Memory for `bytes`; ends the program when there is none. */
void* field_new(size_t bytes);
void field_free(void* field);

/* Calls body() with a copy of `bytes` (64 at most) of arguments, which may point to fields. It may
 * still run when this returns; who looks at a field waits for it. */
void field_run(void (*body)(void* arguments), const void* arguments, size_t bytes);

#endif /* GMAC_MPI_EXAMPLES_MEMORY_H_ */
