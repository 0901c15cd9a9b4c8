// SPDX-License-Identifier: Apache-2.0
//
// Ends a process whose CPU waits too long for kernels (GMAC_WAIT_LIMIT).
#ifndef GMAC_COHERENCE_WAIT_LIMIT_H_
#define GMAC_COHERENCE_WAIT_LIMIT_H_

namespace gmac::coherence {

// The access to that address has waited so many seconds: ends the process with a message. Fault
// path.
[[noreturn]] void endAfterWaitLimit(const void* access, unsigned seconds) noexcept;

}  // namespace gmac::coherence

#endif  // GMAC_COHERENCE_WAIT_LIMIT_H_
