// SPDX-License-Identifier: Apache-2.0
//
// The dynamic linker's lock of its list of modules, in a process that was forked while another
// thread held it.
#ifndef GMAC_ACCEL_HOST_LOADER_LOCK_H_
#define GMAC_ACCEL_HOST_LOADER_LOCK_H_

namespace gmac::accel::host {

// In a child of fork with one thread: frees the lock that dl_iterate_phdr() and dlopen() take,
// whoever held it in the parent. glibc's fork() does so with the linker's other locks and leaves
// this one. The list itself can be walked at every moment: modules are linked and unlinked by
// single stores. Does nothing where the C library is another one.
void freeLoaderLock() noexcept;

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_LOADER_LOCK_H_
