// SPDX-License-Identifier: Apache-2.0
//
// Long transfers between regular files and shared memory, cut so that copies to and from the
// accelerator hide behind the file's own.
#ifndef GMAC_INTERPOSE_PIECES_H_
#define GMAC_INTERPOSE_PIECES_H_

#include "interpose/transfer.h"

namespace gmac::interpose {

// Makes a transfer of one buffer that may be cut (see mayBeCut()) piece by piece, each one held
// open while its call runs. A piece that comes out short or fails ends the transfer. Returns the
// count, or -1 and errno when not even the first piece came through. A transfer that uses the
// descriptor's own position is made with that position locked (PositionLock). Thread-safe.
ssize_t transferInPieces(const Transfer& transfer);

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_PIECES_H_
