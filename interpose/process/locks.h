// SPDX-License-Identifier: Apache-2.0
//
// The program's mutexes, which may lie in shared memory: for functions of the C library that are
// other names of these. (This library's own call of pthread_mutex_lock() is about its own mutexes:
// own_calls.cc.)
#ifndef GMAC_INTERPOSE_PROCESS_LOCKS_H_
#define GMAC_INTERPOSE_PROCESS_LOCKS_H_

#include <pthread.h>

namespace gmac::interpose {

// As pthread_mutex_lock() and pthread_mutex_unlock().
int lockMutex(pthread_mutex_t* mutex) noexcept;
int unlockMutex(pthread_mutex_t* mutex) noexcept;

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_PROCESS_LOCKS_H_
