// SPDX-License-Identifier: Apache-2.0
//
// Long transfers between regular files and shared memory. They are cut into pieces, so that copies
// to and from the accelerator overlap the file's own.
//
//  - A read starts the copy of each piece to the accelerator when it has read the piece. Several
//    threads, where there are some, read the part that certainly lies inside the file
//    (parallel_read.h): one thread that copies from the page cache is slower than the memory and
//    the accelerator's link.
//  - A write is made from front to back by the calling thread, because bytes written after a piece
//    that failed could not be taken back. Later pieces are fetched meanwhile, five times as fast as
//    a thread writes them.
#ifndef GMAC_INTERPOSE_LIBC_PIECES_H_
#define GMAC_INTERPOSE_LIBC_PIECES_H_

#include "interpose/libc/transfer.h"

namespace gmac::interpose {

// Transfers one buffer (see mayBeCut()) piece by piece, and holds each piece open while its call
// runs. A piece that is short or fails ends the transfer. Returns the count, or -1 and errno when
// the first piece failed. A transfer at the descriptor's own position is made with that position
// locked (PositionLock). `call` of a read with an offset may be called by several threads at once;
// `call` of a read without one is never called. No cancellation point. Thread-safe.
ssize_t transferInPieces(const Transfer& transfer);

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_LIBC_PIECES_H_
