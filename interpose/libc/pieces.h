// SPDX-License-Identifier: Apache-2.0
//
// Long transfers between regular files and shared memory, cut so that copies to and from the
// accelerator hide behind the file's own.
//
//  - A read starts the copy of each piece to the accelerator when it has read it. What certainly
//    lies inside the file is read by several threads, where there are as many (parallel_read.h):
//    one thread that copies from the page cache is slower than the memory and the accelerator's
//    link.
//  - A write is made from front to back by the calling thread, because what was written behind a
//    piece that failed could not be taken back. The pieces to come are fetched meanwhile, five
//    times as fast as a thread writes them.
#ifndef GMAC_INTERPOSE_LIBC_PIECES_H_
#define GMAC_INTERPOSE_LIBC_PIECES_H_

#include "interpose/libc/transfer.h"

namespace gmac::interpose {

// Makes a transfer of one buffer that may be cut (see mayBeCut()) piece by piece, each one held
// open while its call runs. A piece that comes out short or fails ends the transfer. Returns the
// count, or -1 and errno when not even the first piece came through. A transfer that uses the
// descriptor's own position is made with that position locked (PositionLock). `call` of a read with
// an offset may be called by several threads at once; that of a read without one may not be called
// at all. No cancellation point. Thread-safe.
ssize_t transferInPieces(const Transfer& transfer);

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_LIBC_PIECES_H_
