// SPDX-License-Identifier: Apache-2.0
//
// Whether a signal could run a handler of the program's at all.
//
// Most programs have none, and then nothing has to be blocked to keep handlers out: two system
// calls less for each lock of a launch. That there is none is known where the library stands in for
// sigaction() and its relatives, and the kernel had none when the runtime started. The program's
// first handler is set once no thread counts on its absence.
//
// Faults are not meant: their handlers are never kept out (signal_mask.h, kDeferrable).
#ifndef GMAC_OS_HANDLERS_H_
#define GMAC_OS_HANDLERS_H_

namespace gmac::os {

// The library stands in for all functions that set actions, and calls handlerComes(). Before
// main().
void actionsAreSeen() noexcept;

// Asks the kernel for the actions that were set so far, also by means that the library does not
// see. When the runtime starts; thread-safe.
void lookForHandlers() noexcept;

// The program is about to set a handler for a signal. Returns when no other thread counts on there
// being none, which a thread does for as long as one call of the library's takes; after a second in
// any case, as a driver's call may hang. Thread-safe, async-signal-safe.
void handlerComes(int signal) noexcept;

// True: no handler runs in any thread until the caller calls leave(). Thread-safe,
// async-signal-safe.
bool enterWithoutHandlers() noexcept;
void leaveWithoutHandlers() noexcept;

}  // namespace gmac::os

#endif  // GMAC_OS_HANDLERS_H_
