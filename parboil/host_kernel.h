// SPDX-License-Identifier: Apache-2.0
//
// For the inner loops of host kernels: compiled once for the baseline instruction set and once for
// each wider one, chosen when the program is loaded.
#ifndef GMAC_PARBOIL_HOST_KERNEL_H_
#define GMAC_PARBOIL_HOST_KERNEL_H_

// Sanitizers instrument the resolvers, which run before the sanitizers are ready.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PARBOIL_HOST_KERNEL \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PARBOIL_HOST_KERNEL
#endif

#endif  // GMAC_PARBOIL_HOST_KERNEL_H_
